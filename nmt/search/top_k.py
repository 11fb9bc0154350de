"""Fast selection of the k largest values of each row, in blocks.

On CPUs, torch.topk sorts all values by comparison, whereas a maximum runs at the speed of memory.
The k largest values lie in the k blocks with the largest maxima.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCK = 128
"""Number of values in a block, of which `top_k` first computes the maximum."""


def top_k(x: Float[Tensor, "N V"], k: int) -> tuple[Float[Tensor, "N k"], Int[Tensor, "N k"]]:
    """Returns the k largest values of each row and their indices, largest first, like torch.topk.

    x: rows of values
    k: number of values per row
    """
    blocks, tail = divmod(x.size(1), BLOCK)
    if x.is_cuda or blocks < 4 * k:
        return x.topk(k, -1)
    maxima = x[:, : blocks * BLOCK].unflatten(1, (blocks, BLOCK)).amax(-1)  # [N, blocks]
    if tail:
        maxima = torch.cat([maxima, x[:, -tail:].amax(-1, keepdim=True)], 1)
    # The k blocks with the largest maxima contain the k largest values.
    first = maxima.topk(k, -1).indices * BLOCK
    # [N, k·BLOCK]
    indices = (first.unsqueeze(-1) + torch.arange(BLOCK, device=x.device)).flatten(1)
    candidates = x.gather(1, indices.clamp(max=x.size(1) - 1)).masked_fill_(
        indices >= x.size(1), -torch.inf
    )
    values, places = candidates.topk(k, -1)  # [N, k], [N, k]
    return values, indices.gather(1, places)
