"""Parameters that training leaves as they are."""

from collections.abc import Sequence

from torch import nn

from nmt.foundation.errors import UserError


def freeze(network: nn.Module, names: Sequence[str]) -> None:
    """Parameters whose names begin so are not trained; tied embeddings have several names. Raises UserError for names that
    none has, or if none is left."""
    parameters = dict(network.named_parameters(remove_duplicate=False))
    chosen = {
        name: [p for n, p in parameters.items() if n == name or n.startswith(f"{name}.")]
        for name in names
    }
    nothing = [name for name, its in chosen.items() if not its]
    if nothing:
        parts = ", ".join(sorted({name.partition(".")[0] for name in parameters}))
        raise UserError(
            f"freeze={','.join(nothing)}: no part of the network has this name. There are: {parts}"
        )
    for its in chosen.values():
        for parameter in its:
            parameter.requires_grad_(False)
    if not any(p.requires_grad for p in parameters.values()):
        raise UserError("freeze: nothing is left to train")
