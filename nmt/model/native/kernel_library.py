"""Compilation and loading of the C++ extension.

The library is compiled on first use, stored in the cache folder and loaded with ctypes. Its
functions take plain pointers, need no PyTorch headers, and compile in a few seconds.
"""

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shlex
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.foundation.errors import UserError
from nmt.storage.cache import build_once, cache_folder

log = logging.getLogger(__name__)
SWITCH = "NMT_NATIVE"
"""Environment variable that disables the C++ extension if set to 0."""
LIBRARY = "library.so"
"""Name of the compiled library in its cache folder."""
FLAGS = [
    *("-std=c++17", "-O3", "-march=native", "-fopenmp", "-fPIC", "-shared"),
    *("-fno-math-errno", "-fno-trapping-math"),
    *(["-mprefer-vector-width=512"] if platform.machine() == "x86_64" else []),
]
"""Compiler options. Vectorisation needs -fno-math-errno and -fno-trapping-math, both of which
preserve the semantics of NaN and infinity."""
TYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
"""Supported data types, each with the suffix of the names of its C++ functions."""


def usable(*tensors: Tensor) -> bool:
    """Returns whether the C++ extension is available and supports the device and dtype of all
    tensors and, under autocast on the CPU, the autocast dtype. Returns False during ONNX export and
    compilation by torch.compile."""
    if torch.onnx.is_in_onnx_export() or torch.compiler.is_compiling():
        return False
    if torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") not in TYPES:
        return False
    fits = all(tensor.device.type == "cpu" and tensor.dtype in TYPES for tensor in tensors)
    return fits and library() is not None


def call(name: str, *arguments: Tensor | float | None) -> None:
    """Calls a function of the C++ library by name. Tensors are passed as pointers, None as a null
    pointer."""
    converted = [
        ctypes.c_void_p(argument.data_ptr())
        if isinstance(argument, Tensor)
        else _CONVERTED[type(argument)](argument)
        for argument in arguments
    ]
    getattr(library(), name)(*converted)


def first_derivatives(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of the backward method of an autograd function without second derivatives. With
    create_graph=True, the method raises RuntimeError instead of returning wrong gradients."""

    @functools.wraps(backward)
    def checked(ctx: Any, *gradients: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "create_graph=True: the C++ extension and the fused cross-entropy have no second "
                f"derivatives; set {SWITCH}=0, or compute the loss from log-probabilities"
            )
        return backward(ctx, *gradients)

    return checked


_CONVERTED: dict[type, Any] = {
    type(None): ctypes.c_void_p,
    bool: ctypes.c_bool,
    int: ctypes.c_int64,
    float: ctypes.c_float,
}


@functools.cache
def library() -> ctypes.CDLL | None:
    """Returns the loaded C++ library. If the library is disabled or cannot be compiled, logs the
    reason once and returns None."""
    if os.environ.get(SWITCH) == "0":
        log.info("%s=0: the C++ extension is disabled, so training is slower", SWITCH)
        return None
    try:
        return ctypes.CDLL(str(_compiled(shlex.split(os.environ.get("CXX") or "c++"))))
    except (subprocess.SubprocessError, OSError, UserError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).partition("\n")[0]
        # A UserError is about the cache folder.
        problem = "cannot be used" if isinstance(error, UserError) else "cannot be compiled"
        log.warning(
            "C++ extension: %s (%s); training is slower without the extension", problem, reason
        )
        return None


def _compiled(compiler: Sequence[str]) -> Path:
    """Returns the path of the compiled library. Compiles the library if the cache has none for the
    current sources, compiler and processor.

    compiler: words of the command that starts the compiler
    """
    folder = Path(__file__).parent
    sources = [str(path) for path in sorted(folder.glob("*.cpp"))]
    contents = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.[ch]*"))]
    # Predefined macros identify compiler and processor: machines may share a cache folder.
    macros = _output(*compiler, *FLAGS, "-dM", "-E", "-x", "c++", os.devnull)
    identity = "\0".join((*contents, *FLAGS, macros, torch.__version__))
    cached = cache_folder() / f"native-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"

    def compile_into(unfinished: Path) -> None:
        log.info(
            "compiling the C++ extension, which takes a few seconds and is done only once "
            "(%s=0 disables the extension)",
            SWITCH,
        )
        # OpenMP is the library that PyTorch has loaded; a second one would start its own threads.
        openmp = (Path(torch.__file__).parent / "lib").glob("lib[gi]omp*.so*")
        linked = ("-Wl,--as-needed", *map(str, openmp))
        _output(*compiler, *FLAGS, *sources, *linked, "-o", str(unfinished / LIBRARY))

    build_once(cached, "C++ extension", compile_into)
    return cached / LIBRARY


def _output(*command: str) -> str:
    """Runs a command and returns its output (stdout). Raises OSError if the command cannot be
    started, or SubprocessError with the error output (stderr) if the command fails.
    """
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
