"""Hard attention (Xu et al. 2015, section 4.1): one position at a time, drawn from the weights in training, the most
probable one in generation. The choice has no gradient, so it is estimated:

straight_through    the backward pass treats the drawn one-hot vector as the weights it was drawn from (Bengio et al. 2013):
                    little variance, some bias
reinforce           the gradient of the paper's bound, without bias: its eq. 11 and 12. Choices s̃ that made the words y more
                    probable than usual become more probable:

    ∂ log p(y|s̃) + λ_r (log p(y|s̃) − b) ∂ log p(s̃) + λ_e ∂ H[s̃]         b ← 0.9 b + 0.1 log p(y|s̃)

where λ_r = `reward`, λ_e = `entropy`, 0.9 = `decay`; a share `expected` of the sentences is trained with the weights
themselves, which lowers the variance further."""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.foundation.interfaces import Encoded
from nmt.foundation.part_limits import RunView
from nmt.foundation.ranges import Fraction, NonNegative
from nmt.model.attention.normalizer import Normalizer
from nmt.model.attention.window import Window, WindowState


class Hard(Window):
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
        self.reward, self.entropy, self.expected, self.decay = reward, entropy, expected, decay
        if (
            self.needs_reward
        ):  # the sum of rewards, each decayed, and the sum of their weights; kept with the weights
            self.usual = nn.Parameter(torch.zeros(2), requires_grad=False)
            self.estimates = ("usual",)

    @classmethod
    def idle(cls, run: RunView) -> dict[str, str]:
        """Keys of the estimator that is not used."""
        if run.value("window.estimator") == "reinforce":
            return {}
        keys = [f"window.{key}" for key in ("reward", "entropy", "expected", "decay")]
        return dict.fromkeys(keys, "belongs to window.estimator=reinforce")

    def initial_state(self, encoded: Encoded, rows: int) -> WindowState:
        """In training by reinforcement: which rows use the weights themselves, and of each step so far the
        log-probability of the choice and the entropy."""
        if not (self.needs_reward and self.training):
            return ()
        none = encoded.final_state.new_zeros(rows, 0)
        return torch.rand(rows, device=none.device) < self.expected, none, none

    def forward(
        self,
        scores: Float[Tensor, "N T S"],
        query: Tensor | None,
        state: WindowState,
        normalizer: Normalizer,
    ) -> tuple[Float[Tensor, "N T S"], WindowState]:
        weights = normalizer(scores)
        if not self.training:
            return F.one_hot(weights.argmax(-1), weights.size(-1)).to(weights.dtype), state
        chosen = drawn(weights.detach())
        one = F.one_hot(chosen, weights.size(-1)).to(weights.dtype)
        if not state:
            return one + (weights - weights.detach()), state
        expected, log_probs, entropies = state
        log = weights.clamp(min=torch.finfo(weights.dtype).tiny).log()
        mine = log.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
        log_probs = torch.cat([log_probs, mine.masked_fill(expected.unsqueeze(1), 0.0)], 1)
        entropies = torch.cat([entropies, -(weights * log).sum(-1)], 1)
        return torch.where(expected[:, None, None], weights, one), (expected, log_probs, entropies)

    def reinforce_loss(
        self, state: WindowState, log_likelihood: Float[Tensor, " N"], real: Bool[Tensor, "N T"]
    ) -> Float[Tensor, ""]:
        _, log_probs, entropies = state
        mean = log_likelihood.mean()
        usual = self.usual[0] / self.usual[1] if self.usual[1] > 0 else mean
        advantage = log_likelihood - usual
        with torch.no_grad():
            self.usual.mul_(self.decay).add_(
                (1 - self.decay) * torch.stack([mean, torch.ones_like(mean)])
            )
        found = self.reward * (advantage * (log_probs * real).sum(1)).sum()
        return -(found + self.entropy * (entropies * real).sum())


def drawn(weights: Float[Tensor, "N T S"]) -> Tensor:
    """A position for each row and step [N, T]."""
    return torch.multinomial(weights.flatten(0, 1).float(), 1).view(weights.shape[:2])
