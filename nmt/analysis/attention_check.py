"""Tests attention code of any toolkit against laws, that is, properties of correct attention.

    import nmt
    print(nmt.check_attention(my_attention).text)

The laws are functions of the modules weight_laws and dependence_laws.
"""

import importlib
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from nmt.analysis import decoder_laws, dependence_laws, weight_laws
from nmt.analysis.attention_probe import Probe
from nmt.analysis.attention_signature import probe_of
from nmt.analysis.laws import broken_laws
from nmt.foundation.errors import UsageError, UserError
from nmt.model.decoder import Decoder

log = logging.getLogger(__name__)
LAWS: dict[str, Callable[[Probe], None]] = {
    "weights are a distribution": weight_laws.sums_to_one,
    "padding gets no weight": weight_laws.ignores_padding,
    "the content of padding has no influence": weight_laws.content_of_padding,
    "the query has an influence": dependence_laws.depends_on_query,
    "weights move with the words": dependence_laws.depends_on_memory,
    "all sizes can be computed": dependence_laws.all_sizes_work,
    "sentences do not influence each other": dependence_laws.sentences_are_independent,
    "one word can get all weight": weight_laws.can_choose_one_word,
    "gradients reach query and memory": dependence_laws.gradients_arrive,
    "the context is the weighted sum": dependence_laws.context_is_weighted_sum,
}
"""Maps the name of each law to its test function, which raises BrokenLaw if the law is broken."""


@dataclass(frozen=True)
class Verdict:
    """Result of testing attention code, as returned by `check_attention`.

    name: name of the tested code
    called: sentence that names the arguments of the tested code and their tensor layouts
    broken: for each broken law by name, the observed weights or contexts and the probable cause
    tried: number of laws against which the code was tested
    skipped: names of the laws that need attention weights, if the code returns none
    """

    name: str
    called: str
    broken: Mapping[str, str]
    tried: int
    skipped: Sequence[str] = ()

    @property
    def text(self) -> str:
        """Result as text, with a summary and one paragraph for each broken law."""
        outcome = f"breaks {len(self.broken)} of" if self.broken else "keeps all"
        paragraphs = [f"{self.name}: {outcome} {self.tried} laws. {self.called}"]
        paragraphs += [f"{law}: {text}" for law, text in self.broken.items()]
        if self.skipped:
            laws = "; ".join(self.skipped)
            paragraphs.append(f"Not tested, because the code returns no attention weights: {laws}.")
        return "\n\n".join(paragraphs)


@torch.no_grad()
def check_attention(target: Any, name: str | None = None) -> Verdict:
    """Tests attention code against laws, which are properties of correct attention.

    The arguments of a function or of `forward` are recognised by common names: query [B, P], memory
    [B, S, M], mask [B, S] or lengths [B], and tokens of a decoder. The code must return the weights
    [B, S], the context [B, M], or both. B is the number of sentences, and S the number of source
    positions. P and M are the sizes of query and memory.

    target: function, module, module class, or `Score` or `Attention` of nmt; a subclass of
        `Decoder` is tested against the laws of decoders instead
    name: name of the code in messages; None for its Python name

    Raises UserError if the code cannot be called.
    """
    name = name or str(getattr(target, "__name__", type(target).__name__))
    if isinstance(target, type) and issubclass(target, Decoder):
        score = " and attention=general" if target.attends else ""
        called = f"The code was built with small sizes{score}."
        return Verdict(name, called, decoder_laws.check_decoder(target), len(decoder_laws.LAWS))
    if isinstance(target, Decoder):
        raise UserError(f"{name}: give the class of the decoder instead of an instance")
    if not callable(target):
        raise UserError(f"{name}: must be a function, module or class")
    probe = probe_of(target, name)
    layouts = [f"{parameter} {probe.layouts[role]}" for parameter, role in probe.roles.items()]
    called = f"The code was called with {', '.join(layouts)}."
    values = probe.layouts.get("mask", "").rpartition("], ")[2]
    if values not in ("", "true for words"):
        called += f" Its mask must be {values}; the masks of nmt are true for words."
    broken, skipped = broken_laws(LAWS, probe)
    return Verdict(name, called, broken, len(LAWS) - len(skipped), skipped)


def print_verdicts(*, functions: list[str]) -> None:
    """Tests each FILE.py:NAME and prints the results.

    Raises SystemExit with status 1 if a law is broken or code cannot be called, and with status 2
    if a file or name is not found.
    """
    status = 0
    for function in functions:
        try:
            verdict = check_file(function)
            print(verdict.text, end="\n\n")
            status = max(status, int(bool(verdict.broken)))
        except UserError as error:
            log.error("%s", error)
            status = max(status, error.exit_status)
    if status:
        raise SystemExit(status)


def check_file(target: str) -> Verdict:
    """Tests the code FILE.py:NAME. Raises UserError if the code is not found or cannot be run."""
    path, name = target.partition(":")[::2]
    if not Path(path).is_file():
        raise UsageError(
            f"functions={target}: file not found: {path or target}; expected FILE.py:NAME"
        )
    try:
        module = _imported(Path(path).resolve())
    except (Exception, SystemExit) as error:
        raise UserError(f"functions={target}: {path} cannot be run: {error}") from error
    if not callable(getattr(module, name, None)):
        defined = sorted(
            key
            for key, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", None) == module.__name__
        )
        raise UsageError(
            f"functions={target}: {name or 'NAME'} not found in {path}; the file "
            f"defines {', '.join(defined) or 'no function or class'}"
        )
    return check_attention(getattr(module, name), f"{path}:{name}")


def _imported(file: Path) -> ModuleType:
    """Runs a Python file and returns its module. A file of a package is imported as a part of the
    package, so that relative imports work."""
    folder = file.parent
    names = [file.stem]
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    if len(names) > 1:
        package = sys.modules.get(names[0])
        own_file = folder / names[0] / "__init__.py"
        if package is not None and package.__file__ != str(own_file):
            raise UserError(
                f"another package {names[0]} is loaded ({package.__file__}); test this file in a "
                "separate call, and rename a package that has the name of an installed package"
            )
        sys.path.insert(0, str(folder))
        return importlib.import_module(".".join(names))
    module = ModuleType("checked_attention")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # dataclasses need their module in sys.modules
    SourceFileLoader(module.__name__, str(file)).exec_module(module)
    return module
