"""The margin ranking loss (Bordes et al., 2013)."""

from __future__ import annotations

import torch
from torch import Tensor

from eans import kernels
from eans.errors import UsageError
from eans.losses.base import Loss, Margin, Temperature
from eans.types import LossTerms, Scores


class HingeLoss(Loss):
    """The margin ranking loss: each positive above its negatives by the margin, no matter where.

    ``L = sum_i w_i sum_j p_ij max(0, gamma - s_i + s_ij)`` over pairs that are not known to be true, ``s`` without the
    margin gamma and ``p_ij`` as of `LogSigmoid` (Bordes et al., 2013, have one negative). A pair that keeps the margin
    has no gradient.

    Args:
        margin: gamma, more than 0: without it, equal scores for everything would do.
        adversarial_temperature: see `LogSigmoid`.
    """

    terms = ("hinge",)
    needs_negatives = True
    least_margin = 1.0
    gradient_bound = 1.0

    def __init__(self, margin: Margin = 1.0, adversarial_temperature: Temperature = 0.0) -> None:
        if not margin > 0:
            raise UsageError(
                "loss.name 'hinge' keeps positives and negatives apart by a margin: set loss.margin above 0"
            )
        super().__init__()
        self.margin = margin
        self.adversarial_temperature = adversarial_temperature

    def forward(
        self, scores: Scores, known_true: Tensor, weight: Tensor, log_proposal: Tensor | None = None
    ) -> LossTerms:
        del log_proposal
        share = kernels.negative_shares(scores.negative.detach(), known_true, self.adversarial_temperature)
        missing = (self.margin - scores.positive[:, None] + scores.negative).clamp(min=0)
        rows = (share * torch.where(known_true, 0.0, missing)).sum(1)
        return {"hinge": (weight / weight.sum() * rows).sum()}
