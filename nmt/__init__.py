"""nmt: neural machine translation with recurrent networks and attention, on PyTorch.

    import nmt
    print(nmt.load("RUN_DIR").translate(["A man in an orange hat."]))

Importing the package is fast; its functions are loaded on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Stopped", "TextClassifier", "Translator", "UserError", "__version__",
    "check_attention", "evaluate", "load", "train",
]  # fmt: skip

if TYPE_CHECKING:
    from nmt.analysis.attention_check import check_attention
    from nmt.foundation.errors import Stopped, UserError
    from nmt.inference.text_classifier import TextClassifier
    from nmt.inference.translator import Translator
    from nmt.loading import load
    from nmt.pipeline.python_functions import evaluate, train

_PLACES = {
    "load": "nmt.loading",
    "TextClassifier": "nmt.inference.text_classifier",
    "Translator": "nmt.inference.translator",
    "Stopped": "nmt.foundation.errors",
    "UserError": "nmt.foundation.errors",
}
_COMMANDS = ("check_attention", "evaluate", "train")
"""Commands of nmt whose modules can also be called as functions, such as `nmt.train(…)`."""


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name in _COMMANDS:
        return importlib.import_module(f"nmt.{name}")
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'nmt' has no attribute {name!r}")
