"""Frozen parameters: weights that training does not change."""

from collections.abc import Sequence

from torch import nn

from nmt.foundation.errors import UserError

TABLES = ("source_embedding", "target_embedding", "output")
"""Names of the modules of a network that may share one weight matrix (`model.tying`)."""


def frozen_tables(network: nn.Module) -> list[str]:
    """Returns the names of the embeddings and output layers that are not trained. A matrix shared
    by several modules is listed under the name of each of these modules.

    network: network with frozen parameters
    """
    tables = {name: getattr(network, name, None) for name in TABLES}
    return [
        name
        for name, table in tables.items()
        if table is not None and not table.weight.requires_grad
    ]


def freeze(network: nn.Module, names: Sequence[str]) -> None:
    """Excludes parameters from training. A weight matrix shared by several modules can be given by
    the name of any of them.

    network: network whose parameters are changed in place
    names: names of modules or of single parameters

    Raises UserError if a name matches no parameter, or if no trainable parameter is left.
    """
    parameters = dict(network.named_parameters(remove_duplicate=False))
    frozen = {
        name: [p for key, p in parameters.items() if f"{key}.".startswith(f"{name}.")]
        for name in names
    }
    unknown = [name for name in names if not frozen[name]]
    if unknown:
        parts = ", ".join(sorted({name.partition(".")[0] for name in parameters}))
        raise UserError(
            f"freeze={','.join(unknown)}: not found in the network (available: {parts})"
        )
    for matching in frozen.values():
        for parameter in matching:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in parameters.values()):
        raise UserError("freeze: all parameters of the network are frozen; freeze fewer modules")
