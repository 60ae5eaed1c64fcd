"""Gradients of the queries of `compare`: one program per (positive, slice of columns) walks the positive's candidates.

The differences are computed again instead of being read, and the columns of the slice stay in registers, so that no
reduction across threads sits inside the loop. No atomics: the same bits every time. Nothing waits for the device, so
the launch can be captured in a CUDA graph.
"""

# Triton has no type stubs, its decorator is untyped, and the arguments of a kernel have no Python types to state.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from eans.kernels.comparison.triton_arguments import Arguments
from eans.kernels.triton_tiles import Tile, load_planes, moved, to_candidate

# Rows are candidates of one positive.
QUERY_TILES: dict[str, Tile] = {"dot": Tile(2, 128, 1), "l1": Tile(8, 128, 1), "modulus": Tile(4, 64, 1)}
SHIFTED_QUERY_TILE = Tile(2, 128, 1)
# Several warps share the candidates of a positive that has many: more programs of one slice of columns then run at a
# time, and fewer of other slices, whose rows would not fit into the L2 cache beside it.
MANY = 512
MANY_QUERY_TILES: dict[str, Tile] = {"dot": Tile(16, 128, 4), "l1": Tile(8, 128, 4), "modulus": Tile(16, 64, 4)}


@triton.jit
def _query_step(state, query, shift, row, scalar, outer, KIND: tl.constexpr, SHIFTED: tl.constexpr):
    """Add what rows ``[R, C]`` with score gradients `outer` ``[R, 1]`` pull on one query (and on its shift)."""
    query_re, query_im, shift_re, shift_im = state
    candidate = moved(row, scalar, shift, SHIFTED)
    pull = to_candidate(outer, query, candidate, KIND)
    if KIND == "dot":
        query_re += outer * candidate[0]
        query_im += outer * candidate[1]
    else:
        query_re -= pull[0]
        query_im -= pull[1]
    if SHIFTED:
        shift_re += scalar * pull[0]
        shift_im += scalar * pull[1]
    return query_re, query_im, shift_re, shift_im


@triton.jit
def _store_query(state, to_query, to_shift, inside, WIDTH: tl.constexpr, KIND: tl.constexpr, SHIFTED: tl.constexpr):
    """Sum the rows of one query's state ``4 x [R, C]`` and store them at column pointers ``[1, C]``."""
    query_re, query_im, shift_re, shift_im = state
    tl.store(to_query, tl.sum(query_re, axis=0)[None, :], mask=inside)
    if SHIFTED:
        tl.store(to_shift, tl.sum(shift_re, axis=0)[None, :], mask=inside)
    if KIND == "modulus":
        tl.store(to_query + WIDTH, tl.sum(query_im, axis=0)[None, :], mask=inside)
        if SHIFTED:
            tl.store(to_shift + WIDTH, tl.sum(shift_im, axis=0)[None, :], mask=inside)


@triton.jit
def _query_kernel(
    to_queries,  # [Q, B, D]
    to_shifts,  # [Q, B, D] or None
    gradient,  # [Q, B, N], or [2, B, N] with MEAN
    queries, table, entities, shifts, scalars,  # see `Arguments`
    batch, N: tl.constexpr,
    DIM: tl.constexpr, WIDTH: tl.constexpr, STRIDE: tl.constexpr, KIND: tl.constexpr, Q: tl.constexpr,
    MEAN: tl.constexpr, SHIFTED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Gradients of all queries of one positive, for one slice of columns.

    Positives are the fast axis: the programs that run at one time then share a slice of the table, which is small
    enough to stay in the L2 cache.
    """
    positive = tl.program_id(0) % batch
    columns = (tl.program_id(0) // batch) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    within = columns < WIDTH
    plane = batch * DIM  # from one query of a positive to its next
    here = positive * DIM + columns

    query0 = load_planes(queries + here, within, WIDTH, KIND)
    shift0 = query0
    query1 = query0
    shift1 = query0
    query2 = query0
    shift2 = query0
    if SHIFTED:
        shift0 = load_planes(shifts + here, within, WIDTH, KIND)
    if Q > 1:
        query1 = load_planes(queries + plane + here, within, WIDTH, KIND)
        if SHIFTED:
            shift1 = load_planes(shifts + plane + here, within, WIDTH, KIND)
    if Q > 2:
        query2 = load_planes(queries + 2 * plane + here, within, WIDTH, KIND)
        if SHIFTED:
            shift2 = load_planes(shifts + 2 * plane + here, within, WIDTH, KIND)

    zero = tl.zeros([ROWS, COLUMNS], dtype=queries.dtype.element_ty)
    state0 = (zero, zero, zero, zero)
    state1 = (zero, zero, zero, zero)
    state2 = (zero, zero, zero, zero)
    for start in range(0, N, ROWS):
        candidate = start + tl.arange(0, ROWS)[:, None]
        drawn = candidate < N
        pair = positive * N + tl.minimum(candidate, N - 1)  # beyond the end: the last one again, with gradient 0
        entity = tl.load(entities + pair)
        row = load_planes(table + entity * STRIDE + columns, within, WIDTH, KIND)
        scalar = 0.0
        if SHIFTED:
            scalar = tl.load(scalars + entity)
        outer = tl.load(gradient + pair, mask=drawn, other=0.0)
        state0 = _query_step(state0, query0, shift0, row, scalar, outer, KIND, SHIFTED)
        if Q > 1:
            outer = tl.load(gradient + batch * N + pair, mask=drawn, other=0.0)
            if MEAN:
                outer /= Q - 1
            state1 = _query_step(state1, query1, shift1, row, scalar, outer, KIND, SHIFTED)
        if Q > 2:
            if not MEAN:
                outer = tl.load(gradient + 2 * batch * N + pair, mask=drawn, other=0.0)
            state2 = _query_step(state2, query2, shift2, row, scalar, outer, KIND, SHIFTED)

    _store_query(state0, to_queries + here, to_shifts + here if SHIFTED else None, within, WIDTH, KIND, SHIFTED)
    if Q > 1:
        there = here + plane
        _store_query(state1, to_queries + there, to_shifts + there if SHIFTED else None, within, WIDTH, KIND, SHIFTED)
    if Q > 2:
        there = here + 2 * plane
        _store_query(state2, to_queries + there, to_shifts + there if SHIFTED else None, within, WIDTH, KIND, SHIFTED)


def query_gradients(gradient: Tensor, given: Arguments) -> tuple[Tensor, Tensor | None]:
    """Gradients of the queries and of the shifts, ``[Q, B, D]`` each, from that of the scores."""
    batch, negatives = given.entities.shape
    tile = given.tile(MANY_QUERY_TILES if negatives >= MANY else QUERY_TILES, SHIFTED_QUERY_TILE)
    to_queries = torch.empty_like(given.queries)
    to_shifts = None if given.shifts is None else torch.empty_like(given.shifts)
    _query_kernel[(batch * triton.cdiv(given.width, tile.columns),)](
        to_queries, to_shifts, gradient, given.queries, given.table, given.entities, given.shifts, given.scalars,
        batch, N=negatives, **given.constants(tile),
    )  # fmt: skip
    return to_queries, to_shifts
