"""Optional packages and the commands that install them."""

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
    "ray": ("ray-data", "Ray tasks"),
    "datasets": ("hub", "data of the hub and parquet files"),
}
"""Maps each optional package to its purpose and to the extra of nmt that installs it."""
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
    """Returns a message with missing packages, their purpose, and the command to install them."""
    extras = ",".join(EXTRAS[package][0] for package in packages)
    purposes = " and ".join(EXTRAS[package][1] for package in packages)
    names = " and ".join(INSTALLED_AS.get(package, package) for package in packages)
    # The extras of a package called `nmt` would be wrong: `nmt` on PyPI is another project.
    return f"{purposes} need {names}: pip install '.[{extras}]' in a checkout of nmt"


def require(package: str) -> None:
    """Raises UserError if an optional package is not installed."""
    if not installed(package):
        raise UserError(advice(package))
