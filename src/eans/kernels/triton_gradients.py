"""Gradients of `compare` as two Triton kernels without atomics: the same bits every time.

Both compute the differences again instead of reading saved ones, and both walk rows along one axis and keep the columns
of their slice in registers, so that no reduction across threads sits inside a loop:

* `query_gradients`: one program per (positive, slice of columns) walks the positive's candidates.
* `entity_gradients`: one program per (entity, slice of columns) walks the (positive, candidate) pairs of that entity,
  which a stable sort has put side by side. Every row of the gradient table is written, also those of entities that
  were not drawn, so the table needs no zero-fill.

Notation: ``g`` is the gradient of a score, ``q`` a query, ``c = row + scalar * shift`` a candidate. With
``u = sign(q - c)`` for `l1` and ``u = (q - c) / |q - c|`` for `modulus` (0 where the difference is 0)::

    dot:            to_query = g c      to_candidate = g q
    l1, modulus:    to_query = -g u     to_candidate = g u

A `modulus` row is ``[re | im]``: two planes of ``width`` columns. The other comparisons have one plane; their imaginary
parts below are dummies that the compiler removes.

Nothing here waits for the device, so the launches can be captured in a CUDA graph.
"""

# Triton has no type stubs, its decorator is untyped, and the arguments of a kernel have no Python types to state.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from eans.kernels.reference import Comparison


class Tile(NamedTuple):
    """Rows and columns that a program holds at a time (powers of two), and its number of warps."""

    rows: int
    columns: int
    warps: int


# Rows are candidates of one positive.
QUERY_TILES: dict[str, Tile] = {"dot": Tile(1, 128, 1), "l1": Tile(1, 128, 1), "modulus": Tile(1, 128, 2)}
# Rows are pairs of one entity.
ENTITY_TILES: dict[str, Tile] = {"dot": Tile(1, 256, 1), "l1": Tile(1, 512, 2), "modulus": Tile(1, 128, 2)}

# The smallest normal float32, added to a squared modulus: keeps the reciprocal root finite at 0, changes nothing else.
SMALLEST_SQUARE = tl.constexpr(1.1754944e-38)
# Makes every difference that matters (above 1e-30) larger than 1, so that clamping to +-1 leaves its sign.
STEEP = tl.constexpr(2.0**100)


def check_types(queries: Tensor, table: Tensor) -> None:
    """Refuse types that the kernels would sum up in too few bits."""
    if queries.dtype != table.dtype or queries.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"queries and table are both float32 or both float64, not {queries.dtype} and {table.dtype}")


def width_of(kind: Comparison, dim: int) -> int:
    """Columns of one plane of a row with `dim` numbers."""
    if kind != "modulus":
        return dim
    if dim % 2:
        raise ValueError(f"complex rows [re | im] have an even number of columns, not {dim}")
    return dim // 2


def fitted(tile: Tile, width: int) -> Tile:
    """`tile` without whole warps' worth of columns beyond `width`."""
    return tile._replace(columns=min(tile.columns, triton.next_power_of_2(width)))


@triton.jit
def load_planes(pointer, inside, WIDTH: tl.constexpr, KIND: tl.constexpr):
    """Load the two planes of rows at `pointer` (any shape). One plane: the second repeats the first.

    Values outside are undefined, which saves setting them for each load; what they give must not be stored.
    """
    real = tl.load(pointer, mask=inside)
    imag = real
    if KIND == "modulus":
        imag = tl.load(pointer + WIDTH, mask=inside)
    return real, imag


@triton.jit
def _to_candidate(outer, query, candidate, KIND: tl.constexpr):
    """Gradient of the candidate, plane by plane: ``g q`` for dot, else ``g u``.

    The sign of `l1` is a product and a clamp, one instruction each; comparisons and selections would be four, at half
    the rate.
    """
    if KIND == "dot":
        pull = (outer * query[0], outer * query[1])
    elif KIND == "l1":
        signed = outer * tl.clamp((query[0] - candidate[0]) * STEEP, -1.0, 1.0)
        pull = (signed, signed)
    else:
        real = query[0] - candidate[0]
        imag = query[1] - candidate[1]
        scale = outer * tl.rsqrt(real * real + (imag * imag + SMALLEST_SQUARE))
        pull = (real * scale, imag * scale)
    return pull


