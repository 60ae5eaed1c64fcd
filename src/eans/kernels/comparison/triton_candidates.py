"""Gradients of the candidates of `compare`: one program per (entity, slice of columns) walks the entity's pairs.

A stable sort has put the (positive, candidate) pairs of an entity side by side. Every row of the gradient table is
written, also those of entities that were not drawn, so the table needs no zero-fill. No atomics: the same bits every
time.

Notation: ``g`` is the gradient of a score, ``q`` a query, ``c = row + scalar * shift`` a candidate. With
``u = sign(q - c)`` for `l1` and ``u = (q - c) / |q - c|`` for `modulus` (0 where the difference is 0)::

    dot:            to_query = g c      to_candidate = g q
    l1, modulus:    to_query = -g u     to_candidate = g u
"""

# Triton has no type stubs, its decorator is untyped, and the arguments of a kernel have no Python types to state.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from eans.kernels.comparison.triton_arguments import Arguments
from eans.kernels.deferred_gradients import DeferredGradients, Segments
from eans.kernels.triton_sort import sorted_ids
from eans.kernels.triton_tiles import Tile, load_planes, moved, slice_of_row, to_candidate

# Rows are pairs of one entity.
CANDIDATE_TILES: dict[str, Tile] = {"dot": Tile(1, 128, 1), "l1": Tile(2, 128, 1), "modulus": Tile(1, 128, 1)}


@triton.jit
def walk_pairs(
    first, last, row, scalar,
    gradient,  # [Q, B, N], or [2, B, N] with MEAN
    queries, shifts,  # [Q, B, D]; no shifts: None
    order, batch, columns, within,
    N: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, KIND: tl.constexpr, Q: tl.constexpr,
    MEAN: tl.constexpr, SHIFTED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """What the pairs ``order[first : last]`` pull on the candidate `row`, as two planes ``[ROWS, COLUMNS]`` to be
    summed; and their pull along the shifts, likewise.
    """
    total_re = tl.zeros([ROWS, COLUMNS], dtype=queries.dtype.element_ty)
    total_im = total_re
    along = total_re
    for start in range(first, last, ROWS):
        place = start + tl.arange(0, ROWS)[:, None]
        mine = place < last
        # Beyond the end: the last pair again, with gradient 0.
        pair = tl.load(order + tl.minimum(place, last - 1)).to(tl.int32)
        here = (pair // N) * DIM + columns
        outer = tl.load(gradient + pair, mask=mine, other=0.0)
        for index in tl.static_range(Q):
            if index == 1 or (index == 2 and not MEAN):
                outer = tl.load(gradient + index * batch * N + pair, mask=mine, other=0.0)
            if MEAN and index == 1:
                outer /= Q - 1
            query = load_planes(queries + index * batch * DIM + here, within, WIDTH, KIND)
            shift = query
            if SHIFTED:
                shift = load_planes(shifts + index * batch * DIM + here, within, WIDTH, KIND)
            pull = to_candidate(outer, query, moved(row, scalar, shift, SHIFTED), KIND)
            total_re += pull[0]
            total_im += pull[1]
            if SHIFTED:
                along += pull[0] * shift[0]
                if KIND == "modulus":
                    along += pull[1] * shift[1]
    return total_re, total_im, along


@triton.jit
def last_use(order, first, last):
    """The last value of ``order[first : last]``; -1 if there is none."""
    return tl.load(order + last - 1, mask=last > first, other=-1)


@triton.jit
def _candidate_kernel(
    to_table,  # [E, D]
    to_scalars,  # [slices, E] or None
    gradient,  # [Q, B, N], or [2, B, N] with MEAN
    queries, table,  # see `Arguments`
    order, starts, ordering,  # see `Segments`; [E] or None
    shifts, scalars,  # see `Arguments`
    num_entities, batch, pairs, N: tl.constexpr,
    DIM: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr, KIND: tl.constexpr, Q: tl.constexpr,
    MEAN: tl.constexpr, SHIFTED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Gradient of one entity's row, for one slice of columns; of its scalar, the part from that slice.

    Entities are the fast axis: the programs that run at one time then share a slice of the queries.
    """
    place, part, entity, columns, within = slice_of_row(ordering, num_entities, WIDTH, COLUMNS)
    row = load_planes(table + entity * STRIDE + columns, within, WIDTH, KIND)
    scalar = 0.0
    if SHIFTED:
        scalar = tl.load(scalars + entity)
    first = tl.load(starts + place).to(tl.int32)
    last = tl.load(starts + place + 1).to(tl.int32)
    while last_use(order, first, last) >= pairs:  # gathered rows, which stand last
        last -= 1

    total_re, total_im, along = walk_pairs(
        first, last, row, scalar, gradient, queries, shifts, order, batch, columns, within,
        N, DIM, WIDTH, KIND, Q, MEAN, SHIFTED, ROWS, COLUMNS,
    )  # fmt: skip
    target = to_table + entity * DIM + columns
    tl.store(target, tl.sum(total_re, axis=0)[None, :], mask=within)
    if KIND == "modulus":
        tl.store(target + WIDTH, tl.sum(total_im, axis=0)[None, :], mask=within)
    if SHIFTED:
        along = tl.where(within, along, 0.0)
        tl.store(to_scalars + part * num_entities + entity, tl.sum(tl.sum(along, axis=0), axis=0))


def candidate_gradients(
    gradient: Tensor, given: Arguments, deferred: DeferredGradients | None = None
) -> tuple[Tensor, Tensor | None]:
    """Gradients of the table ``[E, D]`` and of the scalars ``[E]`` from that of the scores.

    `deferred` may hold the segments of the entities, in its ordering. An entity that is drawn far more often than the
    others is walked by as few programs as any other, one after the other: correct, but slow.
    """
    entities, num_entities = given.entities, len(given.table)
    tile = given.tile(CANDIDATE_TILES)
    slices = triton.cdiv(given.width, tile.columns)
    ordering, segments = None, None if deferred is None else deferred.planned(entities)
    if deferred is not None and segments is not None:
        deferred.side_stream.join()
        ordering = None if deferred.ordering is None else deferred.ordering[0]
    else:
        segments = Segments(*sorted_ids(entities.reshape(-1), num_entities), entities.numel())
    to_table = given.queries.new_empty(num_entities, given.queries.shape[2])
    to_scalars = None if given.scalars is None else given.queries.new_empty(slices, num_entities)
    _candidate_kernel[(num_entities * slices,)](
        to_table, to_scalars, gradient, given.queries, given.table, segments.order, segments.starts, ordering,
        given.shifts, given.scalars, num_entities, given.queries.shape[1], segments.pairs,
        N=max(1, entities.shape[1]), **given.constants(tile),
    )  # fmt: skip
    return to_table, None if to_scalars is None else to_scalars.sum(0)
