"""Fusion of element-wise operations on GPUs.

A GPU finishes an element-wise operation on the small tensors of a time step before the next kernel
starts. `torch.compile` joins the operations of a function into one or two kernels, in the forward
and in the backward pass. The compilation takes several seconds, so functions are compiled only
where kernels are recorded (capture.py).
"""

import contextlib
import contextvars
import functools
import logging
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

log = logging.getLogger(__name__)
_is_fusing: contextvars.ContextVar[bool] = contextvars.ContextVar("is_fusing", default=False)


@contextlib.contextmanager
def fusing() -> Iterator[None]:
    """Context manager inside which functions with the decorator `fused` are compiled on GPUs."""
    token = _is_fusing.set(True)
    try:
        yield
    finally:
        _is_fusing.reset(token)


@functools.cache
def _compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    import torch._inductor.config as settings

    # Ctrl-C would end processes that compile, and the compilation would wait for them forever.
    settings.compile_threads = 1
    return torch.compile(function, dynamic=True)


def fused(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Decorator for functions of tensors with element-wise operations, sums and no state.

    Inside `fusing`, the function is compiled for tensors on a GPU. If the compilation fails, for
    example because no C compiler is installed, the reason is logged and the function is called as
    it is.
    """
    failures: list[str] = []

    @functools.wraps(function)
    def call(*tensors: Tensor | None) -> Tensor:
        is_on_gpu = isinstance(tensors[0], Tensor) and tensors[0].is_cuda
        if not _is_fusing.get() or not is_on_gpu or failures:
            return function(*tensors)
        try:
            return _compiled(function)(*tensors)  # type: ignore[no-any-return]
        except torch._dynamo.exc.TorchDynamoException as error:
            # The second line has the cause.
            failures.append(" ".join(str(error).strip().split("\n")[:2]))
            log.info("capture: %s is not compiled (%s)", function.__name__, failures[0])
            return function(*tensors)

    return call
