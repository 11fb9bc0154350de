"""Hard attention (Xu et al. 2015, section 4.1): one source position per decoder step.

In training, the position is sampled from the attention weights. In generation, the most probable
position is chosen. Sampling has no gradient, so an estimator computes a gradient for it:

straight_through    the backward pass treats the sampled one-hot vector as the weights it was
                    sampled from (Bengio et al. 2013): low variance, small bias
reinforce           gradient of the paper's lower bound (eq. 11 and 12). Sampled positions s̃ become
                    more probable if they make the target y more probable than usual

    ∂ log p(y|s̃) + λ_r (log p(y|s̃) − b) ∂ log p(s̃) + λ_e ∂ H[s̃]
    b = Σ_{i<k} 0.9^{k−i} r_i / Σ_{i<k} 0.9^{k−i}    in batch k, with r_i = mean log p(y|s̃)

H is the entropy, b the mean reward of earlier batches (in the first batch, its own mean reward),
λ_r = `reward`, λ_e = `entropy`, and 0.9 is `decay`. A fraction `expected` of the sentences is
trained with the weights instead of samples, which reduces the variance further. The gradient is
unbiased after the first batch if λ_r = 1, λ_e = 0 and `expected` is 0.
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from nmt.foundation.interfaces import Encoded
from nmt.foundation.part_limits import RunView, idle_keys
from nmt.foundation.ranges import Fraction, NonNegative
from nmt.model.attention.normalizer import Normalizer
from nmt.model.attention.window import Window, WindowState
from nmt.model.layers.numeric import sampled

REINFORCE_KEYS = ("window.reward", "window.entropy", "window.expected", "window.decay")
"""Configuration keys that have an effect only with window.estimator=reinforce."""


class Hard(Window):
    """Attention window that selects a single position. All arguments except `estimator` apply to
    the estimator `reinforce` only.

    estimator: method that estimates the gradient through the sampled position: straight_through or
        reinforce
    reward: weight λ_r of the reward term in the gradient
    entropy: weight λ_e of the entropy term in the gradient
    expected: fraction of sentences that are trained with the weights instead of samples, 0 to 1
    decay: decay of the running mean reward per batch, 0 to 1
    """

    all_positive = False
    estimates: tuple[str, ...] = ()

    def __init__(
        self,
        *,
        query_size: int,
        estimator: Literal["straight_through", "reinforce"] = "straight_through",
        reward: NonNegative = 1.0,
        entropy: NonNegative = 0.01,
        expected: Fraction = 0.5,
        decay: Fraction = 0.9,
    ) -> None:
        super().__init__(query_size=query_size)
        self.needs_reward = estimator == "reinforce"
        self.reward = reward
        self.entropy = entropy
        self.expected = expected
        self.decay = decay
        if self.needs_reward:
            # Decayed sums of rewards and of their weights; as a parameter, it is saved in
            # checkpoints.
            self.usual = nn.Parameter(torch.zeros(2), requires_grad=False)
            self.estimates = ("usual",)
            self.uncapturable = "the reward of window=hard is averaged over the rows of a batch"

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """Returns the keys of the estimator `reinforce` if another estimator is configured, each
        with the reason why it has no effect. The result is empty for `reinforce`."""
        is_idle = run.value("window.estimator") != "reinforce"
        return idle_keys(
            (is_idle, "has an effect only with window.estimator=reinforce", *REINFORCE_KEYS)
        )

    def initial_state(self, encoded: Encoded, rows: int) -> WindowState:
        """Returns the state of the estimator `reinforce` in training; an empty tuple otherwise.

        The state has three tensors. The first marks the rows that are trained with the weights
        instead of samples [N]. The second contains the log-probability of the sampled position at
        each decoder step so far [N, T], the third the entropy of the weights at each step [N, T].
        """
        if not (self.needs_reward and self.training):
            return ()
        empty = encoded.final_state.new_zeros(rows, 0)  # [N, 0]
        return torch.rand(rows, device=empty.device) < self.expected, empty, empty

    def forward(
        self,
        scores: Float[Tensor, "N T S"],
        query: Tensor | None,
        state: WindowState,
        normalizer: Normalizer,
    ) -> tuple[Float[Tensor, "N T S"], WindowState]:
        weights = normalizer(scores)  # [N, T, S]
        # [N, T]
        choice = sampled(weights.detach().float()) if self.training else weights.argmax(-1)
        one_hot = torch.zeros_like(weights).scatter_(-1, choice.unsqueeze(-1), 1.0)  # [N, T, S]
        if not self.training:
            return one_hot, state
        if not state:
            # The value is the one-hot vector; the gradient is that of the weights.
            return one_hot + (weights - weights.detach()), state
        expected, log_probs, entropies = state
        # The lower bound avoids 0 · −∞ = NaN at padding and at sparse weights.
        log_weights = weights.clamp(min=torch.finfo(weights.dtype).tiny).log()
        log_prob = log_weights.gather(-1, choice.unsqueeze(-1)).squeeze(-1)  # [N, T]
        # Rows that use the weights have no sampled position.
        log_probs = torch.cat([log_probs, log_prob.masked_fill(expected.unsqueeze(1), 0.0)], 1)
        entropies = torch.cat([entropies, -(weights * log_weights).sum(-1)], 1)  # [N, steps]
        weights = torch.where(expected[:, None, None], weights, one_hot)  # [N, T, S]
        return weights, (expected, log_probs, entropies)

    def reinforce_loss(
        self, state: WindowState, log_likelihood: Float[Tensor, " N"], real: Bool[Tensor, "N T"]
    ) -> Float[Tensor, ""]:
        log_probs, entropies = state[1:]  # [N, T]
        mean = log_likelihood.mean()
        # average reward so far
        usual = torch.where(self.usual[1] > 0, self.usual[0] / self.usual[1], mean)
        advantage = log_likelihood - usual  # [N]
        with torch.no_grad():
            sums = torch.stack([mean, torch.ones_like(mean)])  # [2]
            new = self.decay * self.usual + (1 - self.decay) * sums
            # An update with a NaN loss may be skipped.
            self.usual.copy_(torch.where(mean.isfinite(), new, self.usual))
        gain = self.reward * (advantage * (log_probs * real).sum(1)).sum()  # sum over rows
        return -(gain + self.entropy * (entropies * real).sum())
