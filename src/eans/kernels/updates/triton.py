"""Adam and Adagrad for one table as one kernel, which adds up the parts of the gradient on the way.

One program per (row of the table, slice of columns) sums what the row's candidate pairs, its gathered rows and the
other parts of a deferred gradient contribute, and applies the step at once: the gradient never exists as a table. With
dense Adam, rows without a gradient still move by their momentum. Otherwise they are not touched, and in a large table
there is one program per use of a row instead, of which the row's first one does the work: nothing depends on the size
of the table, and nothing waits to learn how many rows are used. No atomics: the same bits every time.
"""

# Triton has no type stubs, its decorator is untyped, and the arguments of a kernel have no Python types to state.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from eans.kernels.comparison.triton_candidates import CANDIDATE_TILES, last_use, walk_pairs
from eans.kernels.deferred_gradients import CandidateGradient, DeferredGradients, RowGradient, Segments, Uses
from eans.kernels.triton_sort import segments_of
from eans.kernels.triton_tiles import Tile, fitted, load_planes, slice_of, slice_of_row
from eans.kernels.updates import Betas

COLLECTS, ROUNDS = True, True
# Rows are uses of one row of the table. Where a row has few of them on average, the moments' traffic counts most.
PLAIN_TILE, FEW_TILE, FEW_USES = Tile(4, 256, 1), Tile(1, 512, 2), 4
WARP_COLUMNS = 256  # of a row that one program holds as a whole


@triton.jit
def _advance_kernel(step, factors, rate, BETA1: tl.constexpr, BETA2: tl.constexpr):
    """Count a step; `factors` = the size of the step and the factor of the root, with betas corrected for the start."""
    count = tl.load(step) + 1.0
    tl.store(step, count)
    if BETA1 is None:
        tl.store(factors, tl.load(rate))
        tl.store(factors + 1, 1.0)
    else:
        count = count.to(tl.float64)
        first = 1.0 - tl.exp(count * tl.log(tl.full((), BETA1, tl.float64)))
        second = 1.0 - tl.exp(count * tl.log(tl.full((), BETA2, tl.float64)))
        tl.store(factors, tl.load(rate).to(tl.float64) / first)
        tl.store(factors + 1, 1.0 / tl.sqrt(second))


def advance(step: Tensor, rate: Tensor, betas: Betas | None, out: Tensor) -> None:
    """See `eans.kernels.UpdateKernels`; nothing waits for the device."""
    beta1, beta2 = betas or (None, None)
    _advance_kernel[(1,)](step, out, rate, BETA1=beta1, BETA2=beta2)


@triton.jit
def _store(table, rounded, place, value, inside):
    tl.store(table + place, value, mask=inside)
    if rounded is not None:
        tl.store(rounded + place, value.to(tl.bfloat16), mask=inside)


@triton.jit
def _apply(
    table, averages, squares, rounded, factors, place, value, gradient, inside,
    BETA1: tl.constexpr, BETA2: tl.constexpr, EPSILON: tl.constexpr,
):  # fmt: skip
    """Adam, or without averages Adagrad, for the values `value` at offsets `place`."""
    if averages is None:
        average = gradient
        square = tl.load(squares + place, mask=inside)
        square += gradient * gradient
    else:
        average = tl.load(averages + place, mask=inside)
        square = tl.load(squares + place, mask=inside)
        average += (gradient - average) * (1.0 - BETA1)
        square = square * BETA2 + gradient * gradient * (1.0 - BETA2)
    size = tl.load(factors)
    root = tl.load(factors + 1)
    if averages is not None:
        tl.store(averages + place, average, mask=inside)
    tl.store(squares + place, square, mask=inside)
    value -= size * average / (tl.sqrt(square) * root + EPSILON)
    _store(table, rounded, place, value, inside)


