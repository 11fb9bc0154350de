"""The device and the precision to compute with: those asked for, if the hardware has them."""

from __future__ import annotations

import logging
from typing import TypeVar

import torch

from nmt.foundation.errors import UserError
from nmt.foundation.ranks import Ranks
from nmt.model.layers.packed import GenerationPrecision, int8_is_native
from nmt.training.trainer import Precision

log = logging.getLogger(__name__)


def device_of(ranks: Ranks, name: str) -> torch.device:
    """As `find_device`, for one of several processes: each has a GPU of its own. Raises UserError if there are too few."""
    found = find_device(name)
    if not ranks.several or found.type != "cuda":
        return found
    there = torch.cuda.device_count()
    if found.index is not None:
        raise UserError(
            f"device={name}: {ranks.count} processes would share one GPU; give cuda, and each takes its own"
        )
    if ranks.local >= there:
        raise UserError(
            f"rank {ranks.number} has no GPU: this machine has {there}, and torchrun has started more processes. Use "
            f"--nproc-per-node={there}, or device=cpu"
        )
    torch.cuda.set_device(ranks.local)
    return torch.device("cuda", ranks.local)


def find_device(name: str) -> torch.device:
    """auto: the GPU if there is one. Raises UserError if the device cannot be used."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        why = "" if str(error).startswith("Expected one of") else f" ({str(error).splitlines()[0]})"
        raise UserError(
            f"device={name} cannot be used here{why}. Use auto, cpu, cuda, or cuda:1 …"
        ) from None
    return torch.device(name)


AnyPrecision = TypeVar("AnyPrecision", Precision, GenerationPrecision)


def usable_precision(name: AnyPrecision, where: torch.device) -> AnyPrecision:
    """The precision itself, or float32, with a warning, where the processor would only emulate it."""
    if name == "float32":
        return name
    on_gpu = {
        "float16": lambda: True,
        "bfloat16": lambda: torch.cuda.is_bf16_supported(including_emulation=False),
    }
    on_cpu = {
        "bfloat16": lambda: torch.cpu.get_capabilities().get("avx512_bf16"),
        "int8": int8_is_native,
    }
    native = (on_gpu if where.type == "cuda" else on_cpu).get(name, lambda: False)
    if native():
        return name
    log.warning("precision %s is not native to this processor: running in float32", name)
    return "float32"
