"""Recording of a computation that is repeated on inputs with only a few different shapes.

On a GPU, a recording is a captured CUDA graph. A replay launches all kernels of the computation at
once, whereas Python would launch them one by one. The kernels read and write fixed memory, so the
caller copies new values into the inputs of the recording, and the outputs are valid until the next
replay.

On a CPU, a replay calls the function with the same inputs, and copies its results into the same
outputs. Recordings on a CPU are supported only for tests.
"""

import contextlib
import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from nmt.foundation.fusion import fusing
from nmt.foundation.interfaces import map_tensors

log = logging.getLogger(__name__)
Inputs = TypeVar("Inputs")
Outputs = TypeVar("Outputs")
LIMIT = 64
"""Maximum number of recordings of one function, which limits the memory of the recordings."""
WARM_UPS = 2
"""Number of warm-up calls of a function before its CUDA graph is captured.

During warm-up, libraries allocate workspaces and select algorithms, which a capture does not allow.
"""


def bucket(size: int) -> int:
    """Returns a size rounded up to 1, 2, 4 or 8, or to a multiple of 8 (sizes up to 64), of 16 (up
    to 128), of 32 (up to 256), and so on.

    Above 32, at most a fifth of the rounded size is padding.
    """
    power = 1 << max(size - 1, 0).bit_length()  # next power of two
    step = max(min(power, 8), power // 8)
    return -(-size // step) * step


def tensors_of(value: Any) -> list[Tensor]:
    """Returns all tensors in nested tuples, mappings and dataclasses, in a fixed order."""
    tensors: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor

    map_tensors(value, note)
    return tensors


def shapes_of(value: Any) -> tuple[Any, ...]:
    """Returns the shape and dtype of every tensor in nested tuples, mappings and dataclasses."""
    return tuple((tensor.shape, tensor.dtype) for tensor in tensors_of(value))


def copy_into(targets: Any, values: Any) -> None:
    """Copies the tensors of nested values into tensors of the same shapes."""
    for target, value in zip(tensors_of(targets), tensors_of(values), strict=True):
        target.copy_(value, non_blocking=True)


class Recording(Generic[Inputs, Outputs]):
    """Recording of a function for inputs of one shape.

    function: function of nested tensors; must not copy tensors to the host, e.g. with `.item()`
    inputs: nested tensors, copied to the memory that replays read
    pool: memory pool shared by CUDA graphs that are never replayed concurrently; None on a CPU
    """

    def __init__(
        self, function: Callable[[Inputs], Outputs], inputs: Inputs, pool: Any = None
    ) -> None:
        self.function = function
        self.inputs = map_tensors(inputs, torch.clone)
        self.graph: torch.cuda.CUDAGraph | None = None
        if pool is None:
            self.outputs = map_tensors(function(self.inputs), torch.clone)
        else:
            self._capture(pool)

    @fusing()
    def _capture(self, pool: Any) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                self.function(self.inputs)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        # Other threads may use the GPU meanwhile.
        with torch.cuda.graph(self.graph, pool=pool, capture_error_mode="thread_local"):
            self.outputs = self.function(self.inputs)

    def replay(self) -> Outputs:
        """Replays the recording on the current contents of `inputs`, and returns the outputs. The
        outputs are valid until the next replay."""
        if self.graph is None:
            copy_into(self.outputs, self.function(self.inputs))
        else:
            self.graph.replay()
        return self.outputs


class Recordings(Generic[Inputs, Outputs]):
    """Recordings of one function, one for each shape of its inputs.

    function: function of nested tensors; must not copy tensors to the host, e.g. with `.item()`
    device: device of the computation
    unchanged: context manager in which a call of the function has no lasting effect
    """

    def __init__(
        self,
        function: Callable[[Inputs], Outputs],
        device: torch.device,
        unchanged: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
    ) -> None:
        self.function = function
        self.unchanged = unchanged
        self.device = device
        self.pool = torch.cuda.graph_pool_handle() if device.type == "cuda" else None
        self.recordings: dict[Any, Recording[Inputs, Outputs]] = {}
        self.has_failed = False

    def get(self, inputs: Inputs) -> Recording[Inputs, Outputs] | None:
        """Returns the recording for the shapes of the inputs, and creates it for a new shape.

        The caller copies the inputs into the recording. Returns None for a new shape if LIMIT
        recordings exist or a recording has failed; the reason is logged once.
        """
        key = shapes_of(inputs)
        if key in self.recordings:
            return self.recordings[key]
        if self.has_failed or len(self.recordings) >= LIMIT:
            self._note_failure(f"at most {LIMIT} batch shapes are recorded")
            return None
        try:
            # The current device is the device of new CUDA streams and graphs; -1 changes nothing.
            with self.unchanged(), torch.cuda.device(self.device if self.pool else -1):
                self.recordings[key] = Recording(self.function, inputs, self.pool)
        except RuntimeError as error:
            # The end of a capture raises a further error, which does not name the cause.
            cause = error.__context__ or error
            self._note_failure(str(cause).partition("\n")[0])
        return self.recordings.get(key)

    def _note_failure(self, reason: str) -> None:
        if not self.has_failed:
            log.info(
                "capture: batches whose shape is not recorded run without CUDA graphs, because %s",
                reason,
            )
        self.has_failed = True
