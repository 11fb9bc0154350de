"""Networks without initial values, for checks and for weights that are loaded."""

from collections.abc import Callable
from typing import Any

from torch.overrides import TorchFunctionMode


class Uninitialized(TorchFunctionMode):
    """Context in which modules are built on the device "meta" without initial values.

    Initial values take longer than everything else: orthogonal matrices are decompositions, and the
    first random number on "meta" imports half of PyTorch.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = func.__name__
        if name == "linalg_qr":
            return args[0], args[0]
        if name.endswith("_") and not name.endswith("__") and name != "requires_grad_":
            return args[0] if args else kwargs["tensor"]  # changes a tensor in place
        return func(*args, **(kwargs or {}))
