"""Output layer fused with its cross-entropy: computes a slice of rows at a time, so the logits of
a whole batch are never in memory.

For each token with features x, let l = x Wᵀ + b be the logits, p = softmax(l), y the gold token, V
the vocabulary size and ε the label smoothing (Szegedy et al. 2016):

    loss = −(1−ε) log p_y − ε/V Σ_v log p_v          ∂loss/∂l = p − (1−ε) 1_y − ε/V

With copying, g is the probability of generating a token, and c the probability of the gold token
if it is copied:

    loss = −(1−ε) log m − ε/V Σ_v log p_v        m = g p_y + (1−g) c        w = g p_y / m
    ∂loss/∂l = ((1−ε) w + ε) p − (1−ε) w 1_y − ε/V
    ∂loss/∂g = (1−ε) (c − p_y) / m        ∂loss/∂c = −(1−ε) (1−g) / m

With an agreement weight λ (Liang et al. 2021, eq. 2), tokens come in pairs from two passes over
the same sentence. Let p and q be the distributions of a pair. Each pair adds λ times the mean of
the Kullback-Leibler divergences KL(p‖q) and KL(q‖p):

    λ/2 Σ_v (p_v − q_v) a_v        a = log p − log q
    ∂/∂l_p = λ/2 (p (a − Σ_v p_v a_v) + p − q)

The forward pass also computes the gradients, while a slice is in the processor's cache. A slice
needs three matrix multiplications (logits, ∂x, ∂W). The backward pass only scales the gradients.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd import Function

from nmt.model.native.kernel_library import first_derivatives, usable
from nmt.model.native.native_functions import LOGITS, NativeCrossEntropy

SLICE = 2**23
"""Number of logits computed at a time, to limit memory; 32 MB in float32."""


class _TokenValues(NamedTuple):
    """Optional inputs of the cross-entropy for the n tokens of a batch, each None if not used.

    generated: probability of generating (not copying) each token, [n]
    copied: probability of each gold token under copying, [n]
    weights: factor of each token's loss, [n]
    biased_tokens: ids of the tokens whose logits get a bias, [n, C]
    biases: biases that are added to these logits, [n, C]
    """

    generated: Tensor | None
    copied: Tensor | None
    weights: Tensor | None
    biased_tokens: Tensor | None
    biases: Tensor | None

    def gradients(self) -> list[Tensor | None]:
        """Returns uninitialised tensors for the gradients of the optional inputs `generated`,
        `copied` and `biases`; None for an input that is not used."""
        differentiable = (self.generated, self.copied, self.biases)
        return [None if tensor is None else torch.empty_like(tensor) for tensor in differentiable]

    def slice(self, rows: slice) -> "_TokenValues":
        """Returns the optional inputs of the cross-entropy for a slice of tokens. `generated`,
        `copied` and `weights` are reshaped to [rows, 1], to be combined with logits [rows, V]."""
        values = [None if tensor is None else tensor[rows] for tensor in self]
        columns = [None if tensor is None else tensor.unsqueeze(1) for tensor in values[:3]]
        return _TokenValues(*columns, *values[3:])


class _LinearCrossEntropy(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        targets: Tensor,
        smoothing: float,
        dtype: torch.dtype,
        agreement: float,
        is_training: bool,
        *optional: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        low = x.to(dtype)  # [n, D]
        low_weight = weight.to(dtype)  # [V, D]
        accurate = torch.promote_types(dtype, torch.float32)
        # Even, so that no pair is split.
        rows = max(1, -(-min(x.size(0), SLICE // len(weight)) // 2)) * 2
        total, nll = (torch.zeros((), dtype=accurate, device=x.device) for _ in range(2))
        dx = torch.empty_like(x)  # [n, D]
        dw = torch.zeros_like(weight)  # [V, D]
        db = torch.zeros_like(bias)  # [V]
        values = _TokenValues(*optional)
        d_values = values.gradients()
        # One buffer for all slices: allocation per slice would cost more than the arithmetic.
        buffer = torch.empty(rows, len(weight), dtype=accurate, device=x.device)  # [rows, V]
        low_buffer = buffer if dtype == accurate else torch.empty_like(buffer, dtype=dtype)
        for start in range(0, x.size(0), rows):
            rows_ = slice(start, start + rows)
            features = low[rows_]  # [rows, D]
            gold = targets[rows_, None]  # [rows, 1]
            logits, low_logits = _linear(features, low_weight, bias, buffer, low_buffer)
            losses = _losses(logits, gold, smoothing, agreement, values.slice(rows_))
            total += losses.loss
            nll += losses.nll
            if not is_training:  # `ctx.needs_input_grad` is True under no_grad, too
                continue
            for gradient, of_rows in zip(d_values, losses.d_values, strict=True):
                if gradient is not None and of_rows is not None:
                    gradient[rows_] = of_rows
            db += losses.d_logits.sum(0)
            low_d = losses.d_logits if dtype == accurate else low_logits.copy_(losses.d_logits)
            dx[rows_] = low_d @ low_weight
            if dw.dtype == dtype:
                dw.addmm_(low_d.t(), features)
            else:
                dw.add_(low_d.t() @ features)
        ctx.save_for_backward(dx, dw, db, *d_values)
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    @first_derivatives
    def backward(ctx: Any, d: Tensor, _: None) -> tuple[Tensor | None, ...]:
        *d_inputs, d_generated, d_copied, d_biases = (
            None if gradient is None else gradient.mul(d.to(gradient.dtype))
            for gradient in ctx.saved_tensors
        )
        return *d_inputs, *[None] * 5, d_generated, d_copied, None, None, d_biases


def _linear(
    x: Tensor, weight: Tensor, bias: Tensor, buffer: Tensor, low_buffer: Tensor
) -> tuple[Tensor, Tensor]:
    """Computes the logits x Wᵀ + b.

    buffer: preallocated memory for the logits
    low_buffer: preallocated memory for the product x Wᵀ, in the dtype of x; the same tensor as
        `buffer` if the dtypes are equal

    Returns the logits [n, V], and the rows of `low_buffer` [n, V], which the caller may overwrite.
    """
    logits = buffer[: len(x)]  # [n, V]
    product = low_buffer[: len(x)]  # [n, V]
    torch.mm(x, weight.t(), out=product)
    if logits.dtype != product.dtype:
        logits.copy_(product)
    return logits.add_(bias), product


class _Losses(NamedTuple):
    """Losses of n rows of logits, and their gradients.

    loss: sum of the smoothed losses
    nll: sum of the negative log-likelihoods of the gold tokens
    d_logits: gradient of the loss with respect to the logits [n, V]; shares memory with the logits
    d_values: gradients of the loss with respect to the probabilities of generating and copying [n],
        and to the biases [n, C]; None for inputs that are not used
    """

    loss: Tensor
    nll: Tensor
    d_logits: Tensor
    d_values: tuple[Tensor | None, ...]


class _CopyingTerms(NamedTuple):
    """Terms of the loss with copying, tensors [n, 1].

    log_m: log-probability of the gold token under the mixture of generating and copying
    share: fraction of the mixture probability that is due to generating, 0 to 1
    d_generated: gradient of −log_m with respect to the probability of generating
    d_copied: gradient of −log_m with respect to the probability of copying the gold token
    """

    log_m: Tensor
    share: Tensor
    d_generated: Tensor
    d_copied: Tensor


def _losses(
    logits: Tensor,
    gold: Tensor,
    smoothing: float,
    agreement: float,
    values: _TokenValues,
) -> _Losses:
    """Returns the losses of n rows of logits [n, V] and their gradients, and overwrites the
    logits."""
    weights = None if values.weights is None else values.weights.to(logits.dtype)  # [n, 1]
    biased_tokens = values.biased_tokens  # [n, C]
    if biased_tokens is not None and values.biases is not None:
        logits.scatter_add_(1, biased_tokens, values.biases.to(logits.dtype))
    sums = logits.sum(-1, keepdim=True)  # [n, 1]
    gold_logits = logits.gather(1, gold)  # [n, 1]
    largest = logits.amax(-1, keepdim=True)  # [n, 1]
    log_ratios = logits[0::2] - logits[1::2] if agreement else None  # [n/2, V]
    p = torch.softmax(logits, -1, out=logits)  # [n, V]
    # max p = exp(largest − log Σ exp) never rounds to 0, so log Σ exp needs no second pass.
    normalizer = largest - p.amax(-1, keepdim=True).log()  # log Σ exp, [n, 1]
    gold_log_p = gold_logits - normalizer  # [n, 1]
    share: Tensor | None = None  # w (1−ε) [n, 1]
    d_copying: tuple[Tensor | None, ...] = (None, None)
    if values.generated is not None and values.copied is not None:
        accurate = logits.dtype
        terms = _with_copying(gold_log_p, values.generated.to(accurate), values.copied.to(accurate))
        scale = (1 - smoothing) if weights is None else (1 - smoothing) * weights
        d_copying = tuple((scale * d).squeeze(1) for d in (terms.d_generated, terms.d_copied))
        gold_log_p = terms.log_m
        share = (1 - smoothing) * terms.share
    # [n, 1]
    losses = smoothing * (normalizer - sums / logits.size(1)) - (1 - smoothing) * gold_log_p
    loss = (losses if weights is None else weights * losses).sum()
    pull: Tensor | None = None  # gradient of the agreement [n, V]
    if log_ratios is not None:
        log_ratios.sub_(normalizer[0::2] - normalizer[1::2])
        divergence, pull = _divergence(p, log_ratios, weights)
        loss = loss + agreement * divergence
    d = p if share is None else p.mul_(share + smoothing)  # [n, V]
    d = d.sub_(smoothing / logits.size(1)) if smoothing else d
    d.scatter_add_(1, gold, d.new_full(gold.shape, smoothing - 1) if share is None else -share)
    d = d if weights is None else d.mul_(weights)
    d = d if pull is None else d.add_(pull, alpha=agreement)
    d_biases = None if biased_tokens is None else d.gather(1, biased_tokens)  # [n, C]
    counted = gold_log_p if weights is None else gold_log_p.mul(weights != 0)
    return _Losses(loss, -counted.sum(), d, (*d_copying, d_biases))


def _with_copying(log_p: Tensor, g: Tensor, c: Tensor) -> _CopyingTerms:
    """Returns the log-probability log m of the gold token, where m is the mixture of generating and
    copying. Also returns the fraction of m that is due to generating, and the gradients of −log m
    with respect to g and c.

    log_p: log-probability of the gold token if it is generated, not copied
    g: probability that the token is generated, not copied
    c: probability of the gold token if it is copied
    """
    log_m = torch.logaddexp(g.log() + log_p, torch.log1p(-g) + c.log())  # [n, 1]
    inverse = (-log_m).clamp(max=80.0).exp()  # 1/m, finite
    return _CopyingTerms(
        log_m=log_m,
        share=(g.log() + log_p - log_m).exp(),
        d_generated=c * inverse - (log_p - log_m).exp(),
        d_copied=(g - 1) * inverse,
    )


def _divergence(p: Tensor, log_ratios: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns the symmetric divergence (KL(p‖q) + KL(q‖p)) / 2, summed over pairs (p, q) of
    distributions, and the gradient of the sum with respect to the logits.

    p: distributions [n, V]; rows 2i and 2i + 1 are a pair
    log_ratios: log-probabilities of row 2i minus those of row 2i + 1 [n/2, V]
    weights: factor of each row [n, 1], the same for both rows of a pair; None means 1
    """
    between = p[0::2] - p[1::2]  # p − q, [n/2, V]
    pull = torch.empty_like(p)  # [n, V]
    for rows, sign in ((slice(0, None, 2), 1), (slice(1, None, 2), -1)):
        gradient = p[rows] * log_ratios  # [n/2, V]
        torch.addcmul(gradient, p[rows], gradient.sum(-1, keepdim=True), value=-1, out=gradient)
        pull[rows] = gradient.add_(between).mul_(sign / 2)
    if weights is not None:
        pull.mul_(weights)
        between.mul_(weights[0::2])
    return (between * log_ratios).sum() / 2, pull


