"""`softmax_nll` in plain PyTorch."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def log_count(negative: Tensor) -> float:
    """``log N`` of candidates ``[B, N]``; 0 if there are none."""
    return math.log(max(1, negative.shape[1]))


def log_candidates(negative: Tensor, known_true: Tensor, log_proposal: Tensor | None) -> Tensor:
    """``log(exp(s_ij) / (N q_ij))``, minus infinity where known to be true: three times ``[B, N]`` -> ``[B, N]``.

    Without a proposal ``1 / (N q_ij)`` is left out.
    """
    if log_proposal is not None:
        negative = negative - log_proposal - log_count(negative)
    return negative.masked_fill(known_true, -math.inf)


def softmax_nll(positive: Tensor, negative: Tensor, known_true: Tensor, log_proposal: Tensor | None) -> Tensor:
    """See `eans.kernels.softmax_nll`."""
    # log(exp(0) + sum_j exp(z_j - s)): the zero keeps a masked row finite.
    above = log_candidates(negative - positive[:, None], known_true, log_proposal)
    return torch.cat([torch.zeros_like(positive)[:, None], above], dim=1).logsumexp(1)
