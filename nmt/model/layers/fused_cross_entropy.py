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

With an agreement factor λ (Liang et al. 2021, eq. 2), tokens come in pairs from two passes over
the same sentence. With their distributions p and q, each pair adds half the sum of both
Kullback-Leibler divergences:

    λ/2 Σ_v (p_v − q_v) a_v        a = log p − log q
    ∂/∂l_p = λ/2 (p (a − Σ_v p_v a_v) + p − q)

The forward pass also computes the gradients, while a slice is in the processor's cache. A slice
needs three matrix multiplications (logits, ∂x, ∂W). The backward pass only scales the gradients.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd import Function

from nmt.model.native.kernel_library import usable
from nmt.model.native.native_functions import LOGITS, NativeCrossEntropy

SLICE = 2**23
"""Number of logits in memory at a time; 32 MB in float32."""


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
        generated: Tensor | None,
        copied: Tensor | None,
        weights: Tensor | None,
        agreement: float,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        needed = any(ctx.needs_input_grad)
        low, low_weight, vocabulary = x.to(dtype), weight.to(dtype), weight.size(0)
        accurate = torch.promote_types(dtype, torch.float32)
        rows = max(1, -(-min(x.size(0), SLICE // vocabulary) // 2)) * 2  # even: no split pair
        total, nll = (torch.zeros((), dtype=accurate, device=x.device) for _ in range(2))
        dx, dw, db = torch.empty_like(x), torch.zeros_like(weight), torch.zeros_like(bias)
        d_generated, d_copied = (
            None if gate is None else torch.empty_like(gate) for gate in (generated, copied)
        )
        # One buffer for all slices: allocation per slice would cost more than the arithmetic.
        buffer = torch.empty(rows, vocabulary, dtype=accurate, device=x.device)
        low_buffer = buffer if dtype == accurate else torch.empty_like(buffer, dtype=dtype)
        for start in range(0, x.size(0), rows):
            rows_ = slice(start, start + rows)
            part, gold = low[rows_], targets[rows_, None]
            logits, low_logits = buffer[: len(part)], low_buffer[: len(part)]
            _linear(part, low_weight, bias, low_logits, logits)
            copying = (
                None if tensor is None else tensor[rows_, None].to(accurate)
                for tensor in (generated, copied, weights)
            )
            loss, plain, d, of_copying = _losses(logits, gold, smoothing, agreement, *copying)
            total += loss
            nll += plain
            if not needed:
                continue
            if d_generated is not None and d_copied is not None:
                d_generated[rows_], d_copied[rows_] = of_copying
            db += d.sum(0)
            low_d = d if dtype == accurate else low_logits.copy_(d)
            dx[rows_] = low_d @ low_weight
            _add_product(dw, low_d.t(), part)
        if needed:
            ctx.save_for_backward(dx, dw, db, d_generated, d_copied)
        ctx.mark_non_differentiable(nll)
        return total, nll

    @staticmethod
    def backward(ctx: Any, d: Tensor, _: None) -> tuple[Tensor | None, ...]:
        dx, dw, db, *of_copying = (
            None if gradient is None else gradient.mul(d.to(gradient.dtype))
            for gradient in ctx.saved_tensors
        )
        return dx, dw, db, None, None, None, *of_copying, None, None


def _linear(x: Tensor, weight: Tensor, bias: Tensor, low_out: Tensor, out: Tensor) -> None:
    """Writes x Wᵀ + b to `out`.

    The matrix multiplication has the dtype of `low_out`, which may be the same tensor as `out`.
    """
    torch.mm(x, weight.t(), out=low_out)
    if out.dtype != low_out.dtype:
        out.copy_(low_out)
    out.add_(bias)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Adds the matrix product a b to `total`, whose dtype may be wider."""
    if total.dtype == a.dtype:
        total.addmm_(a, b)
    else:
        total.add_(a @ b)


def _losses(
    logits: Tensor,
    gold: Tensor,
    smoothing: float,
    agreement: float,
    generated: Tensor | None,
    copied: Tensor | None,
    weights: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, ...]]:
    """Computes loss and gradients of n rows of logits [n, V], and overwrites the logits.

    Returns the loss, −Σ log p_y, ∂loss/∂logits, and (∂loss/∂g, ∂loss/∂c) with copying.
    """
    sums, gold_logits, largest = (
        logits.sum(-1, keepdim=True),
        logits.gather(1, gold),
        logits.amax(-1, keepdim=True),
    )
    apart = logits[0::2] - logits[1::2] if agreement else None
    p = torch.softmax(logits, -1, out=logits)
    # max p = exp(largest − log Σ exp) never rounds to 0, so log Σ exp needs no second pass.
    normalizer = largest - p.amax(-1, keepdim=True).log()
    gold_log_p, share, of_copying = gold_logits - normalizer, None, tuple[Tensor, ...]()
    if generated is not None and copied is not None:
        gold_log_p, share, *both = _with_copying(gold_log_p, generated, copied)
        scale = (1 - smoothing) if weights is None else (1 - smoothing) * weights
        of_copying = tuple((scale * d).squeeze(1) for d in both)
        share = (1 - smoothing) * share
    losses = smoothing * (normalizer - sums / logits.size(1)) - (1 - smoothing) * gold_log_p
    loss, pull = (losses if weights is None else weights * losses).sum(), None
    if apart is not None:
        divergence, pull = _divergence(p, apart.sub_(normalizer[0::2] - normalizer[1::2]))
        loss = loss + agreement * divergence
    d = p if share is None else p.mul_(share + smoothing)
    d = d.sub_(smoothing / logits.size(1)) if smoothing else d
    d.scatter_add_(1, gold, d.new_full(gold.shape, smoothing - 1) if share is None else -share)
    d = d if weights is None else d.mul_(weights)
    d = d if pull is None else d.add_(pull, alpha=agreement)
    return loss, -gold_log_p.sum(), d, of_copying


def _with_copying(log_p: Tensor, g: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns log m, w, and the gradients of −log m for g and c, from log p_y [n, 1].

    m = g p_y + (1−g) c is the probability of the gold token, and w = g p_y / m.
    """
    log_m = torch.logaddexp(g.log() + log_p, torch.log1p(-g) + c.log())
    inverse = (-log_m).clamp(max=80.0).exp()  # 1/m, finite
    return (
        log_m,
        (g.log() + log_p - log_m).exp(),
        c * inverse - (log_p - log_m).exp(),
        (g - 1) * inverse,
    )


def _divergence(p: Tensor, apart: Tensor) -> tuple[Tensor, Tensor]:
    """Returns half the sum of both divergences over all pairs of rows, and its gradient for the
    logits.

    p: distributions [n, V]; rows 2i and 2i + 1 are a pair
    apart: log p − log q of each pair [n/2, V]
    """
    between = p[0::2] - p[1::2]
    pull = torch.empty_like(p)
    for rows, sign in ((slice(0, None, 2), 1), (slice(1, None, 2), -1)):
        gradient = p[rows] * apart
        torch.addcmul(gradient, p[rows], gradient.sum(-1, keepdim=True), value=-1, out=gradient)
        pull[rows] = gradient.add_(between).mul_(sign / 2)
    return (between * apart).sum() / 2, pull


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
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Computes the cross-entropy of n tokens from the input features of the output layer.

    Under autocast, matrix multiplications use the autocast dtype, and sums use float32.

    x: input features
    weight, bias: parameters of the output layer
    targets: gold tokens, without padding
    smoothing: ε, label smoothing
    generated: probability of generating (not copying) each token; None without copying
    copied: probability of each gold token under copying; None without copying
    weights: factors of the smoothed losses; None for 1
    agreement: λ, factor of the divergence between rows 2i and 2i + 1; 0 if rows are not pairs

    Returns the smoothed loss and the negative log-likelihood, sums in nats; only the first has a
    gradient.

    Raises ValueError for an agreement factor with copying.
    """
    if agreement and generated is not None:
        raise ValueError(
            "agreement cannot be combined with copying: it compares vocabulary distributions only"
        )
    device = x.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    is_plain = generated is None and weights is None
    fits = x.size(0) * weight.size(0) <= LOGITS and usable(x, weight, x.new_empty(0, dtype=dtype))
    with torch.autocast(device, enabled=False):
        if is_plain and fits and torch.is_grad_enabled():
            return NativeCrossEntropy.apply(x, weight, bias, targets, smoothing, agreement, dtype)
        return _LinearCrossEntropy.apply(
            x, weight, bias, targets, smoothing, dtype, generated, copied, weights, agreement
        )
