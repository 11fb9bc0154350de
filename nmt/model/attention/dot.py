"""Dot-product attention (`dot` in Luong et al. 2015, section 3.1).

    score(q, h) = qᵀ h

q is the decoder state and h an annotation.
"""

from nmt.model.attention import Score


class Dot(Score):
    """Dot-product attention score, without parameters. The constructor raises ValueError if query
    and annotation differ in size."""

    def __init__(self, *, query_size: int, memory_size: int) -> None:
        super().__init__()
        if query_size != memory_size:
            name = type(self).__module__.rpartition(".")[2]
            raise ValueError(
                f"attention={name}: decoder states (size {query_size}) and encoder states (size "
                f"{memory_size}) must have the same size; set decoder.hidden_size={memory_size} "
                "or attention=general"
            )
