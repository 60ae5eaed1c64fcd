"""Losses see scores, a mask and weights; never a model, a batch or a recipe.

Notation: ``s`` a score plus the margin, ``w`` the weights of the positives normalised to sum 1, ``y`` the known-true
mask. Self-adversarial sampling is not a sampler here but the temperature of the negatives' weights.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from eans.models import Scores, Substitution

Form = Literal["reference", "paper"]


class LossTerms(NamedTuple):
    """The parts that add up to the loss, each a scalar."""

    positive: Tensor
    negative: Tensor
    substitution: Tensor

    @property
    def total(self) -> Tensor:
        return self.positive + self.negative + self.substitution


class LogSigmoid(nn.Module):
    """Positives up, negatives down, through ``log sigmoid``.

    ``L = (L_positive + L_negative) / 2`` with ``L_positive = -sum_i w_i log sig(s_i)`` and
    ``L_negative = -sum_i w_i sum_j p_ij log sig(-s_ij)`` over pairs that are not known to be true.

    ``p_ij`` is ``1 / N`` (N counts the masked ones too), or with an adversarial temperature ``a`` the constant
    ``softmax_j(a s_ij)`` over the unmasked ones (self-adversarial sampling, Sun et al. 2019). A row without unmasked
    negatives contributes zero.

    Args:
        margin: added to every score; the gamma of distance models, 0 for dot products.
        adversarial_temperature: ``a``; 0 for equal weights.
    """

    needs_substitution: Substitution | None = None

    def __init__(self, margin: float = 0.0, adversarial_temperature: float = 0.0) -> None:
        super().__init__()
        self.margin = margin
        self.adversarial_temperature = adversarial_temperature

    def forward(self, scores: Scores, known_true: Tensor, weight: Tensor) -> LossTerms:
        """Scores of ``[B]`` positives and ``[B, N]`` negatives, mask bool ``[B, N]``, weight ``[B]``."""
        weight = weight / weight.sum()
        positive = self._positive(scores, weight)
        negative = self._negative(scores.negative + self.margin, known_true, weight)
        return LossTerms(positive / 2, negative / 2, torch.zeros_like(positive))

    def _positive(self, scores: Scores, weight: Tensor) -> Tensor:
        return -(weight * logsigmoid(scores.positive + self.margin)).sum()

    def _negative(self, logits: Tensor, known_true: Tensor, weight: Tensor) -> Tensor:
        """Weighted loss of negative logits ``[B, N]``, the known-true ones left out."""
        share = negative_shares(logits.detach(), known_true, self.adversarial_temperature)
        return -(weight[:, None] * share * torch.where(known_true, 0.0, logsigmoid(-logits))).sum()


class SubstitutionLoss(LogSigmoid):
    """The loss of EANS: false negatives are predicted by a substitution score and spared.

    With ``u`` the substitution score plus the margin, a negative's logit is lowered to ``z = s - l1 u``, known false
    negatives are masked, and ``u`` itself is trained on the labels:

    ``L = (L_positive + L_negative(z)) / 2 + l2 mean_{y=1}(-log sig(u)) + l1 mean(|u|)``

    This is the form that reaches the published numbers: ``u`` averages both directions, its gradient flows through
    ``z``, the mean runs over the known false negatives of the batch, and only the first part is halved.

    Args:
        margin, adversarial_temperature: see `LogSigmoid`.
        substitution_weight: ``l2``.
        substitution_regularization: ``l1``.
        form: ``"reference"`` as above, or ``"paper"`` for the printed equations: one direction, the substitution
            distance without the margin inside ``z``, nothing halved, and per positive
            ``l2 / N sum_j y_j (-log sig(u_j)) + l1 |sum_j u_j|``, averaged over the batch.
        detach: stop the gradient of ``u`` inside ``z``.
    """

    def __init__(
        self,
        margin: float = 0.0,
        adversarial_temperature: float = 0.0,
        substitution_weight: float = 1.0,
        substitution_regularization: float = 0.1,
        form: Form = "reference",
        detach: bool = False,
    ) -> None:
        super().__init__(margin, adversarial_temperature)
        self.substitution_weight = substitution_weight
        self.substitution_regularization = substitution_regularization
        self.form: Form = form
        self.detach = detach
        self.needs_substitution = "symmetric" if form == "reference" else "one-way"

    def forward(self, scores: Scores, known_true: Tensor, weight: Tensor) -> LossTerms:
        """As `LogSigmoid.forward`; `scores.substitution` must be there."""
        assert scores.substitution is not None
        weight = weight / weight.sum()
        logit = scores.substitution + self.margin
        lowering = logit if self.form == "reference" else scores.substitution
        if self.detach:
            lowering = lowering.detach()
        adjusted = scores.negative + self.margin - self.substitution_regularization * lowering
        positive = self._positive(scores, weight)
        negative = self._negative(adjusted, known_true, weight)
        missed = torch.where(known_true, -logsigmoid(logit), 0.0)
        if self.form == "reference":
            prediction = missed.sum() / known_true.sum().clamp(min=1)
            size = logit.abs().mean()
            halves = 2
        else:
            prediction = missed.mean(1).mean()
            size = logit.sum(1).abs().mean()
            halves = 1
        substitution = self.substitution_weight * prediction + self.substitution_regularization * size
        return LossTerms(positive / halves, negative / halves, substitution)


def negative_shares(logits: Tensor, known_true: Tensor, temperature: float) -> Tensor:
    """Weight of each negative inside its row, zero where masked: ``[B, N]`` -> ``[B, N]``.

    Equal weights count masked negatives in N; adversarial ones sum to 1 over the unmasked.
    """
    unmasked = ~known_true
    if temperature == 0.0:
        return unmasked.to(logits.dtype) / logits.shape[1]
    scaled = torch.where(unmasked, temperature * logits, -torch.inf)
    # A row that is masked throughout has no maximum; any finite one makes its shares zero rather than NaN.
    top = scaled.amax(1, keepdim=True)
    exponentials = torch.exp(scaled - torch.where(torch.isinf(top), 0.0, top))
    return exponentials / exponentials.sum(1, keepdim=True).clamp(min=torch.finfo(logits.dtype).tiny)


def l3_penalty(tables: Iterable[Tensor]) -> Tensor:
    """``sum |x|^3`` over whole tables: the regulariser behind the published DistMult and ComplEx numbers."""
    return torch.stack([table.abs().pow(3).sum() for table in tables]).sum()


def n3_penalty(factors: Iterable[Tensor]) -> Tensor:
    """``sum |x|^3 / B`` over the batch's own rows ``[B, ...]`` (Lacroix et al., 2018)."""
    return torch.stack([factor.abs().pow(3).sum() / len(factor) for factor in factors]).sum()


LOSSES: dict[str, type[LogSigmoid]] = {
    "logsigmoid": LogSigmoid,
    "substitution": SubstitutionLoss,
}
