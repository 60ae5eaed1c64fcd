"""`compare` on a CPU as compiled, multi-threaded loops, with autograd around them.

``[batch, negatives, dim]`` never exists, and no compiler is needed where this runs: Numba brings one and keeps what it
compiled (next to this file, or in ``NUMBA_CACHE_DIR``, or in the user's cache where those cannot be written).

The number of threads is PyTorch's (`torch.set_num_threads`); results have the same bits for any number.
"""

# Numba's decorator is untyped, and the arguments of a loop are arrays and scalars whose types the compiler infers.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from numba import uint64
from torch import Tensor
from torch.nn.functional import embedding

from eans.kernels.comparison.numba_gradients import gradients
from eans.kernels.comparison.numba_pairs import Pairs, distinct, pairs_by_entity
from eans.kernels.comparison.reference import contiguous, with_mean_rest
from eans.kernels.deferred_gradients import DeferredGradients, RowGradient, leave_leading
from eans.kernels.kinds import Comparison, width_of
from eans.kernels.numba_arrays import flat
from eans.kernels.numba_rows import KINDS, score_of, shifted_score_of
from eans.kernels.numba_threads import compiled, cuts, share, threads_for

# Where at most this share of all rows is compared with, their gradients alone are kept.
FEW_ROWS = 0.5


@cache
def _pairs_loop(kind: int, moved: bool) -> Any:
    """The loop over pairs ``[first, last)``, for one query of each positive.

    `query`, `shift` ``[B * D]``, `table` rows `stride` apart, `scalars` ``[E]``, the others ``[B * N]``.
    """

    @compiled
    def pairs_loop(scores, query, table, stride, place, entity, positive, shift, scalars, dim, width, first, last):
        columns, half = uint64(width), uint64(dim // 2)
        for p in range(uint64(first), uint64(last)):
            e = uint64(entity[p])
            q = uint64(positive[p]) * uint64(dim)
            r = e * uint64(stride)
            if moved:
                score = shifted_score_of(kind, query, shift, q, table, r, scalars[e], columns, half)
            else:
                score = score_of(kind, query, q, table, r, columns, half)
            scores[uint64(place[p])] = score

    return pairs_loop


def _scores(
    kind: Comparison,
    queries: Tensor,
    table: Tensor,
    pairs: Pairs,
    shifts: Tensor | None,
    scalars: Tensor | None,
) -> Tensor:
    """Scores ``[Q, B * N]``; arguments contiguous except for the stride of the table's rows."""
    count, _, dim = queries.shape
    scores = queries.new_empty(count, len(pairs.place))
    threads = threads_for(scores.numel() * dim)
    loop = _pairs_loop(KINDS[kind], shifts is not None)
    factors = flat(queries.new_empty(0) if scalars is None else scalars)
    rows, width = flat(table), width_of(kind, dim)
    planes = [
        (flat(scores[index]), flat(queries[index]), flat(queries.new_empty(0) if shifts is None else shifts[index]))
        for index in range(count)
    ]

    def part(index: int, first: int, last: int) -> None:
        out, query, shift = planes[index]
        loop(out, query, rows, table.stride(0), *pairs, shift, factors, dim, width, first, last)

    # More parts than threads: the cores of a machine are seldom equally free.
    parts = cuts(len(pairs.place), 4 * threads if threads > 1 else 1)
    share(part, [(index, *cut) for index in range(count) for cut in parts], threads)
    return scores


class _Compare(torch.autograd.Function):
    """Forward and backward of `compare`; `dot` without shifts only."""

    @staticmethod
    def forward(
        ctx: Any, kind: Comparison, queries: Tensor, table: Tensor, entities: Tensor, shifts: Tensor | None,
        scalars: Tensor | None, deferred: DeferredGradients | None,
    ) -> Tensor:  # fmt: skip
        ctx.deferred = deferred
        queries, table, entities, shifts, scalars = contiguous(queries, table, entities, shifts, scalars)
        ctx.kind = kind
        ctx.pairs = pairs_by_entity(entities, len(table))
        ctx.save_for_backward(queries, table, shifts, scalars)
        scores = _scores(kind, queries, table, ctx.pairs, shifts, scalars)
        return scores.view(*queries.shape[:2], entities.shape[1])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        queries, table, shifts, scalars = ctx.saved_tensors
        given = ctx.kind, gradient.contiguous(), queries, table, ctx.pairs, shifts, scalars
        if ctx.deferred is not None and table.is_contiguous():
            ids, targets = distinct(ctx.pairs)
            if ctx.deferred.by_rows or len(ids) <= FEW_ROWS * len(table):
                to_queries, to_rows, to_shifts, to_scalars = gradients(*given, (targets, len(ids)))
                rows = torch.from_numpy(ids)
                ctx.deferred.rows.append(RowGradient(ctx.deferred.gather(rows), rows, to_rows))
                return None, to_queries, None, None, to_shifts, to_scalars, None
        to_queries, to_table, to_shifts, to_scalars = gradients(*given)
        return None, to_queries, leave_leading(ctx.deferred, to_table), None, to_shifts, to_scalars, None


def check(
    kind: Comparison, queries: Tensor, table: Tensor, entities: Tensor, shifts: Tensor | None, scalars: Tensor | None
) -> None:
    """Raise for what the loops, which check nothing, would read wrongly; arguments as of `compare`."""
    width_of(kind, queries.shape[2])
    given = [tensor for tensor in (queries, table, shifts, scalars) if tensor is not None]
    if {tensor.dtype for tensor in given} not in ({torch.float32}, {torch.float64}) or entities.dtype != torch.int64:
        types = ", ".join(str(tensor.dtype) for tensor in (*given, entities))
        raise TypeError(f"queries and rows are all float32 or all float64 and entities int64, not {types}")
    if any(tensor.device.type != "cpu" for tensor in (*given, entities)):
        raise ValueError("the compiled loops take tensors on the CPU only")
    fits = table.shape[1] == queries.shape[2] and len(entities) == queries.shape[1]
    fits &= shifts is None or shifts.shape == queries.shape
    fits &= scalars is None or scalars.shape == table.shape[:1]
    if not fits:
        raise ValueError(f"sizes differ: {', '.join(str(list(tensor.shape)) for tensor in (*given, entities))}")
    if entities.numel():
        ids = entities.numpy()  # PyTorch would wake its own threads, which then keep the cores busy for a while
        least, most = ids.min(), ids.max()
        if least < 0 or most >= len(table):
            raise IndexError(f"entities from {least} to {most} in a table of {len(table)} rows")


def compare(
    kind: Comparison, queries: Tensor, table: Tensor, entities: Tensor,
    shifts: Tensor | None = None, scalars: Tensor | None = None, mean_rest: bool = False,
    deferred: DeferredGradients | None = None,
) -> Tensor:  # fmt: skip
    """`eans.kernels.compare`, compiled; float32 or float64."""
    if mean_rest:
        return with_mean_rest(compare(kind, queries, table, entities, shifts, scalars, deferred=deferred))
    if shifts is None or scalars is None:
        shifts = scalars = None
    check(kind, queries, table, entities, shifts, scalars)
    if kind == "dot" and shifts is not None and scalars is not None:
        # q . (row + scalar * shift) = q . row + scalar * (q . shift)
        factors = embedding(entities, scalars[:, None]).squeeze(2)
        plain = compare(kind, queries, table, entities, deferred=deferred)
        return plain + factors * (queries * shifts).sum(2, keepdim=True)
    scores: Tensor = _Compare.apply(kind, queries, table, entities, shifts, scalars, deferred)
    return scores
