"""Construction of networks without initial weights, for checks and for loading saved weights."""

from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode


class Uninitialized(TorchFunctionMode):
    """Context manager that builds modules on the device "meta" and skips weight initialisation.

    Initialisation dominates the construction time, because orthogonal matrices need QR
    decompositions, and the first random tensor on "meta" makes PyTorch import many modules.
    Only operations in place are skipped. Constructors should use them, because operations that
    return a new tensor make PyTorch import these modules, too.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = func.__name__
        if name == "linalg_qr":
            return args[0], args[0]
        if name.endswith("_") and not name.endswith("__") and name != "requires_grad_":
            return args[0] if args else kwargs["tensor"]  # the function changes a tensor in place
        return func(*args, **(kwargs or {}))