@triton.jit
def _update_kernel(
    table,  # [E, F]
    averages,  # [E, F], or None for Adagrad
    squares,  # [E, F]; with ROW_WISE [E]
    rounded,  # [E, F] or None
    factors,  # [2]
    gradient,  # [Q, B, N], or [2, B, N] with MEAN; or None
    queries,  # [Q, B, F] or None
    order,  # [M] or None
    starts,  # [E + 1] or None; with keys the ends of the uses' segments, [M]
    keys,  # [M], or None for a program per row
    ordering,  # [E] or None
    rows,  # [M, F] or None
    leading,  # [E, LEADING] or None
    dense,  # [E, F] or None
    products,  # [E] or None
    cubed,  # scalar or None
    places, batch, pairs,
    N: tl.constexpr, WIDTH: tl.constexpr, PLANES: tl.constexpr, KIND: tl.constexpr, Q: tl.constexpr,
    MEAN: tl.constexpr, LEADING: tl.constexpr, FOLLOWING: tl.constexpr, USED_ONLY: tl.constexpr,
    ROW_WISE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    BETA1: tl.constexpr, BETA2: tl.constexpr, EPSILON: tl.constexpr,
):  # fmt: skip
    """One slice of columns of one row; in two planes of WIDTH columns when the halves of a row belong together.

    A program per row, or per use, of `places` rows or uses. USED_ONLY: rows that have no use in `order` are left alone.
    ROW_WISE: there is one slice, and one square per row.
    """
    FULL: tl.constexpr = PLANES * WIDTH
    PLANE_KIND: tl.constexpr = "modulus" if PLANES == 2 else "l1"
    first = 0
    last = 0
    if keys is not None:
        first = tl.program_id(0) % places
        place = tl.load(keys + first).to(tl.int64)
        before = tl.load(keys + first - 1, mask=first > 0, other=-1).to(tl.int64)
        if before == place:  # not the first use of its row
            return
        last = tl.load(starts + first).to(tl.int32)
        row, columns, within = slice_of(place, tl.program_id(0) // places, ordering, WIDTH, COLUMNS)
    else:
        place, _, row, columns, within = slice_of_row(ordering, places, WIDTH, COLUMNS)
    if keys is None and order is not None:
        first = tl.load(starts + place).to(tl.int32)
        last = tl.load(starts + place + 1).to(tl.int32)
    if USED_ONLY:
        within = within & (first < last)
    here = row * FULL + columns
    value = load_planes(table + here, within, WIDTH, PLANE_KIND)
    first_plane = tl.zeros([1, COLUMNS], dtype=table.dtype.element_ty)
    second_plane = first_plane

    if order is not None:
        if FOLLOWING:
            # Gathered rows stand at the end of the segment. There are few of them.
            source = last_use(order, first, last)
            while source >= pairs:
                gathered = load_planes(rows + (source - pairs) * FULL + columns, within, WIDTH, PLANE_KIND)
                first_plane += gathered[0]
                second_plane += gathered[1]
                last -= 1
                source = last_use(order, first, last)
        elif rows is not None:
            total_re = tl.zeros([ROWS, COLUMNS], dtype=table.dtype.element_ty)
            total_im = total_re
            for start in range(first, last, ROWS):
                which = start + tl.arange(0, ROWS)[:, None]
                mine = (which < last) & within
                source = tl.load(order + tl.minimum(which, last - 1)) * FULL + columns
                total_re += tl.load(rows + source, mask=mine, other=0.0)
                if PLANES == 2:
                    total_im += tl.load(rows + source + WIDTH, mask=mine, other=0.0)
            first_plane += tl.sum(total_re, axis=0)[None, :]
            second_plane += tl.sum(total_im, axis=0)[None, :]
        if queries is not None:
            total_re, total_im, _ = walk_pairs(
                first, last, value, 0.0, gradient, queries, None, order, batch, columns, within,
                N, FULL, WIDTH, KIND, Q, MEAN, False, ROWS, COLUMNS,
            )  # fmt: skip
            first_plane += tl.sum(total_re, axis=0)[None, :]
            second_plane += tl.sum(total_im, axis=0)[None, :]
    if leading is not None:
        first_plane += tl.load(leading + row * LEADING + columns, mask=within & (columns < LEADING), other=0.0)
        if PLANES == 2:
            after = columns + WIDTH
            second_plane += tl.load(leading + row * LEADING + after, mask=within & (after < LEADING), other=0.0)
    if dense is not None:
        other = load_planes(dense + here, within, WIDTH, PLANE_KIND)
        first_plane += other[0]
        second_plane += other[1]
    if products is not None:
        pull = tl.load(products + row)
        first_plane += pull * value[1]
        second_plane += pull * value[0]
    if cubed is not None:
        weight = 3.0 * tl.load(cubed)
        first_plane += weight * value[0] * tl.abs(value[0])
        second_plane += weight * value[1] * tl.abs(value[1])

    if ROW_WISE:
        total = tl.where(within, first_plane * first_plane, 0.0)
        if PLANES == 2:
            total += tl.where(within, second_plane * second_plane, 0.0)
        square = tl.load(squares + row) + tl.sum(tl.sum(total, axis=1), axis=0) / FULL
        tl.store(squares + row, square)
        scale = tl.load(factors) / (tl.sqrt(square) * tl.load(factors + 1) + EPSILON)
        _store(table, rounded, here, value[0] - scale * first_plane, within)
        if PLANES == 2:
            _store(table, rounded, here + WIDTH, value[1] - scale * second_plane, within)
        return
    _apply(table, averages, squares, rounded, factors, here, value[0], first_plane, within, BETA1, BETA2, EPSILON)
    if PLANES == 2:
        here += WIDTH
        _apply(table, averages, squares, rounded, factors, here, value[1], second_plane, within, BETA1, BETA2, EPSILON)


def _uses(
    deferred: DeferredGradients, rows: list[RowGradient], num_rows: int, used_only: bool
) -> Segments | Uses | None:
    """The segments of the parts that must be added up: from the plan, if it was for exactly these."""
    candidates = deferred.candidates[0] if deferred.candidates else None
    if deferred.plan is not None:
        deferred.side_stream.join()
        whole = [part.ticket for part in rows] == list(range(deferred.plan.gatherings))
        fits = used_only or isinstance(deferred.plan.segments, Segments)
        if fits and whole and (candidates is None or candidates.entities is deferred.plan.entities):
            return deferred.plan.segments
    if candidates is None and not rows:
        return None
    entities = None if candidates is None else candidates.entities
    return segments_of(entities, [part.ids for part in rows], num_rows, deferred.ordering, used_only)


def update(
    table: Tensor, averages: Tensor | None, squares: Tensor, factors: Tensor, deferred: DeferredGradients | None,
    dense: Tensor | None, betas: Betas | None, epsilon: float,
) -> None:  # fmt: skip
    """See `eans.kernels.UpdateKernels`."""
    assert deferred is not None
    num_rows, full = table.shape
    beta1, beta2 = betas or (None, None)
    candidates = deferred.candidates[0] if deferred.candidates else None
    parts = deferred.sorted_rows()
    used_only = dense is None and not deferred.whole and (averages is None or deferred.by_rows)
    uses = _uses(deferred, parts, num_rows, used_only)
    if used_only and uses is None:
        return
    by_use = uses if isinstance(uses, Uses) else None
    bounds = uses.starts if isinstance(uses, Segments) else None
    places = num_rows if by_use is None else len(by_use.keys)
    gradients = [part.gradient for part in parts]
    rows = torch.cat(gradients) if len(gradients) > 1 else gradients[0] if gradients else None
    halved = (candidates is not None and candidates.kind == "modulus") or bool(deferred.products)
    width = full // 2 if halved else full
    row_wise = squares.dim() == 1
    tile = _whole_row(width) if row_wise else fitted(_tile(candidates, num_rows), width)
    with torch.cuda.device_of(table):
        _update_kernel[(places * triton.cdiv(width, tile.columns),)](
            table,
            averages,
            squares,
            deferred.rounded,
            factors,
            None if candidates is None else candidates.gradient,
            None if candidates is None else candidates.queries,
            None if uses is None else uses.order,
            bounds if by_use is None else by_use.ends,
            None if by_use is None else by_use.keys,
            None if deferred.ordering is None else deferred.ordering[0],
            rows,
            deferred.leading[0] if deferred.leading else None,
            dense,
            _sum(deferred.products),
            _sum(deferred.cubed),
            places,
            1 if candidates is None else candidates.queries.shape[1],
            0 if uses is None else uses.pairs,
            N=1 if candidates is None else max(1, candidates.entities.shape[1]),
            WIDTH=width,
            PLANES=2 if halved else 1,
            KIND="l1" if candidates is None else candidates.kind,
            Q=1 if candidates is None else len(candidates.queries),
            MEAN=candidates is not None and candidates.mean_rest,
            LEADING=deferred.leading[0].shape[1] if deferred.leading else 0,
            FOLLOWING=uses is not None and uses.pairs > 0 and rows is not None,
            USED_ONLY=used_only and by_use is None,
            ROW_WISE=row_wise,
            ROWS=tile.rows,
            COLUMNS=tile.columns,
            BETA1=beta1,
            BETA2=beta2,
            EPSILON=epsilon,
            num_warps=tile.warps,
        )


def _whole_row(width: int) -> Tile:
    """One program for all columns of a row."""
    columns = triton.next_power_of_2(width)
    return Tile(1, columns, min(max(1, columns // WARP_COLUMNS), 8))


def _tile(candidates: CandidateGradient | None, num_rows: int) -> Tile:
    if candidates is None:
        return PLAIN_TILE
    return FEW_TILE if candidates.entities.numel() < FEW_USES * num_rows else CANDIDATE_TILES[candidates.kind]


def _sum(parts: list[Tensor]) -> Tensor | None:
    return None if not parts else parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)
