"""Comparison of systems (nmt.compare): models, which translate, and files of translations."""

import difflib
import json
import logging
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from nmt.analysis.comparison import Comparison
from nmt.analysis.evaluation import translations
from nmt.analysis.tables import ReportTable, latex, markdown, page_table, terminal
from nmt.analysis.word_statistics import bare, tokens
from nmt.data import unique_suffixes
from nmt.data.lines import find_file, read_aligned, read_lines
from nmt.drawing.attention_map import AttentionMap
from nmt.drawing.pages import origin, page, render
from nmt.foundation.errors import UserError
from nmt.foundation.progress import Progress
from nmt.inference.file_alignment import strongest_links
from nmt.inference.translator import Translator
from nmt.metric import Metric
from nmt.storage.files import write_atomically
from nmt.tokenizer.words import words

log = logging.getLogger(__name__)
EXAMPLES = "Sentences that differ most"
"""Heading of the example sentences in a comparison of systems."""
TOKENISED_LINES = 100
"""Minimum number of lines that end with a space and a full stop in a tokenised text.

sacreBLEU's warning about tokenised text has the same limit.
"""


def compare_systems(
    load: Callable[[str], Translator],
    metric: Metric,
    *,
    systems: Sequence[str],
    reference: str,
    source: str | None,
    train: str | None,
    output: str,
    examples: int,
    samples: int,
    trials: int,
) -> None:
    """Prints the comparison tables, and writes OUTPUT.md, OUTPUT.json, OUTPUT.tex and OUTPUT.html.

    load: function that returns the translator of a run folder or checkpoint
    metric: metric options, such as `lowercase`
    systems: run folders and checkpoints, which translate, or files of translations
    reference: file with one reference per sentence
    source: file with the source sentences, which models need; None if unknown
    train: file in which word frequencies are counted; None for the reference file
    output: path of the output files without suffix
    examples: number of example sentences
    samples, trials: numbers of bootstrap samples and randomisation trials of significance tests

    Raises UserError if files are missing, empty or not aligned, or if a model has no source.
    """
    lines = _read_files(systems, reference, source)
    source_lines = lines[source] if source else []
    names = dict(zip(systems, unique_suffixes(systems), strict=True))
    models = {name: load(path) for path, name in names.items() if path not in lines}
    outputs = {
        name: lines.get(path) or _translations(models[name], Path(path), source_lines)
        for path, name in names.items()
    }
    _warn_of_tokenised_text(outputs, metric)
    counted = read_lines(find_file(train)) if train else lines[reference]
    language = next((model.languages[1] for model in models.values()), "")
    comparison = Comparison(
        source=source_lines,
        reference=lines[reference],
        outputs=outputs,
        metric=metric.of(language, lines[reference]),
        counts=Counter(token for line in counted for token in tokens(line)),
        counted=train or "the reference",
        links=_links([*models.values()], source_lines, lines[reference]),
        samples=samples,
        trials=trials,
    )
    _write(comparison, _examples(comparison, models, examples), output)


def _read_files(systems: Sequence[str], reference: str, source: str | None) -> dict[str, list[str]]:
    """Returns the lines of the source, the reference and the files of translations, by path.

    Raises UserError if a file is missing or empty, if files differ in length, or if a model has no
    source.
    """
    models = [p for p in systems if Path(p).is_dir() or p.endswith(".safetensors")]
    if models and source is None:
        raise UserError(f"{models[0]}: a model needs a source text; add source=FILE")
    files = [*([source] if source else []), reference, *(p for p in systems if p not in models)]
    lines = dict(zip(files, read_aligned(*files), strict=True))
    if not lines[reference]:
        raise UserError(f"{reference}: the file is empty")
    return lines


def _translations(model: Translator, run: Path, source: Sequence[str]) -> list[str]:
    """Returns the saved test translations of a run. If the run's test set has other source
    sentences than `source`, the model translates `source`."""
    files = [run / "test.source.txt", run / "test.txt"]
    if all(file.is_file() for file in files):
        sentences, tested = map(read_lines, files)
        if sentences == source and len(tested) == len(source):
            return tested
    return translations(model, source)


def _links(
    models: Sequence[Translator], source: Sequence[str], reference: Sequence[str]
) -> dict[int, list[tuple[str, str]]]:
    """Returns pairs (reference word, source word to which it attends most), by sentence index.

    The attention is that of the first model in forced decoding of the reference. The result is
    empty if there is no model, or if the first model has no attention.

    models: translators of the compared systems
    source: source sentences
    reference: reference translation of each sentence
    """
    links: dict[int, list[tuple[str, str]]] = {}
    if models and models[0].attends:
        # Empty lines have no attention.
        numbers = [i for i in range(len(source)) if words(source[i]) and words(reference[i])]
        maps = models[0].forced_maps([source[i] for i in numbers], [reference[i] for i in numbers])
        for i, weights in zip(numbers, maps, strict=True):
            links[i] = [(weights.target[t], weights.source[s]) for s, t in strongest_links(weights)]
    return links


