"""python translate.py FOLDER < FILE

Translates one sentence per line with onnxruntime and SentencePiece, without nmt and PyTorch.
"""

# ruff: noqa: B905
# mypy: ignore-errors

import json
import os
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import sentencepiece

BLANKS = dict.fromkeys((*range(9, 14), *range(28, 32), 133), " ")
"""Table for `str.translate` that maps control characters to spaces."""


class Model:
    """Translation model from a folder that `nmt.export format=onnx` has written."""

    def __init__(self, folder):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self.settings = json.loads(Path(folder, "settings.json").read_text(encoding="utf-8"))
        self.graphs = {
            name: onnxruntime.InferenceSession(str(Path(folder, f"{name}.onnx")), options)
            for name in ("encoder", "start", "step")
        }
        self.source, self.target = (
            sentencepiece.SentencePieceProcessor(model_file=str(Path(folder, f"{side}.model")))
            for side in ("source", "target")
        )

    def translate(self, line):
        """Returns the translation of a line, the hypothesis with the best mean log-probability."""
        settings = self.settings
        if not line.strip():
            return ""
        line = line.translate(BLANKS)
        line = line.lower() if settings["lowercase"] else line
        parts = line.split() if settings["by_word"] else [line]
        ids = [token for part in parts for token in self.source.encode(part)]
        ids = ids[: settings["max_source"]]
        if not ids:
            return ""
        source = {"source": [[*ids, settings["eos"]]], "lengths": [len(ids) + 1]}
        memory = run(
            self.graphs["encoder"], {name: np.array(value) for name, value in source.items()}
        )
        longest = int(settings["max_length_factor"] * len(ids)) + settings["max_length_offset"]
        text = self.target.decode(self.search(memory, longest))
        # Byte tokens may leave the sign for a space, and may spell a line feed.
        return text.replace("\u2581", " ").strip(" ").replace("\n", " ")

    def search(self, memory, longest):
        """Returns the token ids of the best hypothesis with at most `longest` tokens."""
        settings = self.settings
        state = run(self.graphs["start"], memory)
        hypotheses = [[]]
        totals = np.zeros(1)  # [W], W: number of live hypotheses
        finished = []
        for length in range(longest + 1):
            last = np.array([tokens[-1] if tokens else settings["bos"] for tokens in hypotheses])
            memories = {name: value.repeat(len(last), 0) for name, value in memory.items()}
            outputs = run(self.graphs["step"], {"words": last, **state, **memories})
            log_probs = outputs["log_probs"].astype(np.float64)  # [W, V], V: vocabulary size
            vocabulary = log_probs.shape[1]
            # PAD and BOS have probability 0.
            log_probs[:, [settings["pad"], settings["bos"]]] = -np.inf
            for row, tokens in enumerate(hypotheses):
                log_probs[row, repeating_tokens(tokens, settings["no_repeat_ngram_size"])] = -np.inf
            # At the length limit, only EOS is allowed.
            if length == longest:
                log_probs[:, np.arange(vocabulary) != settings["eos"]] = -np.inf
            scores = (totals[:, None] + log_probs).ravel()  # [W · V]
            best = np.argsort(-scores, kind="stable")[: settings["width"]]
            best = best[scores[best] > -np.inf]
            is_ended = best % vocabulary == settings["eos"]
            for i in best[is_ended]:
                finished.append((scores[i] / (length + 1), hypotheses[i // vocabulary]))
            best = best[~is_ended]
            # Stop if no live hypothesis can exceed the best finished score.
            highest = max((mean for mean, _ in finished), default=-np.inf)
            if not len(best) or highest >= scores[best].max() / max(length + 2, longest + 1):
                break
            totals = scores[best]
            parents, tokens = np.divmod(best, vocabulary)
            hypotheses = [[*hypotheses[p], int(token)] for p, token in zip(parents, tokens)]
            state = {
                name.removeprefix("next."): value[parents]
                for name, value in outputs.items()
                if name.startswith("next.")
            }
        return max(finished, key=lambda pair: pair[0])[1]


def repeating_tokens(tokens, size):
    """Returns the ids that would repeat a sequence of `size` tokens; none with size 0."""
    begun = len(tokens) - size + 1  # position of the last `size` - 1 tokens
    positions = range(begun if size else 0)
    return [tokens[i + size - 1] for i in positions if tokens[i : i + size - 1] == tokens[begun:]]


def run(graph, values):
    """Runs an ONNX graph and returns its outputs by name; values that are not inputs are
    ignored.
    """
    inputs = {value.name for value in graph.get_inputs()}
    names = [value.name for value in graph.get_outputs()]
    used = {name: value for name, value in values.items() if name in inputs}
    return dict(zip(names, graph.run(names, used)))


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1], "settings.json").is_file():
        sys.exit(__doc__)
    if sys.stdin is None:
        sys.exit("stdin is closed; run: python translate.py FOLDER < FILE")
    # UTF-8, with or without a byte order mark, and line ends \n and \r\n, independent of the locale
    sys.stdin.reconfigure(encoding="utf-8-sig", errors="replace", newline="\n")
    sys.stdout.reconfigure(encoding="utf-8")
    model = Model(sys.argv[1])
    try:
        for line in sys.stdin:
            print(model.translate(line.removesuffix("\n").removesuffix("\r")), flush=True)
    except BrokenPipeError:  # as with: python translate.py FOLDER < FILE | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