@triton.jit
def _moved(row, scalar, shift, SHIFTED: tl.constexpr):
    """The candidate ``row + scalar * shift``, plane by plane."""
    return (row[0] + scalar * shift[0], row[1] + scalar * shift[1]) if SHIFTED else row


@triton.jit
def _query_step(state, query, shift, row, scalar, outer, KIND: tl.constexpr, SHIFTED: tl.constexpr):
    """Add what rows ``[R, C]`` with score gradients `outer` ``[R, 1]`` pull on one query (and on its shift)."""
    query_re, query_im, shift_re, shift_im = state
    candidate = _moved(row, scalar, shift, SHIFTED)
    pull = _to_candidate(outer, query, candidate, KIND)
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
    gradient,  # [Q, B, N]
    queries,  # [Q, B, D]
    table,  # [E, D], rows STRIDE apart
    entities,  # [B, N]
    shifts,  # [Q, B, D] or None
    scalars,  # [E] or None
    batch,
    N: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    KIND: tl.constexpr,
    Q: tl.constexpr,
    SHIFTED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Gradients of all queries of one positive, for one slice of columns.

    Positives are the fast axis: the programs that run at one time then share a slice of the table, which is small
    enough to stay in the L2 cache.
    """
    positive = tl.program_id(0) % batch
    columns = (tl.program_id(0) // batch) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    within = columns < WIDTH
    plane = batch * DIM  # numbers from one query of a positive to its next
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
            state1 = _query_step(state1, query1, shift1, row, scalar, outer, KIND, SHIFTED)
        if Q > 2:
            outer = tl.load(gradient + 2 * batch * N + pair, mask=drawn, other=0.0)
            state2 = _query_step(state2, query2, shift2, row, scalar, outer, KIND, SHIFTED)

    _store_query(state0, to_queries + here, to_shifts + here if SHIFTED else None, within, WIDTH, KIND, SHIFTED)
    if Q > 1:
        there = here + plane
        _store_query(state1, to_queries + there, to_shifts + there if SHIFTED else None, within, WIDTH, KIND, SHIFTED)
    if Q > 2:
        there = here + 2 * plane
        _store_query(state2, to_queries + there, to_shifts + there if SHIFTED else None, within, WIDTH, KIND, SHIFTED)


def query_gradients(
    kind: Comparison,
    gradient: Tensor,
    queries: Tensor,
    table: Tensor,
    entities: Tensor,
    shifts: Tensor | None,
    scalars: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Gradients of the queries and of the shifts, ``[Q, B, D]`` each, from that of the scores, ``[Q, B, N]``.

    Arguments as of `compare`, contiguous except for the stride of the table's rows.
    """
    count, batch, dim = queries.shape
    width = width_of(kind, dim)
    tile = fitted(QUERY_TILES[kind], width)
    to_queries = torch.empty_like(queries)
    to_shifts = None if shifts is None else torch.empty_like(shifts)
    _query_kernel[(batch * triton.cdiv(width, tile.columns),)](
        to_queries,
        to_shifts,
        gradient,
        queries,
        table,
        entities,
        shifts,
        scalars,
        batch,
        N=entities.shape[1],
        DIM=dim,
        WIDTH=width,
        STRIDE=table.stride(0),
        KIND=kind,
        Q=count,
        SHIFTED=shifts is not None,
        ROWS=tile.rows,
        COLUMNS=tile.columns,
        num_warps=tile.warps,
    )
    return to_queries, to_shifts


def pairs_by_entity(entities: Tensor, num_entities: int) -> tuple[Tensor, Tensor]:
    """The pairs ``[B * N]`` of `entities` ``[B, N]`` in the order of their entity, and where each entity starts.

    Returns:
        order: int64 ``[B * N]``; a stable sort, so that sums over a segment always run in the same order.
        starts: int64 ``[E + 1]``; the pairs of entity e are ``order[starts[e] : starts[e + 1]]``.
    """
    # A radix sort passes over the bits of its keys: half as wide is half as long.
    narrow = torch.int16 if num_entities < 2**15 else torch.int32 if num_entities < 2**31 else torch.int64
    keys, order = torch.sort(entities.reshape(-1).to(narrow), stable=True)
    bounds = torch.arange(num_entities + 1, dtype=narrow, device=entities.device)
    return order, torch.searchsorted(keys, bounds)


