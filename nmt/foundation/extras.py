"""Imports of optional packages, and imports of functions on their first call.

If an optional package is missing, the error names the command that installs the package. Functions
of slow modules are imported on their first call, so that commands start quickly.
"""

import gc
import inspect
import pkgutil
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from nmt.foundation.errors import UserError

EXTRAS = {
    "matplotlib": ("plots", "pictures"),
    "tensorboard": ("tensorboard", "event files for TensorBoard"),
    "optuna": ("sweep", "sweeps that sample values from intervals"),
    "scipy": ("sweep", "significance tests between configurations over several seeds"),
    "wandb": ("wandb", "records of runs at Weights & Biases"),
    "mlflow": ("mlflow", "records of runs in MLflow"),
    "trackio": ("trackio", "records of runs in Trackio"),
    "PIL": ("pictures", "images"),
    "sklearn": ("pictures", "handwritten digits"),
    "onnx": ("export", "ONNX graphs"),
    "huggingface_hub": ("hub", "downloads of models from the Hugging Face Hub"),
    "starlette": ("serve", "servers"),
    "uvicorn": ("serve", "servers"),
    "prometheus_client": ("serve", "servers"),
    "ray": ("ray-data", "Ray tasks"),
    "datasets": ("hub", "Parquet files and data sets of the Hugging Face Hub"),
}
"""Maps each optional package to the pip extra of nmt that installs it, and to its purpose: a plural
noun phrase for messages, such as "images"."""
INSTALLED_AS = {
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "prometheus_client": "prometheus-client",
    "huggingface_hub": "huggingface-hub",
}
"""Distribution names on PyPI of packages whose import names differ."""


def installed(package: str) -> bool:
    """Returns whether a package can be imported."""
    return find_spec(package) is not None


def advice(*packages: str) -> str:
    """Returns a message that names missing packages, their purpose, and how to install them."""
    extras = ",".join(EXTRAS[package][0] for package in packages)
    purposes = " and ".join(EXTRAS[package][1] for package in packages)
    names = " and ".join(INSTALLED_AS.get(package, package) for package in packages)
    # The extras of a package called `nmt` would be wrong: `nmt` on PyPI is another project.
    return f"{purposes} need {names}: pip install '.[{extras}]' in a checkout of nmt"


def require(package: str) -> None:
    """Raises UserError if an optional package is not installed."""
    if not installed(package):
        raise UserError(advice(package))


def imported(name: str) -> Callable[..., Any]:
    """Imports and returns the function with the name `module:function`.

    Raises UserError if the module needs an optional package that is not installed.
    """
    try:
        return pkgutil.resolve_name(name)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        # A missing module of nmt itself is a bug, so its traceback is kept.
        if package not in EXTRAS:
            raise
        raise UserError(advice(package)) from error


def with_settings(name: str) -> Callable[[Any], Any]:
    """Returns a function that imports another function when it is called and passes command
    settings to it.

    name: `module:function`; the function receives the settings that its parameters name, or all
        settings if it has a parameter `settings`
    """

    def call(settings: Any) -> Any:
        function = imported(name)
        resume_collections()
        names = inspect.signature(function).parameters
        if "settings" in names:
            return function(settings)
        return function(**{name: getattr(settings, name) for name in names})

    return call


def resume_collections() -> None:
    """Enables the garbage collector, which commands disable during their imports.

    Existing objects, such as imported modules, are excluded from collections, because scanning them
    would take time.
    """
    gc.freeze()
    gc.enable()


def make_callable(module: ModuleType, name: str) -> None:
    """Makes the module of a command callable, as in `nmt.train(…)`.

    module: module object to change
    name: `module:function`, imported and called when the module is called
    """

    class CallableModule(ModuleType):
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return imported(name)(*arguments, **options)

    module.__class__ = CallableModule
