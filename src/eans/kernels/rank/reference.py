"""`compare_all` and `count_better` in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from eans.kernels.blocks import blocks
from eans.kernels.kinds import Comparison
from eans.kernels.rank import Counts, levels_of
from eans.kernels.vectors.reference import compare_rows


def compare_all(
    kind: Comparison, queries: Tensor, table: Tensor, shifts: Tensor | None = None, scalars: Tensor | None = None
) -> Tensor:
    """See `eans.kernels.compare_all`."""
    if shifts is None or scalars is None:
        if kind == "dot":
            return queries @ table.T
        if kind == "l1":
            return torch.cdist(queries, table, p=1.0).neg_()
    scores = queries.new_empty(len(queries), len(table))
    for block in blocks(len(table), queries.shape[1], queries.device):
        for index in range(len(queries)):
            candidate = table[block]
            if shifts is not None and scalars is not None:
                candidate = candidate + scalars[block, None] * shifts[index]
            scores[index, block] = compare_rows(kind, queries[index], candidate)
    return scores


def count_better(
    scores: Tensor,
    truth: Tensor,
    keys: Tensor,
    start: Tensor,
    stop: Tensor,
    levels: Tensor | None = None,
    first: int = 0,
    num_entities: int | None = None,
) -> Counts:
    """See `eans.kernels.count_better`."""
    batch, width = scores.shape
    target = (levels_of(scores, truth, first) if levels is None else levels)[:, None]
    counts = Counts(*(torch.empty(batch, dtype=torch.int64, device=scores.device) for _ in range(3)))
    for block in blocks(batch, width, scores.device):
        part = scores[block]
        counts.greater[block] = (part > target[block]).sum(1)
        counts.equal[block] = (part == target[block]).sum(1)
        counts.nan[block] = torch.isnan(part).sum(1)
    rows = torch.arange(batch, device=scores.device)
    _leave_out(counts, scores, target, rows, truth - first)
    ends = (stop - start).cumsum(0)
    # (row, answer) pairs a few at a time: one row may have almost as many answers as there are entities.
    for block in blocks(int(ends[-1]) if batch else 0, 16, scores.device):
        pair = torch.arange(block.start, block.stop, device=scores.device)
        row = torch.searchsorted(ends, pair, right=True)
        entity = keys[stop[row] - ends[row] + pair] % (num_entities or width)
        others = entity != truth[row]
        _leave_out(counts, scores, target, row[others], entity[others] - first)
    return counts


def _leave_out(counts: Counts, scores: Tensor, target: Tensor, rows: Tensor, columns: Tensor) -> None:
    """Take single scores out of the counts of their rows, as far as they are there."""
    here = (columns >= 0) & (columns < scores.shape[1])
    rows, columns = rows[here], columns[here]
    value, level = scores[rows, columns], target[rows, 0]
    counts.greater.index_add_(0, rows, (value > level).long(), alpha=-1)
    counts.equal.index_add_(0, rows, (value == level).long(), alpha=-1)
