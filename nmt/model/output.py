"""Output layer: distribution of the next token, computed from decoder features, and its loss.

    plain       p(y) = softmax(W_o readout + b)
    lexical     p(y) = softmax(W_o readout + W_l h + b)      with h of lexical.py
    copying     g p(y) + (1 − g) Σ_{s: x_s = y} α_s          with g of copying.py
    lexicon     p(y) = softmax(W_o readout + b + log(p_lex + ε))      with p_lex of lexicon.py
                or g p(y) + (1 − g) p_lex(y)

y is a target token, x_s is source token s, and α_s is its attention weight. The lexical model,
copying and the lexicon's bias can be combined. The input features are the readout, concatenated
with h in a lexical model.
"""

from dataclasses import dataclass, replace
from functools import partial

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from nmt.foundation.interfaces import PAD, DecoderOutput, Layout, Prepared
from nmt.model.copying import Copying
from nmt.model.layers.fused_cross_entropy import SLICE, linear_cross_entropy
from nmt.model.layers.numeric import to_float
from nmt.model.layers.packed import PackableLinear
from nmt.model.lexical import Lexical
from nmt.model.lexicon import Lexicon


@dataclass(frozen=True)
class OutputLayer:
    """Output distribution and loss of a network. The network, not this class, registers the layers
    as submodules.

    linear: linear layer that maps features to logits
    lexical: lexical model; None for a network without a lexical model
    copying: copy mechanism, or mixture with a lexicon; None for a network with neither
    lexicon: lexicon whose bias is added to the logits; None for a network without such a bias
    """

    linear: PackableLinear
    lexical: Lexical | None
    copying: Copying | None
    lexicon: Lexicon | None = None

    @property
    def is_linear(self) -> bool:
        """Whether the distribution of the next token is the softmax of the logits, without copying
        and without a lexicon.
        """
        return self.copying is None and self.lexicon is None

    @property
    def weight(self) -> Float[Tensor, "V F"]:
        """Weight matrix of the output layer for all its input features: the readout, then the
        features of the lexical model, if there is one."""
        if self.lexical is None:
            return self.linear.weight
        return torch.cat([self.linear.weight, self.lexical.output.weight], 1)  # [V, D + E]

    def features(
        self, output: DecoderOutput, memory: Prepared, layout: Layout | None = None
    ) -> Float[Tensor, "N T F"]:
        """Returns the features from which the next token is predicted.

        output: output of the decoder, with readout and attention weights
        memory: prepared encoder memory of the sentences
        layout: beam slot of each row (hypothesis); None if no slot is empty, so row i is in slot i
        """
        if self.lexical is None or output.weights is None:
            return output.readout
        return torch.cat([output.readout, self.lexical(output.weights, memory, layout)], -1)

    def logits(self, features: Float[Tensor, "N T F"]) -> Float[Tensor, "N T V"]:
        """Returns the logits (unnormalised log-probabilities) of all target tokens.

        features: input features, computed by the method `features`
        """
        if self.lexical is None:
            return to_float(self.linear(features))
        sizes = [self.linear.in_features, self.lexical.output.in_features]
        readout, attended = features.split(sizes, -1)  # [N, T, D], [N, T, E]
        return to_float(self.linear(readout)) + to_float(self.lexical.output(attended))

    def log_probs(
        self, output: DecoderOutput, memory: Prepared, layout: Layout | None = None
    ) -> Float[Tensor, "N T V"]:
        """Returns the log-probabilities of the next token at each position.

        output: decoder output from `Seq2Seq.decode`; its `readout` contains the input features of
            the output layer
        memory: prepared encoder memory of the sentences
        layout: beam slot of each row (hypothesis); None if no slot is empty, so row i is in slot i
        """
        logits = self.logits(output.readout)  # [N, T, V]
        if self.lexicon is not None:
            candidates, bias = self.lexicon.bias(output, memory, layout)  # [N, T, C]
            logits = logits.scatter_add(2, candidates, bias.to(logits.dtype))
        if self.copying is None:
            # In a search, the result overwrites the logits, which are not used again.
            return torch.log_softmax(logits, -1, out=None if torch.is_grad_enabled() else logits)
        return self.copying.log_probs(logits, output, memory, layout)

    def log_probs_of(
        self, output: DecoderOutput, memory: Prepared, tokens: Int[Tensor, "N T"]
    ) -> Float[Tensor, "N T"]:
        """Returns the log-probabilities of given target tokens, computed for a slice of positions
        at a time to limit memory.

        output: decoder output from `Seq2Seq.decode`; its `readout` contains the input features of
            the output layer
        memory: prepared encoder memory of the sentences
        tokens: id of the target token at each position
        """
        steps = max(1, SLICE // (self.linear.out_features * len(tokens)))
        slices = []
        for start in range(0, tokens.size(1), steps):
            positions = slice(start, start + steps)
            weights = None if output.weights is None else output.weights[:, positions]  # [N, t, S]
            sliced = replace(output, readout=output.readout[:, positions], weights=weights)
            log_probs = self.log_probs(sliced, memory)  # [N, t, V]
            slices.append(log_probs.gather(2, tokens[:, positions].unsqueeze(2)).squeeze(2))
        return torch.cat(slices, 1)  # [N, T]

    def loss(
        self,
        output: DecoderOutput,
        memory: Prepared,
        targets: Int[Tensor, "N T"],
        smoothing: float,
        weights: Float[Tensor, "N T"] | None = None,
        agreement: float = 0.0,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Computes the cross-entropy of the target tokens, padding excluded.

        output: decoder output from `Seq2Seq.decode`; its `readout` contains the input features of
            the output layer
        memory: prepared encoder memory of the sentences
        targets: reference tokens, padded with PAD
        smoothing: label smoothing, 0 to 1
        weights: factor of each token's smoothed loss; tokens of weight 0 count in neither loss
        agreement: weight of the divergence between rows 2i and 2i + 1, two passes over one
            sentence; 0 if every row is a separate sentence

        Returns the smoothed loss, which has a gradient, and the loss without label smoothing,
        both summed over the tokens, in nats.
        """
        is_counted = targets != PAD  # [N, T]
        if weights is not None:
            is_counted = is_counted & (weights != 0)
        passes = 2 if agreement else 1
        if not targets.is_cpu:  # padding has weight 0
            weights = is_counted.float() if weights is None else weights * is_counted
        counted = partial(_counted, mask=is_counted, passes=passes)
        features = counted(output.readout)  # [n, F]
        generated = copied = token_biases = None
        if self.copying is not None:
            generated = self.copying.generated(features).squeeze(-1)  # [n]
            copied = counted(self.copying.copied(output, memory, targets))  # [n]
        if self.lexicon is not None:
            candidates, bias = self.lexicon.bias(output, memory)  # [N, T, C]
            token_biases = (counted(candidates), counted(bias))  # [n, C]
        return linear_cross_entropy(
            features,
            self.weight,
            self.linear.bias,
            counted(targets),
            smoothing,
            generated=generated,
            copied=copied,
            weights=None if weights is None else counted(weights),
            agreement=agreement,
            token_biases=token_biases,
        )


def _counted(x: Shaped[Tensor, "N T *X"], mask: Bool[Tensor, "N T"], passes: int) -> Tensor:
    """Returns the vectors [n …] of a tensor at the n positions where a mask is True. If a sentence
    has several forward passes, the vectors of the same position are adjacent.

    On a GPU, the result contains the vectors of all N·T positions, so that the host need not wait
    for n.

    passes: P, number of forward passes over each sentence, which are P consecutive rows of the
        tensor
    """
    rows = _passes_last(x, passes)  # [N / P, T, P, …]
    return rows[_passes_last(mask, passes)] if x.is_cpu else rows.flatten(0, 2)


def _passes_last(x: Shaped[Tensor, "N T *X"], passes: int) -> Shaped[Tensor, "n T P *X"]:
    """Rearranges a tensor [N, T, …], in which the P forward passes over a sentence are consecutive
    rows, to [N/P, T, P, …]."""
    return x.unflatten(0, (-1, passes)).transpose(1, 2)
