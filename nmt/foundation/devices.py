"""Selects the torch device from the setting `device` and the available hardware."""

import platform
import re
from contextlib import suppress
from pathlib import Path
from typing import Literal

import torch

from nmt.foundation.errors import UsageError, UserError, first_line
from nmt.foundation.ranks import Ranks

Precision = Literal["float32", "bfloat16", "float16"]
"""Floating-point format of matrix multiplications in training."""


def device_of(ranks: Ranks, name: str) -> torch.device:
    """Returns the torch device of one distributed rank; each rank on CUDA gets its own GPU.

    Raises UserError if the device is not available or the machine has fewer GPUs than ranks.
    """
    device = find_device(name)
    if not ranks.several or device.type != "cuda":
        return device
    gpus = torch.cuda.device_count()
    if device.index is not None:
        raise UsageError(
            f"device={name}: {ranks.count} processes would share one GPU; set device=cuda to "
            "give each process a GPU of its own"
        )
    if ranks.local >= gpus:
        raise UserError(
            f"rank {ranks.number} has no GPU: this machine has {gpus} GPUs, but torchrun started "
            f"more processes. Use --nproc-per-node={gpus} or device=cpu"
        )
    # NCCL uses the current CUDA device of each process.
    torch.cuda.set_device(ranks.local)
    return torch.device("cuda", ranks.local)


def find_device(name: str) -> torch.device:
    """Returns the torch device with the given name; `auto` selects the GPU if available, else the
    CPU.

    Raises UserError if the device is not available.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(1, device=name).item()  # also refuses the device meta, which has no values
    except (RuntimeError, AssertionError) as error:
        # For an unknown name, PyTorch's message lists every backend, so nmt raises its own message.
        reason = first_line(error)
        why = "" if reason.startswith("Expected one of") else f" ({reason})"
        raise UsageError(
            f"device={name}: not available on this machine{why}. Use auto, cpu, cuda, or cuda:1"
        ) from None
    return torch.device(name)


def processor_name(device: torch.device) -> str:
    """Returns the name of the processor or GPU that computes for a torch device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    with suppress(OSError):  # a system without /proc
        if match := re.search(r"^model name\s*: (.+)", Path("/proc/cpuinfo").read_text(), re.M):
            return match[1]
    return platform.processor() or platform.machine()
