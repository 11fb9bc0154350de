"""nmt: neural machine translation with recurrent networks and attention, on PyTorch.

Importing the package costs nothing; what it offers to Python is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Translator", "__version__"]

if TYPE_CHECKING:
    from nmt.inference.translator import Translator


def __getattr__(name: str) -> Any:
    if name == "Translator":
        from nmt.inference.translator import Translator

        return Translator
    raise AttributeError(f"module 'nmt' has no attribute {name!r}")
