"""Dot-product attention (`dot` in Luong et al. 2015, eq. 8).

score(q, h) = qᵀ h
"""

from nmt.model.attention import Score


class Dot(Score):
    """Dot product of query and memory, without parameters.

    Raises ValueError if query and memory differ in size.
    """

    def __init__(self, *, query_size: int, memory_size: int) -> None:
        super().__init__()
        if query_size != memory_size:
            name = type(self).__name__
            raise ValueError(
                f"attention: {name} compares the decoder state ({query_size}) with the memory "
                f"({memory_size}) number by number, so the sizes must agree: set "
                f"decoder.hidden_size={memory_size} (two encoder directions), or choose "
                "attention=general, which maps one to the other"
            )
