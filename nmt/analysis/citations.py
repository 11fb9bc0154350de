"""Citations of the papers that nmt implements or that a model uses (nmt.cite).

The papers of a model are named in the docstrings of its components, or determined by its settings
(`SETTINGS`). Keys in papers.bib are built from the references in docstrings: luong-et-al-2015 is
the key of `Luong et al. 2015`.
"""

import inspect
import logging
import pydoc
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import nmt
from nmt.foundation import plugins
from nmt.foundation.configurations import flat
from nmt.storage.checkpoint import read_model

log = logging.getLogger(__name__)
PAPERS = Path(nmt.__file__).with_name("papers.bib")
ENTRY = re.compile(r"^@\w+\{([^,]+),.*$", re.MULTILINE)
NAME = r"[A-Z][\w'-]+"
CITATION = re.compile(rf"({NAME}(?:, {NAME})*(?: & {NAME}| et al\.)?),? \(?((?:19|20)\d\d)\b")
"""Pattern of a citation in a text, such as `Zoph & Knight 2016` or `Luong et al. (2015)`."""
ALWAYS = {"nmt"}
"""BibTeX keys that are always cited: the toolkit."""
ON = "*"
"""Pattern for the values of an enabled setting: any value except false, 0, empty or null."""

SETTINGS: Mapping[str, Sequence[Mapping[str, str]]] = {
    "arthur-et-al-2016": [{"model.lexicon": ON}],
    "ba-et-al-2016": [{"*.cell": "norm_*"}, {"*.layer_norm": ON}],
    "barone-et-al-2017": [{"*.transition_depth": "[2-9]"}, {"*.transition_depth": "??*"}],
    "chen-et-al-2016": [{"objective.guided_alignment": ON}],
    "chen-et-al-2018": [{"*.cell": "norm_*"}],
    "cho-et-al-2014": [{"*.cell": "*gru"}, {"decoder._target_": "*.Fixed"}],
    "gal-ghahramani-2016": [{"*.recurrent_dropout": ON}, {"*.variational_dropout": ON}],
    "gers-et-al-2000": [{"*.cell": "*lstm"}],
    "gu-et-al-2016": [{"model.copy": ON}],
    "hochreiter-schmidhuber-1997": [{"*.cell": "*lstm"}],
    "jacob-et-al-2018": [{"precision": "int8"}],
    "jozefowicz-et-al-2015": [{"*.cell": "*lstm"}],
    "kudo-2018": [{"tokenizer.model": "unigram"}],
    "nguyen-chiang-2018": [{"model.lexical": ON}],
    "pascanu-et-al-2014": [{"*.transition_depth": "[2-9]"}, {"*.transition_depth": "??*"}],
    "post-2018": [{"decoder._target_": ON}],  # sacreBLEU scores every translation model
    "provilkov-et-al-2020": [{"tokenizer.model": "bpe", "tokenizer.sampling": ON}],
    "see-et-al-2017": [{"model.copy": ON}],
    "semeniuta-et-al-2016": [{"*.recurrent_dropout": ON, "*.recurrent_dropout_of": "update"}],
    "sennrich-et-al-2016": [{"tokenizer.model": "bpe"}],
    "srivastava-et-al-2014": [{"*dropout": ON}],
    "szegedy-et-al-2016": [{"objective.label_smoothing": ON}],
    "williams-1992": [{"window.estimator": "reinforce"}],
    "xu-et-al-2015": [
        {"*.context_gate": ON},
        {"objective.doubly_stochastic": ON},
        {"encoder*._target_": "*.Grid"},
        {"encoder*._target_": "*.Convolution"},
        {"window._target_": "*.Hard"},
    ],
}
"""Maps the BibTeX key of a paper to a list of patterns; each pattern is a dictionary of settings.

A model uses the paper if the model's configuration matches all keys and values of at least one
pattern. In keys and values, * matches any characters. Papers that are not listed are cited if a
component's docstring names the paper.
"""


def print_papers(*, model: str | None = None) -> None:
    """Prints the BibTeX entries of papers, sorted by key.

    model: run folder or checkpoint whose papers are printed; None for all papers
    """
    text = PAPERS.read_text(encoding="utf-8")
    entries = {match[1]: match[0] for match in ENTRY.finditer(text)}
    config = {} if model is None else read_model(model).meta.get("config") or {}
    settings = flat(config)
    cited = entries.keys() if model is None else papers_of(settings)
    missing = ",".join(name for name in plugins.needed(config) if not plugins.home_of(name))
    if missing:
        log.warning(
            "plugin %s: the papers that its code cites are not listed; add --plugins %s",
            missing,
            missing,
        )
    for target, keys in _cited(settings).items():
        # A short reference of a plugin may be another paper than in nmt. BibTeX ignores this line.
        if keys and plugins.home_of(target):
            print(f"% {target} cites {', '.join(sorted(keys))}: add the entries of these papers")
    for key in sorted(cited & entries.keys()):
        print(entries[key].replace(", ", ",\n  ", 1).replace("}, ", "},\n  "))


def references(text: str) -> list[str]:
    """Returns the BibTeX keys of the papers that a text cites."""
    matches = CITATION.findall(" ".join(text.split()))
    return ["-".join([*re.findall(r"\w+", authors), year]).lower() for authors, year in matches]


def _cited(settings: Mapping[str, Any]) -> dict[str, set[str]]:
    """Returns the BibTeX keys of the papers in the docstrings of a model's components, by class.

    settings: values by full key
    """
    cited = {}
    targets = [str(value) for key, value in settings.items() if key.endswith("._target_")]
    # The configuration comes from an untrusted file, so other classes must not be imported.
    trusted = [path for path in targets if path.startswith("nmt.") or plugins.home_of(path)]
    for target in trusted:
        located = pydoc.locate(target)
        texts = [inspect.getdoc(part) or "" for part in (located, inspect.getmodule(located))]
        cited[target] = {key for text in texts for key in references(text)}
    return cited


def papers_of(settings: Mapping[str, Any]) -> set[str]:
    """Returns the BibTeX keys of the papers behind a model's components and settings, without the
    papers of plugins.

    settings: values by full key
    """
    cited = _cited(settings).items()
    named = {key for target, keys in cited if not plugins.home_of(target) for key in keys}
    return ALWAYS | (named - SETTINGS.keys()) | {key for key in SETTINGS if uses(key, settings)}


def uses(paper: str, settings: Mapping[str, Any]) -> bool:
    """Returns whether a model's settings use a paper that is listed in `SETTINGS`.

    paper: BibTeX key of the paper
    settings: values by full key
    """

    def matches(key: str, value: str) -> bool:
        return any(
            fnmatchcase(name, key) and setting not in (0, "") and fnmatchcase(str(setting), value)
            for name, setting in settings.items()
        )

    return any(
        all(matches(key, value) for key, value in alternative.items())
        for alternative in SETTINGS[paper]
    )
