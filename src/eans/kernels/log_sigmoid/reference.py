"""`loss_terms` in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


def negative_shares(logits: Tensor, known_true: Tensor, temperature: float) -> Tensor:
    """Weight of each negative inside its row, zero where masked: ``[B, N]`` -> ``[B, N]``.

    Equal weights count masked negatives in N; adversarial ones sum to 1 over the unmasked.
    """
    if not logits.shape[1]:  # a row without negatives has no maximum either
        return torch.zeros_like(logits)
    unmasked = ~known_true
    if temperature == 0.0:
        return unmasked.to(logits.dtype) / logits.shape[1]
    scaled = torch.where(unmasked, temperature * logits, -torch.inf)
    # A row that is masked throughout has no maximum; any finite one makes its shares zero rather than NaN.
    top = scaled.amax(1, keepdim=True)
    exponentials = torch.exp(scaled - torch.where(torch.isinf(top), 0.0, top))
    return exponentials / exponentials.sum(1, keepdim=True).clamp(min=torch.finfo(logits.dtype).tiny)


def negative_loss(logits: Tensor, known_true: Tensor, weight: Tensor, temperature: float) -> Tensor:
    """``-sum_i w_i sum_j p_ij log sig(-s_ij)`` of negative logits ``[B, N]``, the known-true ones left out."""
    share = negative_shares(logits.detach(), known_true, temperature)
    return -(weight[:, None] * share * torch.where(known_true, 0.0, logsigmoid(-logits))).sum()


def loss_terms(
    positive: Tensor, negative: Tensor, substitution: Tensor | None, known_true: Tensor, weight: Tensor,
    margin: float, temperature: float, substitution_weight: float = 0.0, substitution_regularization: float = 0.0,
) -> Tensor:  # fmt: skip
    """See `eans.kernels.loss_terms`."""
    weight = weight / weight.sum()
    up = -(weight * logsigmoid(positive + margin)).sum()
    if substitution is None:
        down = negative_loss(negative + margin, known_true, weight, temperature)
        return torch.stack([up / 2, down / 2, torch.zeros_like(up)])
    logit = substitution + margin
    down = negative_loss(negative + margin - substitution_regularization * logit, known_true, weight, temperature)
    missed = torch.where(known_true, -logsigmoid(logit), 0.0).sum() / known_true.sum().clamp(min=1)
    size = logit.abs().mean() if logit.numel() else logit.sum()  # no negatives: 0, not 0 / 0
    predicted = substitution_weight * missed + substitution_regularization * size
    return torch.stack([up / 2, down / 2, predicted])
