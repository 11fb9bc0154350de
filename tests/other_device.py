"""A second device for tests, also on machines without one.

Inside `other_device()`, the device "cuda" exists. With a GPU, it is the GPU, and PyTorch reports each operation that lets
the host wait for it. Without a GPU, its tensors are `DeviceTensor`: wrappers around tensors on the CPU that report the
device "cuda:0", so that the code for GPUs runs; a computation with tensors of both devices raises `MixedDevices`.
Everything that lets the host wait for the device is recorded, with the line of nmt that caused it.
"""

import contextlib
import importlib
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

DEVICE = torch.device("cuda", 0)
HAS_GPU = torch.cuda.is_available()
simulated = pytest.mark.skipif(HAS_GPU, reason="tests the simulated device")
"""Mark of tests of the simulation."""
OPTIMIZER = importlib.import_module("torch.optim.optimizer")
aten = torch.ops.aten
WAITING = {
    aten._local_scalar_dense.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten.equal.default,
    aten.is_nonzero.default,
    aten._unique2.default,
    aten.unique_dim.default,
    aten.multinomial.default,
    aten.repeat_interleave.Tensor,
}
"""Operators whose results, or the shapes of whose results, the host reads: item(), bool(), nonzero() …"""
HOST_ALLOWED = (aten.copy_.default, aten._to_copy.default, aten._pack_padded_sequence.default)
"""Operators that read tensors of the host beside those of the device."""


class MixedDevices(RuntimeError):
    """Error: an operator got tensors of both devices."""


@dataclass
class Waits:
    """Synchronisations so far: (name, file:line in nmt) → count."""

    counts: Counter = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def add(self, name: str) -> None:
        if CUDAGraph.current is not None:
            raise RuntimeError(f"operation not permitted when stream is capturing: {name}")
        frames = [frame for frame in traceback.extract_stack() if "/nmt/" in frame.filename]
        place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "test"
        self.counts[name, place] += 1

    @contextlib.contextmanager
    def during(self):
        """Yields the synchronisations of a block alone."""
        block = Waits()
        outer, self.counts = self.counts, block.counts
        try:
            yield block
        finally:
            self.counts = outer + block.counts


waits = Waits()


class CUDAGraph:
    """Operators of the device in the order in which they were recorded, as a CUDA graph records kernels.

    A replay runs them on the memory of the recording. No Python code of the recorded function runs again: what it
    computed on the host is frozen.
    """

    current = None
    """The graph that records at the moment."""
    is_replaying = False

    def __init__(self):
        self.calls = []

    def note(self, func, args, kwargs, result):
        if torch.Tag.inplace_view not in getattr(func, "tags", ()):  # no kernel
            self.calls.append((func, args, kwargs, result))

    def replay(self):
        CUDAGraph.is_replaying = True
        try:
            self._run()
        finally:
            CUDAGraph.is_replaying = False

    def _run(self):
        for func, args, kwargs, result in self.calls:
            inputs = {x.untyped_storage().data_ptr() for x in _tensors((args, kwargs))}
            new = func(*args, **kwargs)
            for old, value in zip(_tensors(result), _tensors(new), strict=True):
                if old.untyped_storage().data_ptr() not in inputs:  # neither a view nor in place
                    old.copy_(value)


@contextlib.contextmanager
def _recorded(graph, pool=None, capture_error_mode="global"):
    assert CUDAGraph.current is None
    CUDAGraph.current = graph
    try:
        yield
    finally:
        CUDAGraph.current = None


def _note(func, args, kwargs, result):
    if CUDAGraph.current is not None:
        CUDAGraph.current.note(func, args, kwargs, result)
    return result


def _tensors(value):
    """The tensors in lists, tuples and dictionaries."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [tensor for item in value for tensor in _tensors(item)]


def _mapped(function, value):
    """The value with every tensor in lists, tuples and dictionaries changed; torch's tree_map is several times slower."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, dict):
        return {key: _mapped(function, item) for key, item in value.items()}
    if not isinstance(value, (list, tuple)):
        return value
    items = [_mapped(function, item) for item in value]
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


class Stream:
    """A stream of the device, which is never busy."""

    def wait_stream(self, other):
        pass


def bare(value):
    """The value with every tensor moved to the host, without a recorded wait."""
    if HAS_GPU:
        return _mapped(_downloaded, value)
    return _mapped(lambda x: x.elem if isinstance(x, DeviceTensor) else x, value)


def _downloaded(x):
    with _unobserved():
        return x.detach().clone().cpu() if x.is_cuda else x


def on_device(value):
    """The value with every tensor moved to the device."""
    if HAS_GPU:
        with _unobserved():
            return _mapped(lambda x: x.to(DEVICE), value)
    return _mapped(lambda x: DeviceTensor(x) if type(x) is torch.Tensor else x, value)