def linear_cross_entropy(
    x: Float[Tensor, "n D"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, " V"],
    targets: Int[Tensor, " n"],
    smoothing: float = 0.0,
    generated: Float[Tensor, " n"] | None = None,
    copied: Float[Tensor, " n"] | None = None,
    weights: Float[Tensor, " n"] | None = None,
    agreement: float = 0.0,
    token_biases: tuple[Int[Tensor, "n C"], Float[Tensor, "n C"]] | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Computes the cross-entropy of n tokens from the input features of the output layer, without
    storing all logits. Under autocast, matrix multiplications use the autocast dtype, and sums
    use float32.

    x: input features
    weight, bias: parameters of the output layer
    targets: gold tokens, without padding
    smoothing: ε, label smoothing
    generated: probability of generating (not copying) each token; None without copying
    copied: probability of each gold token under copying; None without copying
    weights: factor of each token's smoothed loss; None means 1
    agreement: λ, weight of the divergence between rows 2i and 2i + 1; 0 if rows are not pairs
    token_biases: ids of the tokens whose logits get a bias, and the biases; None without biases

    Returns the smoothed loss and the negative log-likelihood, in nats, summed over the tokens. Only
    the smoothed loss has a gradient. Raises ValueError if `agreement` is combined with copying.
    """
    if agreement and generated is not None:
        raise ValueError(
            f"objective.agreement={agreement}: R-Drop compares only distributions over the "
            "vocabulary, and would ignore copied words and the lexicon mixture; set "
            "model.copy=false and model.lexicon_use=bias"
        )
    device = x.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    is_plain = generated is None and weights is None and token_biases is None
    fits = x.size(0) * weight.size(0) <= LOGITS and usable(x, weight, x.new_empty(0, dtype=dtype))
    with torch.autocast(device, enabled=False):
        if is_plain and fits and torch.is_grad_enabled():
            return NativeCrossEntropy.apply(x, weight, bias, targets, smoothing, agreement, dtype)
        values = _TokenValues(generated, copied, weights, *(token_biases or (None, None)))
        return _LinearCrossEntropy.apply(
            x, weight, bias, targets, smoothing, dtype, agreement, torch.is_grad_enabled(), *values
        )
