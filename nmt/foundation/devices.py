"""The device to compute on: the one that is set, if the hardware has it."""

from typing import Literal

import torch

from nmt.foundation.errors import UserError, first_line
from nmt.foundation.ranks import Ranks

Precision = Literal["float32", "bfloat16", "float16"]
"""Number formats of matrix products in training."""


def device_of(ranks: Ranks, name: str) -> torch.device:
    """The device of this rank: with several ranks on GPUs, each has a GPU of its own.

    Raises UserError if the device cannot be used, or if there are fewer GPUs than ranks.
    """
    device = find_device(name)
    if not ranks.several or device.type != "cuda":
        return device
    gpus = torch.cuda.device_count()
    if device.index is not None:
        raise UserError(
            f"device={name}: {ranks.count} processes would share one GPU; give cuda, and each "
            "takes its own"
        )
    if ranks.local >= gpus:
        raise UserError(
            f"rank {ranks.number} has no GPU: this machine has {gpus}, and torchrun has started "
            f"more processes. Use --nproc-per-node={gpus}, or device=cpu"
        )
    # nccl takes the current device of each process.
    torch.cuda.set_device(ranks.local)
    return torch.device("cuda", ranks.local)


def find_device(name: str) -> torch.device:
    """The torch device of a name; `auto` is the GPU if there is one, else the CPU.

    Raises UserError if the device cannot be used.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        # PyTorch lists all kinds of devices for an unknown name; the common ones will do.
        reason = first_line(error)
        why = "" if reason.startswith("Expected one of") else f" ({reason})"
        raise UserError(
            f"device={name} cannot be used here{why}. Use auto, cpu, cuda, or cuda:1 …"
        ) from None
    return torch.device(name)