@triton.jit
def _entity_kernel(
    to_table,  # [E, D]
    to_scalars,  # [slices, E] or None
    gradient,  # [Q, B, N]
    queries,  # [Q, B, D]
    table,  # [E, D], rows STRIDE apart
    order,  # [B * N]
    starts,  # [E + 1]
    shifts,  # [Q, B, D] or None
    scalars,  # [E] or None
    num_entities,
    batch,
    N: tl.constexpr,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    KIND: tl.constexpr,
    Q: tl.constexpr,
    SHIFTED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Gradient of one entity's row, for one slice of columns; of its scalar, the part from that slice.

    Entities are the fast axis: the programs that run at one time then share a slice of the queries.
    """
    entity = (tl.program_id(0) % num_entities).to(tl.int64)
    part = tl.program_id(0) // num_entities
    columns = part * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    within = columns < WIDTH
    row = load_planes(table + entity * STRIDE + columns, within, WIDTH, KIND)
    scalar = 0.0
    if SHIFTED:
        scalar = tl.load(scalars + entity)
    first = tl.load(starts + entity).to(tl.int32)
    last = tl.load(starts + entity + 1).to(tl.int32)

    total_re = tl.zeros([ROWS, COLUMNS], dtype=queries.dtype.element_ty)
    total_im = total_re
    along = total_re  # gradient of the candidate . shift, still spread over the columns
    for start in range(first, last, ROWS):
        place = start + tl.arange(0, ROWS)[:, None]
        mine = place < last
        # Beyond the end: the last pair again, with gradient 0.
        pair = tl.load(order + tl.minimum(place, last - 1)).to(tl.int32)
        here = (pair // N) * DIM + columns
        for index in tl.static_range(Q):
            outer = tl.load(gradient + index * batch * N + pair, mask=mine, other=0.0)
            query = load_planes(queries + index * batch * DIM + here, within, WIDTH, KIND)
            shift = query
            if SHIFTED:
                shift = load_planes(shifts + index * batch * DIM + here, within, WIDTH, KIND)
            pull = _to_candidate(outer, query, _moved(row, scalar, shift, SHIFTED), KIND)
            total_re += pull[0]
            total_im += pull[1]
            if SHIFTED:
                along += pull[0] * shift[0]
                if KIND == "modulus":
                    along += pull[1] * shift[1]

    target = to_table + entity * DIM + columns
    tl.store(target, tl.sum(total_re, axis=0)[None, :], mask=within)
    if KIND == "modulus":
        tl.store(target + WIDTH, tl.sum(total_im, axis=0)[None, :], mask=within)
    if SHIFTED:
        along = tl.where(within, along, 0.0)
        tl.store(to_scalars + part * num_entities + entity, tl.sum(tl.sum(along, axis=0), axis=0))


def entity_gradients(
    kind: Comparison,
    gradient: Tensor,
    queries: Tensor,
    table: Tensor,
    entities: Tensor,
    shifts: Tensor | None,
    scalars: Tensor | None,
) -> tuple[Tensor, Tensor | None]:
    """Gradients of the table ``[E, D]`` and of the scalars ``[E]`` from that of the scores, ``[Q, B, N]``.

    Arguments as of `compare`, contiguous except for the stride of the table's rows. An entity that is drawn far more
    often than the others is walked by as few programs as any other, one after the other: correct, but slow.
    """
    count, batch, dim = queries.shape
    num_entities = len(table)
    width = width_of(kind, dim)
    tile = fitted(ENTITY_TILES[kind], width)
    slices = triton.cdiv(width, tile.columns)
    order, starts = pairs_by_entity(entities, num_entities)
    to_table = queries.new_empty(num_entities, dim)
    to_scalars = None if scalars is None else queries.new_empty(slices, num_entities)
    _entity_kernel[(num_entities * slices,)](
        to_table,
        to_scalars,
        gradient,
        queries,
        table,
        order,
        starts,
        shifts,
        scalars,
        num_entities,
        batch,
        N=max(1, entities.shape[1]),
        DIM=dim,
        WIDTH=width,
        STRIDE=table.stride(0),
        KIND=kind,
        Q=count,
        SHIFTED=shifts is not None,
        ROWS=tile.rows,
        COLUMNS=tile.columns,
        num_warps=tile.warps,
    )
    return to_table, None if to_scalars is None else to_scalars.sum(0)
