"""`compare_all` and `count_better` on a CPU as compiled loops.

`count_better` passes once over the scores of a row and once over its known answers. Its results are whole numbers, so
they do not depend on the threads.
"""

# Numba's decorator is untyped, and the arguments of a loop are arrays and scalars whose types the compiler infers.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from numba import uint64
from torch import Tensor

from eans.kernels.comparison.numba import check
from eans.kernels.kinds import Comparison, width_of
from eans.kernels.numba_arrays import flat
from eans.kernels.numba_rows import KINDS, score_of, shifted_score_of
from eans.kernels.numba_threads import compiled, cuts, run_rows, share, threads_for
from eans.kernels.rank import Counts, check_counts, levels_of

# Bytes of table rows that stay in the second-level cache while all queries pass by.
TILE_BYTES = 1 << 18


@cache
def _all_loop(kind: int, moved: bool) -> Any:
    """The loop over entities ``[first, last)`` and all queries ``[B * D]``, `tile` rows at a time."""

    @compiled
    def all_loop(scores, queries, table, stride, shifts, scalars, dim, width, tile, first, last):
        columns, half = uint64(width), uint64(dim // 2)
        for start in range(first, last, tile):
            for b in range(len(scores)):
                q = uint64(b) * uint64(dim)
                for e in range(uint64(start), uint64(min(start + tile, last))):
                    r = e * uint64(stride)
                    if moved:
                        scores[b, e] = shifted_score_of(kind, queries, shifts, q, table, r, scalars[e], columns, half)
                    else:
                        scores[b, e] = score_of(kind, queries, q, table, r, columns, half)

    return all_loop


def compare_all(
    kind: Comparison, queries: Tensor, table: Tensor, shifts: Tensor | None = None, scalars: Tensor | None = None
) -> Tensor:
    """`eans.kernels.compare_all`, compiled; `dot` is a matrix product of PyTorch's."""
    if shifts is None or scalars is None:
        shifts = scalars = None
    none = torch.empty(len(queries), 0, dtype=torch.int64)
    check(kind, queries[None], table, none, None if shifts is None else shifts[None], scalars)
    if kind == "dot":
        scores = queries @ table.T
        if shifts is not None and scalars is not None:
            scores.addr_((queries * shifts).sum(1), scalars)
        return scores
    (batch, dim), num_entities = queries.shape, len(table)
    table = table if table.stride(1) == 1 else table.contiguous()
    scores = queries.new_empty(batch, num_entities)
    nothing = queries.new_empty(0)
    moves = flat(nothing if shifts is None else shifts.contiguous())
    factors = flat(nothing if scalars is None else scalars.contiguous())
    out, vectors, rows = scores.numpy(), flat(queries.contiguous()), flat(table)
    threads = threads_for(batch * table.numel())
    loop = _all_loop(KINDS[kind], shifts is not None)
    tile = max(1, TILE_BYTES // max(1, dim * table.element_size()))

    def part(first: int, last: int) -> None:
        loop(out, vectors, rows, table.stride(0), moves, factors, dim, width_of(kind, dim), tile, first, last)

    share(part, cuts(num_entities, 4 * threads, tile), threads)
    return scores


@compiled
def _count_loop(
    greater, equal, nan, scores, stride, width, begin, num_entities, truth, levels, keys, start, stop, first, last
):  # fmt: skip
    """Count in rows ``[first, last)`` of `scores` of entities ``[begin, begin + width)``, which lie `stride` apart.

    The others are ``[B]``. A place before the first is, unsigned, one behind the last.
    """
    columns, entities, offset = uint64(width), uint64(num_entities), uint64(begin)
    for b in range(uint64(first), uint64(last)):
        row = b * uint64(stride)
        level = levels[b]
        above = same = undefined = 0
        for e in range(columns):
            score = scores[row + e]
            above += score > level
            same += score == level
            undefined += score != score
        mine = uint64(truth[b]) - offset
        if mine < columns:
            score = scores[row + mine]
            above -= score > level
            same -= score == level
        for place in range(uint64(start[b]), uint64(stop[b])):
            e = uint64(keys[place]) % entities - offset
            if e < columns and e != mine:
                score = scores[row + e]
                above -= score > level
                same -= score == level
        greater[b], equal[b], nan[b] = above, same, undefined


def _check_counts(scores: Tensor, truth: Tensor, keys: Tensor, start: Tensor, stop: Tensor, bounds: range) -> None:
    """Raise for what the loop, which checks nothing, would read wrongly; arguments as of `count_better`.

    The true entities lie within `bounds`.
    """
    check_counts(scores, truth, keys, start, stop)
    if any(tensor.device.type != "cpu" for tensor in (scores, truth, keys, start, stop)):
        raise ValueError("the compiled loops take tensors on the CPU only")
    if not len(scores):
        return
    mine, begin, end = truth.numpy(), start.numpy(), stop.numpy()
    if mine.min() < bounds.start or mine.max() >= bounds.stop:
        raise IndexError(f"entities from {mine.min()} to {mine.max()} among {bounds.start} to {bounds.stop}")
    if begin.min() < 0 or end.max() > len(keys):
        raise IndexError(f"answers from {begin.min()} to {end.max()} among {len(keys)}")


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
    """`eans.kernels.count_better`, compiled; float32 or float64."""
    batch, width = scores.shape
    num_entities = num_entities or width
    within = range(first, first + width) if levels is None else range(num_entities)
    _check_counts(scores, truth, keys, start, stop, within)
    levels = levels_of(scores, truth, first) if levels is None else levels.to(scores.dtype)
    counts = Counts(*(torch.empty(batch, dtype=torch.int64) for _ in range(3)))
    scores = scores if scores.stride(1) == 1 else scores.contiguous()
    given = flat(scores), scores.stride(0), width, first, num_entities
    answers = [flat(tensor.contiguous()) for tensor in (truth, levels, keys, start, stop)]
    run_rows(_count_loop, batch, scores.numel(), *(flat(count) for count in counts), *given, *answers)
    return counts