class DeviceTensor(torch.Tensor):
    """A tensor on the device."""

    @staticmethod
    def __new__(cls, elem):
        with torch.inference_mode(False):  # the mode allows no subclasses
            return torch.Tensor._make_wrapper_subclass(
                cls,
                elem.size(),
                strides=elem.stride(),
                storage_offset=elem.storage_offset(),
                dtype=elem.dtype,
                layout=elem.layout,
                device=elem.device,
            )

    def __init__(self, elem):
        self.elem = elem.detach()

    device = property(lambda self: DEVICE)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)
    __torch_function__ = torch._C._disabled_torch_function_impl

    def __repr__(self, *, tensor_contents=None):
        return f"DeviceTensor({tuple(self.shape)}, {self.dtype})"

    def tolist(self):
        waits.add("tolist")
        return self.elem.tolist()

    def numpy(self, *, force=False):
        raise TypeError("can't convert a tensor on the device to numpy")

    def __array__(self, *arguments, **options):
        raise TypeError("can't convert a tensor on the device to numpy")

    def data_ptr(self):
        raise RuntimeError("the host cannot read the memory of the device")

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = _tensors((args, kwargs))
        on_host = [x for x in tensors if not isinstance(x, DeviceTensor) and x.dim()]
        if on_host and func not in HOST_ALLOWED:
            raise MixedDevices(
                f"{func} got tensors of the host of shapes {[tuple(x.shape) for x in on_host]}"
            )
        if func in WAITING or _reads_mask(func, args):
            waits.add(func.overloadpacket.__name__)
        if func is aten.copy_.default:
            return _copy_(*args, **kwargs)
        bare_args, bare_kwargs = bare(args), bare(kwargs)
        result = _note(func, bare_args, bare_kwargs, func(*bare_args, **bare_kwargs))
        if func is aten._pack_padded_sequence.default:
            return DeviceTensor(result[0]), result[1]
        return return_and_correct_aliasing(func, args, kwargs, on_device(result))


def _reads_mask(func, args) -> bool:
    """Whether indices contain a Boolean mask, whose true entries are counted on the host."""
    if func not in (aten.index.Tensor, aten.index_put_.default, aten.index_put.default):
        return False
    masks = [x for x in args[1] if x is not None and x.dtype in (torch.bool, torch.uint8)]
    fills = func is not aten.index.Tensor and args[2].numel() == 1  # computed as masked_fill
    return bool(masks) and not fills


def _copy_(target, source, non_blocking=False):
    if isinstance(target, DeviceTensor):
        if not isinstance(source, DeviceTensor) and source.dim():
            _check_upload(source, non_blocking)
        _note(aten.copy_.default, (target.elem, bare(source)), {}, target.elem.copy_(bare(source)))
    else:
        waits.add("copy to host")
        target.copy_(bare(source))
    return target


def _check_upload(source, non_blocking) -> None:
    if CUDAGraph.current is not None:
        raise RuntimeError("a recording would repeat this copy of a value of the host")
    if not (non_blocking and getattr(source, "pinned", False)):
        waits.add("copy to device, not pinned and non_blocking")


class EngineZeros(TorchDispatchMode):
    """Zeros that the autograd engine makes for a missing gradient are on the device, as on a GPU.

    typed: whether a program, and not the engine, calls torch.zeros
    """

    typed = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func is not aten.zeros.default or self.typed or CUDAGraph.is_replaying:
            return result
        return DeviceTensor(_note(func, args, kwargs or {}, result))


class Conversions(TorchFunctionMode):
    """Gives every function of torch the device "cuda"."""

    def __init__(self, engine):
        super().__init__()
        self.engine = engine

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name == "pin_memory":
            result = args[0].clone()
            result.pinned = True
            return result
        if name == "is_pinned":
            return getattr(args[0], "pinned", False)
        if name == "__setitem__" and _assigns_number(*args):
            waits.add("assignment of a number")  # as was seen on a GPU
        if name == "new_tensor" and isinstance(args[0], DeviceTensor):
            waits.add("tensor of values of the host")
            return DeviceTensor(args[0].elem.new_tensor(*args[1:], **kwargs))
        if name in ("cpu", "cuda", "to") and isinstance(args[0], torch.Tensor):
            return self._moved(name, args, kwargs)
        if func is torch.zeros:
            self.engine.typed = True
            try:
                return self._made(func, args, kwargs)
            finally:
                self.engine.typed = False
        return self._made(func, args, kwargs)

    def _made(self, func, args, kwargs):
        if kwargs.get("device") is None:
            return func(*args, **kwargs)
        device = torch.device(kwargs["device"])
        kwargs["device"] = "cpu"
        if device.type != "cuda":
            return func(*args, **kwargs)
        if func in (torch.tensor, torch.as_tensor) and not _is_number(args[0]):
            waits.add("tensor of values of the host")
        bare_args, bare_kwargs = bare(args), bare(kwargs)
        result = _note(func, bare_args, bare_kwargs, func(*bare_args, **bare_kwargs))
        required = result.requires_grad
        return DeviceTensor(result.detach()).requires_grad_(required)

    def _moved(self, name, args, kwargs):
        tensor, *rest = args
        if name != "to":
            rest = [name]
        elif rest and isinstance(rest[0], torch.Tensor):
            rest[:1] = [rest[0].device, rest[0].dtype]
        copy = kwargs.pop("copy", False)
        device, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*rest, **kwargs)
        is_here = isinstance(tensor, DeviceTensor)
        to_device = is_here if device is None else device.type == "cuda"
        options = {} if memory_format is None else {"memory_format": memory_format}
        if dtype is not None or options or (copy and to_device == is_here):
            dtype = dtype or tensor.dtype
            tensor = torch.Tensor.to(tensor, dtype=dtype, copy=copy, **options)
        if to_device == is_here:
            return tensor
        return _Upload.apply(tensor, non_blocking) if to_device else _Download.apply(tensor)


