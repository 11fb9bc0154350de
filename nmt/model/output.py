"""The output layer: distribution of the next word, from the features of a decoder, and the loss of
the right words.

    plain       p(y) = softmax(W_o readout + b)
    lexical     p(y) = softmax(W_o readout + W_l h + b)      with h of lexical.py
    copying     g p(y) + (1 − g) Σ_{s: x_s = y} α_s          with g of copying.py

Lexical model and copying can be combined. The features are the readout, with h beside it in a
lexical model.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from nmt.foundation.interfaces import PAD, DecoderOutput, Layout, Prepared
from nmt.model.copying import Copying
from nmt.model.layers.fused_cross_entropy import linear_cross_entropy
from nmt.model.layers.numeric import to_float
from nmt.model.layers.packed import PackableLinear
from nmt.model.lexical import Lexical

LOGITS = 2**23
"""Number of logits in memory at a time when given words are scored; 32 MB in float32."""


@dataclass(frozen=True)
class OutputLayer:
    """Output distribution and loss of a network, which registers the modules as its own.

    linear: W_o and b
    lexical: the lexical model (None: not used)
    copying: the probability of copying (None: not used)
    """

    linear: PackableLinear
    lexical: Lexical | None
    copying: Copying | None

    def features(
        self, output: DecoderOutput, memory: Prepared, layout: Layout | None = None
    ) -> Float[Tensor, "N T F"]:
        """Features from which words are predicted.

        output: readout and attention of the decoder
        memory: memory of the sentences
        layout: rows of a search (None: equally many rows per sentence)
        """
        if self.lexical is None or output.weights is None:
            return output.readout
        return torch.cat([output.readout, self.lexical(output.weights, memory, layout)], -1)

    def logits(self, features: Float[Tensor, "N T F"]) -> Float[Tensor, "N T V"]:
        """Unnormalised log-probabilities of the words of the vocabulary.

        features: result of `features`
        """
        if self.lexical is None:
            return to_float(self.linear(features))
        sizes = [self.linear.in_features, self.lexical.output.in_features]
        readout, attended = features.split(sizes, -1)  # [N, T, D], [N, T, E]
        return to_float(self.linear(readout)) + to_float(self.lexical.output(attended))

    def log_probs(
        self, output: DecoderOutput, memory: Prepared, layout: Layout | None = None
    ) -> Float[Tensor, "N T V"]:
        """Log-probabilities of the next word at each position.

        output: features of the network as `readout`, and attention
        memory: memory of the same sentences
        layout: rows of a search
        """
        logits = self.logits(output.readout)
        if self.copying is None:
            # In a search, the logits are not used again: the result takes their memory.
            return torch.log_softmax(logits, -1, out=None if torch.is_grad_enabled() else logits)
        return self.copying.log_probs(logits, output, memory, layout)

    def log_probs_of(
        self, output: DecoderOutput, memory: Prepared, words: Int[Tensor, "N T"]
    ) -> Float[Tensor, "N T"]:
        """Log-probabilities of given words, computed for a slice of positions at a time.

        output: features of the network as `readout`, and attention
        memory: memory of the same sentences
        words: word at each position
        """
        steps = max(1, LOGITS // (self.linear.out_features * len(words)))
        slices = []
        for start in range(0, words.size(1), steps):
            positions = slice(start, start + steps)
            weights = None if output.weights is None else output.weights[:, positions]  # [N, t, S]
            sliced = replace(output, readout=output.readout[:, positions], weights=weights)
            log_probs = self.log_probs(sliced, memory)  # [N, t, V]
            slices.append(log_probs.gather(2, words[:, positions].unsqueeze(2)).squeeze(2))
        return torch.cat(slices, 1)

    def loss(
        self,
        output: DecoderOutput,
        memory: Prepared,
        targets: Int[Tensor, "N T"],
        smoothing: float,
        weights: Float[Tensor, "N T"] | None = None,
        agreement: float = 0.0,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Cross-entropy of the targets that are not padding.

        output: features of the network as `readout`, and attention
        memory: memory of the same sentences
        targets: right words, padded with PAD
        smoothing: label smoothing
        weights: factor of the smoothed loss of each word; words with weight 0 are left out of both
        agreement: factor of the divergence between the distributions of rows 2i and 2i + 1, two
            passes over the same sentence (see fused_cross_entropy.py); 0: each row is a sentence

        Returns the smoothed and the plain loss, sums in nats. Only the first has a gradient.
        """
        is_counted = targets != PAD  # [N, T]
        if weights is not None:
            is_counted = is_counted & (weights != 0)
        passes = 2 if agreement else 1
        is_counted = _passes_last(is_counted, passes)

        def counted(values: Tensor) -> Tensor:
            return _passes_last(values, passes)[is_counted]  # [n …], passes of a word adjacent

        features = counted(output.readout)  # [n, F]
        generated = None
        copied = None
        if self.copying is not None:
            generated = self.copying.generated(features).squeeze(-1)  # [n]
            copied = counted(self.copying.copied(output, memory, targets))  # [n]
        weight = self.linear.weight  # [V, F]
        if self.lexical is not None:
            weight = torch.cat([weight, self.lexical.output.weight], 1)  # [V, D + E]
        return linear_cross_entropy(
            features,
            weight,
            self.linear.bias,
            counted(targets),
            smoothing,
            generated=generated,
            copied=copied,
            weights=None if weights is None else counted(weights),
            agreement=agreement,
        )


def _passes_last(x: Shaped[Tensor, "N T *X"], passes: int) -> Shaped[Tensor, "n T P *X"]:
    """The passes over each sentence side by side: [N T …] → [N/P T P …]."""
    return x.unflatten(0, (-1, passes)).transpose(1, 2)
