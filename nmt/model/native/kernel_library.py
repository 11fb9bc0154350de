"""The library of the kernels: compiled when first needed, kept in the cache folder, loaded with ctypes.

The kernels are plain functions on pointers, so they need no header of PyTorch and compile in a few seconds.
"""

import ctypes
import functools
import hashlib
import logging
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.storage.cache import cache_folder

log = logging.getLogger(__name__)
SWITCH = "NMT_NATIVE"
"""Environment variable; 0 switches the kernels off."""
FLAGS = [
    *("-std=c++17", "-O3", "-march=native", "-fopenmp", "-fPIC", "-shared"),
    *("-fno-math-errno", "-fno-trapping-math"),
    *(["-mprefer-vector-width=512"] if platform.machine() == "x86_64" else []),
]
"""Options of the compiler. Vectors need the two about mathematics; NaN and infinity keep their meaning."""
TYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
"""Suffixes of the functions, by the type of their numbers."""


def usable(*tensors: Tensor) -> bool:
    """Whether the kernels can compute with these tensors, and are there."""
    if torch.onnx.is_in_onnx_export() or torch.compiler.is_compiling():
        return False
    fits = all(tensor.device.type == "cpu" and tensor.dtype in TYPES for tensor in tensors)
    return fits and library() is not None


def call(name: str, *arguments: Tensor | float | None) -> None:
    """Calls a function of the library. Tensors are passed as pointers, None as a null pointer."""
    converted = [
        ctypes.c_void_p(argument.data_ptr())
        if isinstance(argument, Tensor)
        else _CONVERTED[type(argument)](argument)
        for argument in arguments
    ]
    getattr(library(), name)(*converted)


_CONVERTED: dict[type, Any] = {
    type(None): ctypes.c_void_p,
    bool: ctypes.c_bool,
    int: ctypes.c_int64,
    float: ctypes.c_float,
}


@functools.cache
def library() -> ctypes.CDLL | None:
    """The loaded library; None, after one line in the log, if it is switched off or cannot be compiled."""
    if os.environ.get(SWITCH) == "0":
        log.info("%s=0: training runs without native kernels", SWITCH)
        return None
    try:
        return ctypes.CDLL(str(_compiled(os.environ.get("CXX", "c++"))))
    except (subprocess.SubprocessError, OSError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).partition("\n")[0]
        log.warning("native kernels not compiled (%s): training is slower without them", reason)
        return None


def _compiled(compiler: str) -> Path:
    """Path of the compiled library of these sources, this compiler and this processor."""
    folder = Path(__file__).parent
    sources = [str(path) for path in sorted(folder.glob("*.cpp"))]
    contents = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.[ch]*"))]
    # Macros of compiler and processor: a cache folder may be shared by several machines.
    macros = _output(compiler, *FLAGS, "-dM", "-E", "-x", "c++", os.devnull)
    identity = "\0".join((*contents, *FLAGS, macros, torch.__version__))
    path = cache_folder() / "native" / f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.so"
    if not path.exists():
        log.info("compiling native kernels: some seconds, once (%s=0: without)", SWITCH)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = f"{path}.{os.getpid()}"
        _output(compiler, *FLAGS, *sources, *_openmp(), "-o", unfinished)
        os.replace(unfinished, path)
    return path


def _openmp() -> list[str]:
    """The OpenMP library that PyTorch has loaded: a second one would start threads of its own."""
    libraries = (Path(torch.__file__).parent / "lib").glob("lib[gi]omp*.so*")
    return ["-Wl,--as-needed", *map(str, libraries)]


def _output(*command: str) -> str:
    """Output of a command. Raises OSError, or SubprocessError with its messages."""
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
