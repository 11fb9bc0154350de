"""Recurrent cells. Each cell is one file in this folder. A file begins with the equations of its
cell and is named after the cell.

Modules in reading order: gru, lstm, norm_gru, norm_lstm.
"""

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any, Literal

from nmt.model.layers.recurrence import Recurrent

NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))
"""Names of all recurrent cells, which are the names of the modules in this package."""

if TYPE_CHECKING:
    CellName = str
else:
    CellName = Literal[NAMES]


def cell_class(name: CellName) -> type[Recurrent]:
    """Returns the layer class of a recurrent cell: the only subclass of `Recurrent` in the cell's
    file.

    name: name of the recurrent cell, such as "gru"
    """
    module = importlib.import_module(f"{__name__}.{name}")
    classes = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Recurrent)
        and value.__module__ == module.__name__
    ]
    if len(classes) != 1:
        raise ValueError(
            f"cell={name}: {module.__file__} must define one subclass of Recurrent, not "
            f"{len(classes)}"
        )
    return classes[0]


def recurrent(name: CellName, *sizes: int, **options: Any) -> Recurrent:
    """Creates a recurrent layer with the given cell.

    name: name of the recurrent cell, such as "gru"
    sizes, options: positional and keyword arguments of `Recurrent`
    """
    return cell_class(name)(*sizes, **options)
