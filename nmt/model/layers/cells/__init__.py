"""Recurrent cells. A cell is one file here, with its equation; it is found by the name of the file.

Read: gru, lstm, norm_gru, norm_lstm.
"""

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any, Literal

from nmt.model.layers.recurrence import Recurrent

NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))
"""Names of all cells."""

if TYPE_CHECKING:
    CellName = str
else:
    CellName = Literal[NAMES]


def cell_class(name: CellName) -> type[Recurrent]:
    """The recurrent layer with the cell of this name: the only subclass of `Recurrent` that its file defines."""
    module = importlib.import_module(f"{__name__}.{name}")
    [result] = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Recurrent)
        and value.__module__ == module.__name__
    ]
    return result


def recurrent(name: CellName, *sizes: int, **options: Any) -> Recurrent:
    """A recurrent layer with the cell of this name; see `Recurrent` for the sizes and options."""
    return cell_class(name)(*sizes, **options)
