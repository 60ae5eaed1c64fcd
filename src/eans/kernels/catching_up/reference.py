"""Lazy Adam's rows in plain PyTorch: the definition that every faster kernel must equal."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from eans.kernels.catching_up import TERMS
from eans.kernels.updates import Betas

BLOCK_ROWS = 1 << 16


@cache
def powers(betas: Betas, device: torch.device) -> Tensor:
    """``rho^j`` and ``rho^j b2^(-j/2)`` for j from TERMS down to 1: float64 ``[TERMS, 2]``."""
    away = torch.arange(TERMS, 0, -1, dtype=torch.float64)
    first, second = (math.log(beta) for beta in betas)
    return torch.stack([(away * (first - second / 2)).exp(), (away * (first - second)).exp()], dim=1).to(device)


def remember(sums: Tensor, step: Tensor, factors: Tensor, betas: Betas) -> None:
    """See `eans.kernels.catching_up.remember`; nothing waits for the device."""
    size, root = factors.double()
    weight = size / root
    before = step.long() + torch.arange(TERMS, device=sums.device)
    sums.index_add_(0, before, powers(betas, sums.device) * torch.stack([weight, weight / root]))


def catch_up(
    table: Tensor, averages: Tensor, squares: Tensor, last: Tensor, sums: Tensor, step: Tensor, betas: Betas,
    epsilon: float, ids: Tensor | None = None, upcoming: bool = False, rounded: Tensor | None = None,
) -> None:  # fmt: skip
    """See `eans.kernels.catching_up.catch_up`; with ids, the device is waited for."""
    blocks = (
        torch.split(torch.arange(len(table), device=table.device), BLOCK_ROWS) if ids is None else (torch.unique(ids),)
    )
    now = step.to(last.dtype)
    for rows in blocks:
        since = last[rows]
        # A row that never had a gradient has no momentum.
        lag = torch.where(since > 0, now - since, 0).clamp(min=0).double()[:, None]
        reach, weighted = sums[TERMS + since.long()].where(lag > 0, 0.0).to(table.dtype)[..., None].unbind(1)
        floor = epsilon * torch.where(reach > 0, weighted / reach, 1.0)
        table[rows] -= reach * averages[rows] / (squares[rows].sqrt() + floor)
        averages[rows] *= (lag * math.log(betas[0])).exp().to(table.dtype)
        squares[rows] *= (lag * math.log(betas[1])).exp().to(table.dtype)
        last[rows] = torch.maximum(since, now + upcoming)
        if rounded is not None:
            rounded[rows] = table[rows].to(rounded.dtype)
