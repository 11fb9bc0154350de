"""Tests of properties of correct decoders (laws), for subclasses of `nmt.model.decoder.Decoder`.

Training passes all T target tokens to a decoder at once, and the search passes one token at a time
with the state of the previous step. A decoder that keeps a wrong state still trains to a low loss,
and translates badly. Each law is tried in float64 with random weights, without dropout.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nmt.foundation.errors import UserError
from nmt.foundation.interfaces import DecoderOutput, Encoded, Layout, Prepared
from nmt.model.attention import Attention
from nmt.model.attention.general import General
from nmt.model.decoder import Decoder

LENGTHS = (5, 3, 4)
"""Lengths of the example's source sentences, in positions."""
STEPS = 4
"""Number of target tokens T per example sentence."""
READOUT = 7
"""Size D of a readout vector."""
SEARCH_REMEDY = (
    "A search has several hypotheses for each sentence, and their number changes. So pass `layout` "
    "to `attend` and `attend_and_sum`, which find the memory of each hypothesis, instead of "
    "multiplying by `memory.values`. Keep tensors of earlier steps in `state`, not in `self`."
)
"""Remedy for decoders that only work with one row for each sentence."""
TOLERANCE = 1e-9
"""Maximum absolute difference between float64 values that count as equal."""


@dataclass(frozen=True)
class DecoderExample:
    """Tiny example with which a decoder is called.

    decoder: decoder with random weights
    embedded: embeddings of the target tokens [B, T, E]
    encoded: annotations of the source
    """

    decoder: Decoder
    embedded: Tensor
    encoded: Encoded

    @classmethod
    def of(cls, kind: type[Decoder]) -> "DecoderExample":
        """Builds a decoder with random weights, and random example sentences.

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

    def decode(self) -> DecoderOutput:
        """Returns the decoder's output for all target tokens in one call."""
        memory = self.memory
        return self.decoder(self.embedded, self.decoder.initial(memory), memory)


def has_readouts(example: DecoderExample) -> str | None:
    """Returns None if the readouts have the shape [B, T, D], otherwise an observation."""
    shape = list(example.decode().readout.shape)
    expected = [len(LENGTHS), STEPS, READOUT]
    if shape == expected:
        return None
    return (
        f"the readouts have the shape {shape}, expected [sentences, tokens, readout_size], here "
        f"{expected}."
    )


def agrees_step_by_step(example: DecoderExample) -> str | None:
    """Returns None if single decoder steps give the readouts of one call, otherwise an
    observation.
    """
    whole = example.decode().readout  # [B, T, D]
    memory = example.memory
    state = example.decoder.initial(memory)
    for t in range(STEPS):
        step = example.decoder(example.embedded[:, t : t + 1], state, memory)
        state = step.state
        difference = _difference(step.readout[:, 0], whole[:, t])
        if difference > TOLERANCE:
            return (
                f"step {t + 1} differs by {difference:.2g} from the readout of all tokens at once. "
                "Check that `forward` returns the state after its last step, and reads all that a "
                "step needs from `state`."
            )
    return None


def ignores_later_tokens(example: DecoderExample) -> str | None:
    """Returns None if the last target token changes no earlier readout, otherwise an
    observation.
    """
    changed = example.embedded.clone()
    changed[:, -1] += 1.0
    readout = replace(example, embedded=changed).decode().readout
    difference = _difference(readout[:, :-1], example.decode().readout[:, :-1])
    if difference <= TOLERANCE:
        return None
    return (
        f"another last token changes earlier readouts by {difference:.2g}, so the decoder sees in "
        "training the token to predict."
    )


def ignores_padding(example: DecoderExample) -> str | None:
    """Returns None if the content of padding does not change the readouts, otherwise an
    observation.
    """
    padding = ~example.encoded.mask.unsqueeze(-1)  # [B, S, 1]
    changed = replace(example.encoded, values=example.encoded.values.masked_fill(padding, 100.0))
    readout = replace(example, encoded=changed).decode().readout
    difference = _difference(readout, example.decode().readout)
    if difference <= TOLERANCE:
        return None
    return f"other values in the padding of the source change readouts by {difference:.2g}."


