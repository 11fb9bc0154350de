"""Tests subclasses of `nmt.model.decoder.Decoder` against laws: properties of correct decoders.

Training passes all T target tokens to a decoder at once, and the search passes one token at a time
with the state of the previous step. A decoder that keeps a wrong state still trains to a low loss,
and translates badly. Each law is tested in float64 with random weights, without dropout.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from nmt.analysis.laws import TOLERANCE, broken_laws, difference, require, require_equal
from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import Encoded, Layout, Prepared
from nmt.model.attention.general import General
from nmt.model.attention.layer import Attention
from nmt.model.decoder import Decoder

LENGTHS = (5, 3, 4)
"""Lengths of the source sentences in the example input, in positions."""
STEPS = 4
"""Number of target tokens T per example sentence."""
READOUT = 7
"""Size D of a readout vector."""
SEARCH_REMEDY = (
    "A search has several hypotheses for each sentence, and their number changes. So pass `layout` "
    "to `attend` and `attend_and_sum`, which find the memory of each hypothesis, instead of "
    "multiplying by `memory.values`. Keep tensors of earlier steps in `state`, not in `self`."
)
"""Advice in messages about decoders that do not work with several hypotheses per sentence."""


@dataclass(frozen=True)
class DecoderExample:
    """Tiny example with which a decoder is called.

    decoder: decoder with random weights
    embedded: embeddings of the target tokens [B, T, E]
    encoded: annotations of the source
    """

    decoder: Decoder
    embedded: torch.Tensor
    encoded: Encoded

    @classmethod
    def of(cls, kind: type[Decoder]) -> "DecoderExample":
        """Builds a decoder with random weights, together with random example sentences.

        kind: class of the decoder
        """
        torch.manual_seed(0)
        attention = Attention(General(query_size=6, memory_size=8)) if kind.attends else None
        decoder = kind(
            attention=attention,
            embedding_size=5,
            memory_size=8,
            hidden_size=6,
            readout_size=READOUT,
        )
        lengths = torch.tensor(LENGTHS)  # [B]
        mask = torch.arange(max(LENGTHS)) < lengths.unsqueeze(1)  # [B, S]
        values = torch.randn(*mask.shape, 8, dtype=torch.float64)
        encoded = Encoded(values=values, mask=mask, final_state=values[:, 0])
        embedded = torch.randn(len(LENGTHS), STEPS, 5, dtype=torch.float64)
        return cls(decoder.double().eval(), embedded, encoded)

    @property
    def memory(self) -> Prepared:
        """Attention memory that the decoder computes from the encoded source."""
        return self.decoder.prepare(self.encoded)

    @property
    def readouts(self) -> torch.Tensor:
        """Readouts of all target tokens, computed in one call, [B, T, D]."""
        memory = self.memory
        return self.decoder(self.embedded, self.decoder.initial(memory), memory).readout


def has_readouts(example: DecoderExample) -> None:
    """Requires readouts of the shape [B, T, D]."""
    shape = list(example.readouts.shape)
    expected = [len(LENGTHS), STEPS, READOUT]
    require(
        shape == expected,
        f"the readouts have the shape {shape}, expected [sentences, tokens, readout_size], here "
        f"{expected}.",
    )


def agrees_step_by_step(example: DecoderExample) -> None:
    """Requires that decoding one token at a time gives the same readouts as decoding all tokens in
    one call."""
    memory = example.memory
    state = example.decoder.initial(memory)
    for t in range(STEPS):
        step = example.decoder(example.embedded[:, t : t + 1], state, memory)
        state = step.state
        require_equal(
            step.readout[:, 0],
            example.readouts[:, t],
            f"step {t + 1} differs by {{}} from the readout of all tokens at once. Check that "
            "`forward` returns the state after its last step, and reads all that a step needs "
            "from `state`.",
        )


def ignores_later_tokens(example: DecoderExample) -> None:
    """Requires that the last target token does not affect the readouts (decoder output vectors) of
    earlier positions."""
    changed = example.embedded.clone()
    changed[:, -1] += 1.0
    require_equal(
        replace(example, embedded=changed).readouts[:, :-1],
        example.readouts[:, :-1],
        "another last token changes earlier readouts by {}, so the decoder sees in training the "
        "token to predict.",
    )


def ignores_padding(example: DecoderExample) -> None:
    """Requires that the content of padding does not change the readouts."""
    padding = ~example.encoded.mask.unsqueeze(-1)  # [B, S, 1]
    changed = replace(example.encoded, values=example.encoded.values.masked_fill(padding, 100.0))
    require_equal(
        replace(example, encoded=changed).readouts,
        example.readouts,
        "other values in the padding of the source change readouts by {}.",
    )


def separates_sentences(example: DecoderExample) -> None:
    """Requires that a sentence gets the same readouts alone as in a batch."""
    encoded = example.encoded
    alone = Encoded(
        values=encoded.values[:1], mask=encoded.mask[:1], final_state=encoded.final_state[:1]
    )
    require_equal(
        replace(example, embedded=example.embedded[:1], encoded=alone).readouts,
        example.readouts[:1],
        "a sentence gets different readouts alone and in a batch; they differ by up to {}.",
    )


def depends_on_source(example: DecoderExample) -> None:
    """Requires that different sources give different readouts."""
    encoded = example.encoded
    changed = replace(encoded, values=-encoded.values, final_state=-encoded.final_state)
    require(
        not difference(replace(example, encoded=changed).readouts, example.readouts) <= TOLERANCE,
        "another source gives the same readouts, so the decoder does not read the source.",
    )


def searches(example: DecoderExample) -> None:
    """Requires that a search step with several hypotheses per sentence gives each hypothesis the
    same readout as decoding its tokens without a search.

    The law is tested for three sentences with 2, 2 and 2 hypotheses, and with 1, 2 and 1.
    """
    memory = example.memory
    first = example.decoder(example.embedded[:, :1], example.decoder.initial(memory), memory)
    for layout in (None, Layout(width=2, slots=torch.tensor([0, 2, 3, 4]))):
        rows = torch.arange(6) // 2 if layout is None else layout.sentences  # [N]
        state = first.state.select(rows)
        step = example.decoder(example.embedded[rows, 1:2], state, memory, layout)
        require_equal(
            step.readout[:, 0],
            example.readouts[rows, 1],
            f"with {len(rows)} hypotheses for {len(LENGTHS)} sentences, readouts differ by {{}} "
            "from those of the sentences.",
        )


SEARCHES = "hypotheses of a search share the memory of their sentence"
"""Name of the law that requires decoders to support several hypotheses per sentence."""
LAWS: dict[str, Callable[[DecoderExample], None]] = {
    "readouts have the configured size": has_readouts,
    "single steps give the readouts of all tokens at once": agrees_step_by_step,
    "later tokens have no influence": ignores_later_tokens,
    "the content of padding has no influence": ignores_padding,
    "sentences do not influence each other": separates_sentences,
    "the source has an influence": depends_on_source,
    SEARCHES: searches,
}
"""Maps the name of each law to its test function, which raises BrokenLaw if the law is broken."""


@torch.no_grad()
def check_decoder(kind: type[Decoder]) -> dict[str, str]:
    """Tests a decoder class against laws, that is, properties of correct decoders.

    kind: class of the decoder; its constructor arguments that `Decoder` does not have must have
        defaults

    Maps the name of each broken law to its explanation. Raises UserError if the decoder cannot
    be built.
    """
    try:
        with torch.random.fork_rng():
            example = DecoderExample.of(kind)
    except Exception as error:  # a user-defined constructor may raise any exception
        raise UserError(
            f"{kind.__name__}: cannot be created: {type(error).__name__}: {error}"
        ) from error
    broken, _ = broken_laws(LAWS, example)
    if SEARCHES in broken:
        broken[SEARCHES] += f" {SEARCH_REMEDY}"
    return broken
