"""Choice of the matrix multiplication precision, depending on the processor."""

import logging
from typing import TypeVar

import torch

from nmt.foundation.devices import Precision
from nmt.model.layers.packed import GenerationPrecision, int8_is_native

log = logging.getLogger(__name__)
AnyPrecision = TypeVar("AnyPrecision", Precision, GenerationPrecision)


def usable_precision(name: AnyPrecision, device: torch.device) -> AnyPrecision:
    """Returns the configured precision, or float32 if the device would only emulate that
    precision. Logs a warning if the result is float32 instead of the configured precision.

    name: configured precision
    device: device of the network
    """
    if name == "float32" or _is_native(name, device):
        return name
    log.warning("precision %s has no hardware support on this processor: running in float32", name)
    return "float32"


def fastest_precision(device: torch.device) -> GenerationPrecision:
    """Returns the precision with which translation is fastest on a device: int8 on a CPU, bfloat16
    on a GPU, float32 on a device that would only emulate that precision."""
    name: GenerationPrecision = "bfloat16" if device.type == "cuda" else "int8"
    return name if _is_native(name, device) else "float32"


def _is_native(name: str, device: torch.device) -> bool:
    if device.type == "cuda":
        if name == "bfloat16":
            return torch.cuda.is_bf16_supported(including_emulation=False)
        return name == "float16"
    if name == "bfloat16":
        return bool(torch.cpu.get_capabilities().get("avx512_bf16"))
    return name == "int8" and int8_is_native()
