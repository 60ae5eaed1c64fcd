"""`best` in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from eans.kernels.selection import Best


def best(
    scores: Tensor,
    k: int,
    keys: Tensor,
    start: Tensor,
    stop: Tensor,
    first: int = 0,
    num_entities: int | None = None,
) -> Best:
    """See `eans.kernels.best`."""
    batch, width = scores.shape
    counts = stop - start
    rows = torch.repeat_interleave(torch.arange(batch, device=scores.device), counts)
    offset = torch.arange(len(rows), device=scores.device) - (counts.cumsum(0) - counts)[rows]
    columns = keys[start[rows] + offset] % (num_entities or width) - first
    here = (columns >= 0) & (columns < width)
    known = torch.zeros_like(scores, dtype=torch.bool)
    known[rows[here], columns[here]] = True
    # By id, then by score, then by being known: each sort keeps the order of the one before among equals.
    order = scores.argsort(dim=1, descending=True, stable=True)
    order = order.gather(1, known.gather(1, order).to(torch.uint8).argsort(dim=1, stable=True))[:, :k]
    few = torch.arange(k, device=scores.device) >= (~known).sum(1)[:, None]
    values = scores.gather(1, order).masked_fill(few, -torch.inf)
    return Best(values, (order + first).masked_fill(few, -1), torch.isnan(scores).any(1))