def _grouped(group):
    """The function of PyTorch that groups tensors by device, with the device that they report."""

    def by_reported_device(lists, *rest):
        groups = group(lists, *rest)
        here = any(isinstance(x, DeviceTensor) for x in lists[0])
        return {(DEVICE if here else device, kind): g for (device, kind), g in groups.items()}

    return by_reported_device


def _assigns_number(target, index, value) -> bool:
    """Whether a number is assigned to places that are neither slices nor selected by a mask."""
    is_mask = isinstance(index, torch.Tensor) and index.dtype == torch.bool
    return _is_number(value) and not is_mask and not isinstance(index, tuple)


def _is_number(value) -> bool:
    return isinstance(value, (int, float, bool))


class _Upload(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, non_blocking):
        _check_upload(tensor, non_blocking)
        return DeviceTensor(tensor.detach().clone())

    @staticmethod
    def backward(ctx, d):
        return d.elem, None


class _Download(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor):
        waits.add("copy to host")
        return tensor.elem.clone()

    @staticmethod
    def backward(ctx, d):
        return DeviceTensor(d)


def _as_cpu(kind):
    """A function of torch.amp that reads the device "cuda" as the CPU, which computes for it."""
    return lambda device="cpu", *rest: kind("cpu" if device == "cuda" else device, *rest)


class _Autocast(torch.amp.autocast_mode.autocast):
    def __init__(self, device_type, *arguments, **options):
        super().__init__("cpu" if device_type == "cuda" else device_type, *arguments, **options)


def other_device():
    """Context manager inside which the device "cuda" exists. Yields the record of synchronisations."""
    return _gpu() if HAS_GPU else _simulation()


@contextlib.contextmanager
def _unobserved():
    """Context manager inside which no wait for the GPU is recorded."""
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("default")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


@contextlib.contextmanager
def _gpu():
    """The GPU, with exact products, and with a record of PyTorch's warnings of synchronisations."""

    def note(message, *rest):
        if "synchronizing CUDA operation" in str(message):
            waits.add("synchronisation")

    waits.counts = Counter()
    exact = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = note
            torch.cuda.set_sync_debug_mode("warn")
            yield waits
    finally:
        torch.cuda.set_sync_debug_mode("default")
        torch.backends.cudnn.allow_tf32 = exact


@contextlib.contextmanager
def _simulation():
    """The simulated device."""
    changes = {
        (torch, "autocast"): _Autocast,
        (torch, "is_autocast_enabled"): _as_cpu(torch.is_autocast_enabled),
        (torch, "get_autocast_dtype"): _as_cpu(torch.get_autocast_dtype),
        (torch.cuda.amp.common, "amp_definitely_not_available"): lambda: False,
        (torch.cuda, "is_bf16_supported"): lambda **_: True,
        (torch.backends.cudnn, "is_acceptable"): lambda _: False,
        (torch.nn.utils.clip_grad, "_group_tensors_by_device_and_dtype"): _grouped(
            torch.nn.utils.clip_grad._group_tensors_by_device_and_dtype
        ),
        (OPTIMIZER, "_group_tensors_by_device_and_dtype"): _grouped(
            OPTIMIZER._group_tensors_by_device_and_dtype
        ),
        (torch, "compile"): lambda function, **_: function,
        (torch.cuda, "CUDAGraph"): CUDAGraph,
        (torch.cuda, "graph"): _recorded,
        (torch.cuda, "graph_pool_handle"): lambda: "pool",
        (torch.cuda, "Stream"): Stream,
        (torch.cuda, "device"): lambda _: contextlib.nullcontext(),
        (torch.cuda, "current_stream"): Stream,
        (torch.cuda, "stream"): lambda _: contextlib.nullcontext(),
    }
    changes[torch.amp.grad_scaler, "amp_definitely_not_available"] = lambda: False
    saved = {key: getattr(*key) for key in changes if hasattr(*key)}
    swaps = torch.__future__.get_swap_module_params_on_conversion()
    waits.counts = Counter()
    try:
        for key in saved:
            setattr(*key, changes[key])
        torch.__future__.set_swap_module_params_on_conversion(True)
        engine = EngineZeros()
        with Conversions(engine), engine:
            yield waits
    finally:
        torch.__future__.set_swap_module_params_on_conversion(swaps)
        for key, value in saved.items():
            setattr(*key, value)
