"""Parameters that training leaves as they are."""

from collections.abc import Sequence

from torch import nn

from nmt.foundation.errors import UserError

TABLES = ("source_embedding", "target_embedding", "output")
"""Parts of a network that may share weights (model.tying)."""


def frozen_tables(network: nn.Module) -> list[str]:
    """Names of the tables of words that are not trained, by whatever name they were frozen.

    network: network after `freeze`
    """
    tables = {name: getattr(network, name, None) for name in TABLES}
    return [
        name
        for name, table in tables.items()
        if table is not None and not table.weight.requires_grad
    ]


def freeze(network: nn.Module, names: Sequence[str]) -> None:
    """Excludes parameters from training. Tied embeddings have several names.

    network: network whose parameters are changed in place
    names: parts of the network or parameters

    Raises UserError for names that no parameter has, or if nothing is left to train.
    """
    parameters = dict(network.named_parameters(remove_duplicate=False))
    unknown = []
    for name in names:
        frozen = [p for key, p in parameters.items() if f"{key}.".startswith(f"{name}.")]
        if not frozen:
            unknown.append(name)
        for parameter in frozen:
            parameter.requires_grad_(False)
    if unknown:
        parts = ", ".join(sorted({name.partition(".")[0] for name in parameters}))
        raise UserError(
            f"freeze={','.join(unknown)}: no part of the network has this name. There are: {parts}"
        )
    if not any(parameter.requires_grad for parameter in parameters.values()):
        raise UserError("freeze: nothing is left to train")


def shared_tables(network: nn.Module, names: Sequence[str]) -> list[str]:
    """Names of the tables that are frozen only because they share weights with a named part.

    network: network after `freeze`
    names: parts that were frozen by name
    """
    return [table for table in frozen_tables(network) if table not in names]
