"""Binary cross-entropy against all entities: "1-N scoring" of ConvE (Dettmers et al., 2018), also called KvsAll."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor
from torch.nn.functional import logsigmoid

from eans.losses.base import Loss, Margin
from eans.options import Option
from eans.types import LossTerms, Scores


class BinaryCrossEntropy(Loss):
    """Every candidate is classified as true or not, and weighs as much as the positive.

    ``L = sum_i w_i (H(s_i, 1) + 1 / c_i sum_j [y_ij = 0] H(s_ij, 0))`` with
    ``H(s, y) = -z log sig(s) - (1 - z) log sig(-s)``, the smoothed label ``z = (1 - a) y + [a > 0] / N``, at most 1 (as
    in the authors' code), and ``c_i`` the number of candidates that are known to be true, at least 1.

    With the sampler ``all`` and masked false negatives ``c_i`` counts the answers of the query. Each of them brings its
    positive, so that over an epoch every query has each answer and each other entity once: the loss of 1-N scoring
    times a constant. With false negatives kept ``c_i`` is 1.

    Args:
        margin: added to every score.
        label_smoothing: ``a``.
    """

    terms = ("positive", "negative")

    def __init__(
        self,
        margin: Margin = 0.0,
        label_smoothing: Annotated[float, Option("a: labels are (1 - a) y + 1 / n instead of y", ge=0, lt=1)] = 0.0,
    ) -> None:
        super().__init__()
        self.margin = margin
        self.label_smoothing = label_smoothing

    def forward(
        self, scores: Scores, known_true: Tensor, weight: Tensor, log_proposal: Tensor | None = None
    ) -> LossTerms:
        del log_proposal
        weight = weight / weight.sum()
        false = 1 / max(1, known_true.shape[1]) if self.label_smoothing else 0.0
        true = min(1.0, 1 - self.label_smoothing + false)
        positive, negative = scores.positive + self.margin, scores.negative + self.margin
        rows = _cross_entropy(negative, false).masked_fill(known_true, 0.0).sum(1) / known_true.sum(1).clamp(min=1)
        return {"positive": (weight * _cross_entropy(positive, true)).sum(), "negative": (weight * rows).sum()}


def _cross_entropy(logits: Tensor, label: float) -> Tensor:
    """``-label log sig(s) - (1 - label) log sig(-s)``, of the shape of `logits`."""
    return (1 - label) * logits - logsigmoid(logits)