def separates_sentences(example: DecoderExample) -> str | None:
    """Returns None if a sentence has equal readouts alone and in a batch, otherwise an
    observation.
    """
    encoded = example.encoded
    alone = Encoded(
        values=encoded.values[:1], mask=encoded.mask[:1], final_state=encoded.final_state[:1]
    )
    readout = replace(example, embedded=example.embedded[:1], encoded=alone).decode().readout
    difference = _difference(readout, example.decode().readout[:1])
    if difference <= TOLERANCE:
        return None
    return f"a sentence alone has other readouts than in a batch; they differ by {difference:.2g}."


def depends_on_source(example: DecoderExample) -> str | None:
    """Returns None if another source gives other readouts, otherwise an observation."""
    encoded = example.encoded
    changed = replace(encoded, values=-encoded.values, final_state=-encoded.final_state)
    readout = replace(example, encoded=changed).decode().readout
    if _difference(readout, example.decode().readout) > TOLERANCE:
        return None
    return "another source gives the same readouts, so the decoder does not read the source."


def searches(example: DecoderExample) -> str | None:
    """Returns None if every hypothesis of a search has the readouts of its sentence, otherwise an
    observation.

    The number of hypotheses is 2 for every sentence, and then 1, 2 and 1.
    """
    whole = example.decode().readout  # [B, T, D]
    memory = example.memory
    first = example.decoder(example.embedded[:, :1], example.decoder.initial(memory), memory)
    for layout in (None, Layout(width=2, slots=torch.tensor([0, 2, 3, 4]))):
        rows = torch.arange(6) // 2 if layout is None else layout.sentences  # [N]
        state = first.state.select(rows)
        step = example.decoder(example.embedded[rows, 1:2], state, memory, layout)
        difference = _difference(step.readout[:, 0], whole[rows, 1])
        if difference > TOLERANCE:
            return (
                f"with {len(rows)} hypotheses for {len(whole)} sentences, readouts differ by "
                f"{difference:.2g} from those of the sentences. {SEARCH_REMEDY}"
            )
    return None


def _difference(actual: Tensor, expected: Tensor) -> float:
    if actual.shape != expected.shape:
        return float("inf")
    return float((actual - expected).abs().max())


LAWS: dict[str, Callable[[DecoderExample], str | None]] = {
    "readouts have the configured size": has_readouts,
    "single steps give the readouts of all tokens at once": agrees_step_by_step,
    "later tokens have no influence": ignores_later_tokens,
    "the content of padding has no influence": ignores_padding,
    "sentences do not influence each other": separates_sentences,
    "the source has an influence": depends_on_source,
    "hypotheses of a search share the memory of their sentence": searches,
}
"""Maps the name of each law to its test, which returns an observation, or None if the law holds."""


def _observation(law: str, example: DecoderExample) -> str | None:
    """Returns the observation of the test of a law; a decoder that raises an exception breaks the
    law."""
    try:
        return LAWS[law](example)
    except Exception as error:
        remedy = SEARCH_REMEDY if LAWS[law] is searches else ""
        return f"the decoder raises {type(error).__name__}: {error}. {remedy}".rstrip()


@torch.no_grad()
def check_decoder(kind: type[Decoder]) -> dict[str, str]:
    """Tests a decoder class for the properties of correct decoders (laws).

    kind: class of the decoder; arguments that the class adds need defaults

    Returns the observations by name of the broken law. Raises UserError if the decoder cannot be
    built.
    """
    try:
        with torch.random.fork_rng():
            example = DecoderExample.of(kind)
    except TypeError as error:
        raise UserError(f"{kind.__name__}: cannot be created: {error}") from error
    problems = {law: _observation(law, example) for law in LAWS}
    return {law: problem for law, problem in problems.items() if problem is not None}