@dataclass(frozen=True)
class Example:
    """A sentence with its translations by several systems.

    number: index of the sentence, from 0
    source: source sentence; None if unknown
    reference: reference translation
    outputs: translation of each system
    scores: chrF of each system
    log_probs: for each model, the mean log-probability per token of each system's translation
    maps: attention map of each model for its own translation
    """

    number: int
    source: str | None
    reference: str
    outputs: Mapping[str, str]
    scores: Mapping[str, float]
    log_probs: Mapping[str, Mapping[str, float]]
    maps: Mapping[str, AttentionMap]

    def as_json(self) -> dict[str, object]:
        """Returns the example as JSON values, without attention maps."""
        log_probs = {
            model: {name: round(value, 4) for name, value in values.items()}
            for model, values in self.log_probs.items()
        }
        return {
            "line": self.number + 1,
            "source": self.source,
            "reference": self.reference,
            "outputs": dict(self.outputs),
            "chrf": {name: round(score, 2) for name, score in self.scores.items()},
            "log_probs_per_token": log_probs,
        }


def most_different(comparison: Comparison, count: int) -> list[int]:
    """Returns the indices of the sentences with the largest differences in chrF.

    The difference is between the first system and another system. If possible, the first system is
    better in half of the sentences. For a single system, returns the sentences with the lowest
    chrF.

    comparison: sentence scores of all systems
    count: number of sentences
    """
    first, *others = comparison.sentence_scores.values()
    if not others:
        return sorted(range(len(first)), key=lambda i: (first[i], i))[:count]
    # Largest difference from another system, positive if the first system is better
    leads = [max((first[i] - other[i] for other in others), key=abs) for i in range(len(first))]
    ordered = sorted(range(len(leads)), key=lambda i: (-leads[i], i))
    won = [i for i in ordered if leads[i] > 0]
    lost = [i for i in reversed(ordered) if leads[i] < 0]
    won = won[: max(count // 2, count - len(lost))]
    return [*won, *lost[: count - len(won)]]


def example_section(example: Example) -> Markup:
    """Returns the HTML section for an example sentence."""
    notes = {}
    for name, score in example.scores.items():
        log_probs = [
            f"log-probability under {model}: {values[name]:.2f} per token"
            for model, values in example.log_probs.items()
        ]
        notes[name] = " · ".join([f"chrF {score:.0f}", *log_probs]).replace(": -", ": −")
    (first, score), *others = example.scores.items()
    lead = ", ".join(f"{first} − {other} = {score - value:+.0f} chrF" for other, value in others)
    return render(
        "example",
        example=example,
        notes=notes,
        marked=marked,
        lead=lead.replace("= -", "= −"),
        orders=json.dumps(orders(example), ensure_ascii=False),
    )


def orders(example: Example) -> dict[str, float]:
    """Returns the sort keys of an example on the HTML page, by name of the order.

    The example with the smallest key comes first.
    """
    (first, score), *others = example.scores.items()
    text = example.reference if example.source is None else example.source
    keys: dict[str, float] = {"line number": example.number, "longest": -len(words(text))}
    for other, value in others:
        keys[f"{first} better than {other}"] = value - score
        keys[f"{other} better than {first}"] = score - value
    return keys | {f"lowest chrF of {name}": value for name, value in example.scores.items()}


def marked(text: str, reference: str) -> Markup:
    """Returns a translation as HTML, with highlighting for words that differ from the reference.

    Punctuation is ignored.

    text: translation
    reference: reference of the sentence
    """
    written = words(text)
    # A separate punctuation mark is compared as a word.
    expected = [bare(word) or word for word in words(reference)]
    compared = [bare(word) or word for word in written]
    # autojunk would ignore frequent words
    matcher = difflib.SequenceMatcher(None, compared, expected, autojunk=False)
    shared = {i + k for i, _, size in matcher.get_matching_blocks() for k in range(size)}
    return render("marked_differences", words=list(enumerate(written)), shared=shared)


def examples_markdown(examples: Sequence[Example]) -> str:
    """Returns example sentences as a list in Markdown."""
    lines = [f"### {EXAMPLES}", ""]
    for example in examples:
        lines.append(f"{example.number + 1}.")
        if example.source is not None:
            lines.append(f"   - source: {example.source}")
        lines.append(f"   - reference: {example.reference}")
        lines += [
            f"   - {name} (chrF {example.scores[name]:.0f}): {text}"
            for name, text in example.outputs.items()
        ]
    return "\n".join([*lines, ""])


def _example(comparison: Comparison, models: Mapping[str, Translator], number: int) -> Example:
    """Returns an example sentence, with attention maps and log-probabilities from each model.

    comparison: translations of all systems
    models: translators by name of the system
    number: index of the sentence
    """
    texts = {name: lines[number] for name, lines in comparison.outputs.items()}
    sentence = comparison.source[number] if comparison.source else None
    log_probs = {}
    maps = {}
    for system, model in models.items():
        if sentence is None or not words(sentence):
            continue
        # Each model scores the translations of all systems.
        tokens = model.tokenizer.encode_target(list(texts.values()))
        forced = model.force(model.encode([sentence] * len(texts)), tokens, attention=False)
        log_probs[system] = {
            name: probabilities.log_prob / len(probabilities.log_probs)
            for name, probabilities in zip(texts, forced, strict=True)
        }
        if model.attends and words(texts[system]):
            [maps[system]] = model.forced_maps([sentence], [texts[system]])
    return Example(
        number=number,
        source=sentence,
        reference=comparison.reference[number],
        outputs=texts,
        scores={name: scores[number] for name, scores in comparison.sentence_scores.items()},
        log_probs=log_probs,
        maps=maps,
    )


def _examples(
    comparison: Comparison, models: Mapping[str, Translator], count: int
) -> list[Example]:
    """Returns examples of the sentences in which the systems' translations differ most."""
    numbers = most_different(comparison, count)
    examples = []
    with Progress("explaining sentences", len(numbers), "sentences") as step:
        for number in numbers:
            examples.append(_example(comparison, models, number))
            step()
    return examples


def _write(comparison: Comparison, examples: Sequence[Example], output: str) -> None:
    """Writes the comparison as .md, .json, .tex and .html files, and prints the tables."""
    tables = comparison.tables()
    lead = comparison.sentences(tables)
    markdown_texts = [*map("{}\n".format, lead), *map(markdown, tables)]
    files = {
        ".md": "\n".join([*markdown_texts, examples_markdown(examples)]).encode(),
        ".json": _as_json(lead, tables, examples).encode(),
        ".tex": "\n".join(map(latex, tables)).encode(),
        ".html": _page(lead, tables, examples, comparison),
    }
    for ending, content in files.items():
        write_atomically(Path(output + ending), content)
    # Print after writing the files, because a reader may close the pipe early.
    for text in (*lead, *map(terminal, tables)):
        sys.stdout.write(f"{text}\n")
    log.info("wrote %s", ", ".join(output + ending for ending in files))


def _warn_of_tokenised_text(outputs: Mapping[str, Sequence[str]], metric: Metric) -> None:
    """Logs a single warning for tokenised translations, instead of sacreBLEU's warning at each
    score.

    outputs: translations of each system, by name
    """
    # SacreBLEU's warning does not name the system.
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)
    counts = {name: sum(line.endswith(" .") for line in lines) for name, lines in outputs.items()}
    name = max(counts, key=counts.__getitem__)
    if counts[name] >= TOKENISED_LINES and metric.tokenize != "none":
        log.warning(
            "%s: the text seems to be tokenised (%s lines end in ' .'); give detokenised text, "
            "or set metric.tokenize=none",
            name,
            f"{counts[name]:,}",
        )


def _as_json(
    lead: Sequence[str], tables: Sequence[ReportTable], examples: Sequence[Example]
) -> str:
    keys = ("title", "head", "rows", "note")
    values = {
        "summary": list(lead),
        "tables": [{key: getattr(table, key) for key in keys} for table in tables],
        "sentences": [example.as_json() for example in examples],
    }
    return json.dumps(values, ensure_ascii=False, indent=1) + "\n"


def _page(
    lead: Sequence[str],
    tables: Sequence[ReportTable],
    examples: Sequence[Example],
    comparison: Comparison,
) -> bytes:
    first, *others = map(page_table, tables)
    sections = [*map(example_section, examples)]
    text = render("comparison", first=first, others=others, examples=sections, title=EXAMPLES)
    count = len(comparison.outputs)
    note = f"{len(comparison.reference):,} sentences, {count} system{'s' if count > 1 else ''}."
    titles = [*(table.title for table in tables), *([EXAMPLES] if examples else [])]
    return page("Comparison", note, [text], lead=lead, contents=titles, facts=origin())
