"""The log-sigmoid loss of RotatE (Sun et al., 2019), with self-adversarial weights as an option."""

from __future__ import annotations

from torch import Tensor

from eans import kernels
from eans.losses.base import Loss, Margin, Temperature
from eans.types import LossTerms, Scores


class LogSigmoid(Loss):
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

    terms = ("positive", "negative")
    gradient_bound = 0.5

    def __init__(self, margin: Margin = 0.0, adversarial_temperature: Temperature = 0.0) -> None:
        super().__init__()
        self.margin = margin
        self.adversarial_temperature = adversarial_temperature

    def forward(
        self, scores: Scores, known_true: Tensor, weight: Tensor, log_proposal: Tensor | None = None
    ) -> LossTerms:
        del log_proposal
        plain = scores.positive, scores.negative, None
        # Without substitution scores the third term is an exact zero.
        positive, negative, _ = kernels.loss_terms(
            *plain, known_true, weight, self.margin, self.adversarial_temperature
        ).unbind()
        return {"positive": positive, "negative": negative}
