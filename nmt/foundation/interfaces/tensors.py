"""Functions on nested values: tuples, mappings and dataclasses that contain tensors."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

Record = TypeVar("Record")


def map_tensors(value: Record, change: Callable[[Tensor], Tensor]) -> Record:
    """Returns a copy of a nested value with a function applied to every tensor.

    value: a tensor, or nested tuples, mappings and dataclasses that contain tensors; values of
        other types are kept
    change: function from a tensor to its replacement
    """
    result: Any = value
    if isinstance(value, Tensor):
        result = change(value)
    elif isinstance(value, tuple):
        result = tuple(map_tensors(item, change) for item in value)
    elif isinstance(value, Mapping):
        result = {key: map_tensors(item, change) for key, item in value.items()}
    elif is_dataclass(value):
        changed = {f.name: map_tensors(getattr(value, f.name), change) for f in fields(value)}
        result = replace(value, **changed)  # type: ignore[type-var]
    return result  # type: ignore[no-any-return]


def to_device(record: Record, device: torch.device) -> Record:
    """Returns a copy of a nested value with all tensors moved to a device.

    Tensors reach a GPU through pinned memory, so that the host does not wait for the copy.
    """
    return map_tensors(record, lambda tensor: _on_device(tensor, device))


def _on_device(tensor: Tensor, device: torch.device) -> Tensor:
    if tensor.is_cpu and device.type == "cuda" and not tensor.is_pinned():
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=device.type == "cuda")


def to_host(*tensors: Tensor) -> list[np.ndarray]:
    """Returns tensors as NumPy arrays. All tensors on the GPU are copied together, so that the host
    waits only once.

    tensors: tensors on the CPU or on one GPU, with floating-point numbers or integers below 2⁵³
    """
    on_gpu = [tensor for tensor in tensors if not tensor.is_cpu]
    if not on_gpu:
        return [tensor.numpy() for tensor in tensors]
    together = torch.cat([tensor.double().flatten() for tensor in on_gpu]).cpu()
    parts = iter(together.split([tensor.numel() for tensor in on_gpu]))
    return [
        tensor.numpy() if tensor.is_cpu else next(parts).view(tensor.shape).to(tensor.dtype).numpy()
        for tensor in tensors
    ]


def select_rows(record: Record, rows: Int[Tensor, " n"]) -> Record:
    """Returns a copy of a nested value with the given rows of every tensor.

    rows: row numbers, on any device
    """

    def selected(tensor: Tensor) -> Tensor:
        nonlocal rows
        rows = to_device(rows, tensor.device)  # copied once
        return tensor.index_select(0, rows)

    return map_tensors(record, selected)
