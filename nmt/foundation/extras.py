"""Packages that nmt works without, and how to get them."""

from __future__ import annotations

from importlib.util import find_spec

from nmt.foundation.errors import UserError

EXTRAS = {
    "matplotlib": ("plots", "pictures"),
    "tensorboard": ("tensorboard", "TensorBoard events"),
    "optuna": ("sweep", "a search over ranges"),
    "scipy": ("sweep", "tests over seeds"),
    "wandb": ("wandb", "runs at Weights & Biases"),
    "mlflow": ("mlflow", "runs in MLflow"),
    "trackio": ("trackio", "runs in Trackio"),
    "PIL": ("pictures", "images"),
    "sklearn": ("pictures", "handwritten digits"),
    "onnx": ("export", "ONNX graphs"),
    "huggingface_hub": ("hub", "models of the hub"),
    "starlette": ("serve", "servers"),
    "uvicorn": ("serve", "servers"),
    "prometheus_client": ("serve", "servers"),
    "datasets": ("hub", "data of the hub and parquet files"),
}
"""The extra of nmt that installs each package, and what it is for."""
INSTALLED_AS = {
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "prometheus_client": "prometheus-client",
    "huggingface_hub": "huggingface-hub",
}
"""What pip calls packages that Python calls otherwise."""


def installed(package: str) -> bool:
    return find_spec(package) is not None


def advice(*packages: str) -> str:
    """What is not there without some packages, and what to type: `pictures need matplotlib: pip install 'nmt[plots]'`."""
    extras = ",".join(EXTRAS[package][0] for package in packages)
    what = " and ".join(EXTRAS[package][1] for package in packages)
    names = " and ".join(INSTALLED_AS.get(package, package) for package in packages)
    return f"{what} need {names}: pip install 'nmt[{extras}]'"


def require(package: str) -> None:
    """Raises UserError if a package is not installed."""
    if not installed(package):
        raise UserError(advice(package))
