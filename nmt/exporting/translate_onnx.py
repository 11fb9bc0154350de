"""python translate.py FOLDER < FILE       Translates a sentence a line with onnxruntime and SentencePiece alone."""

# ruff: noqa: B905
# mypy: ignore-errors

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import sentencepiece


class Model:
    """The graphs of a folder that nmt.export format=onnx wrote."""

    def __init__(self, folder):
        def graph(name):
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 3
            return onnxruntime.InferenceSession(str(Path(folder, f"{name}.onnx")), options)

        self.settings = json.loads(Path(folder, "settings.json").read_text())
        self.encoder, self.start, self.step = graph("encoder"), graph("start"), graph("step")
        self.source, self.target = (
            sentencepiece.SentencePieceProcessor(model_file=str(Path(folder, f"{side}.model")))
            for side in ("source", "target")
        )

    def translate(self, line):
        """Beam search; finished hypotheses are judged by their mean log-probability."""
        settings, eos = self.settings, self.settings["eos"]
        if not line.strip():
            return ""
        line = line.lower() if settings["lowercase"] else line
        ids = [
            i
            for part in (line.split() if settings["by_word"] else [line])
            for i in self.source.encode(part)
        ]
        memory = run(
            self.encoder, {"source": np.array([[*ids, eos]]), "lengths": np.array([len(ids) + 1])}
        )
        state = run(self.start, memory)
        width, longest = (
            settings["width"],
            int(settings["max_length_factor"] * len(ids)) + settings["max_length_offset"],
        )
        written, totals, finished = [[]], np.zeros(1), []
        for length in range(longest + 1):
            rows = len(written)
            last = np.array([words[-1] if words else settings["bos"] for words in written])
            found = run(
                self.step,
                {"words": last, **state, **{k: v.repeat(rows, 0) for k, v in memory.items()}},
            )
            log_probs = found["log_probs"].astype(np.float64)
            log_probs[:, [settings["pad"], settings["bos"]]] = -np.inf
            if length == longest:
                log_probs[:, np.arange(log_probs.shape[1]) != eos] = -np.inf
            both = (totals[:, None] + log_probs).ravel()
            best = np.argsort(-both, kind="stable")[:width]
            parents, words, scores = (
                best // log_probs.shape[1],
                best % log_probs.shape[1],
                both[best],
            )
            for parent, word, score in zip(parents, words, scores):
                if word == eos and score > -np.inf:
                    finished.append((score / (length + 1), written[parent]))
            going = (words != eos) & (scores > -np.inf)
            best = max((score for score, _ in finished), default=-np.inf)
            if not going.any() or best >= scores[going].max() / max(length + 2, longest + 1):
                break
            parents, words, totals = parents[going], words[going], scores[going]
            written = [[*written[parent], int(word)] for parent, word in zip(parents, words)]
            state = {
                name.removeprefix("next."): value[parents]
                for name, value in found.items()
                if name.startswith("next.")
            }
        return self.target.decode(max(finished, key=lambda one: one[0])[1])


def run(graph, values):
    """The outputs of a graph by their names; inputs that it does not use are left out."""
    wanted = {each.name for each in graph.get_inputs()}
    names = [each.name for each in graph.get_outputs()]
    return dict(zip(names, graph.run(names, {k: v for k, v in values.items() if k in wanted})))


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1], "settings.json").is_file():
        sys.exit(__doc__)
    sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    model = Model(sys.argv[1])
    for each in sys.stdin:
        print(model.translate(each.rstrip("\n")), flush=True)
