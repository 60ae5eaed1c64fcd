"""The log-sigmoid loss over a batch, with self-adversarial weights and the substitution terms."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from torch import Tensor

from eans.kernels.log_sigmoid.reference import negative_loss, negative_shares
from eans.kernels.switch import operation

__all__ = ["loss_terms", "negative_loss", "negative_shares"]


@operation("triton")
def loss_terms(
    positive: Tensor,
    negative: Tensor,
    substitution: Tensor | None,
    known_true: Tensor,
    weight: Tensor,
    margin: float,
    temperature: float,
    substitution_weight: float = 0.0,
    substitution_regularization: float = 0.0,
) -> Tensor:
    """The parts of the log-sigmoid loss: positives, negatives, substitution: ``[3]``.

    Args:
        positive: scores ``[B]``.
        negative: scores ``[B, N]``.
        substitution: scores ``[B, N]``, or None for the plain loss.
        known_true: bool ``[B, N]``.
        weight: ``[B]``, of any sum.
        margin, temperature, substitution_weight, substitution_regularization: see `eans.losses`.
    """
