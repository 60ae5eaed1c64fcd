"""`compare_all` and `count_better` for GPUs: every query against every entity, and where the true one stands.

A program holds a tile of differences ``[queries, entities, columns]`` in registers and walks along the columns, so that
each value it loads serves many pairs and the sums are reduced once, at the end. `dot` is a matrix product and stays
with PyTorch, at PyTorch's float32 precision.
"""

# Triton has no type stubs, its decorator is untyped, and the arguments of a kernel have no Python types to state.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from eans.kernels.kinds import Comparison, width_of
from eans.kernels.rank import Counts, check_counts, levels_of
from eans.kernels.triton_tiles import check_types, load_planes


class Block(NamedTuple):
    """Queries, entities and columns that a program holds at a time (powers of two), its number of warps, and how many
    blocks of columns are on their way to it at a time.
    """

    queries: int
    entities: int
    columns: int
    warps: int
    stages: int = 3


# Scores that a program of `count_better` reads in all and at a time. Longer rows are shared by several programs.
COUNT_CHUNK, COUNT_TILE = 1 << 15, 2048
# 128 sums per thread: as many as its registers hold beside the values they are made of. Few columns
# leave room for many queries and entities, and each row is then fetched fewer times. The loop along the columns has 2.6
# instructions per pair and column for l1 (2 of them arithmetic) and 6.9 for modulus (5, and the root).
RANK_BLOCKS: dict[str, Block] = {"l1": Block(32, 64, 8, 4), "modulus": Block(32, 64, 8, 4)}
# Queries that meet all entities before the next ones do: a few megabytes, which stay in the second-level cache.
GROUP_QUERIES = 1024


@triton.jit
def _distances(
    queries, table, shifts, scalar, columns, inside, WIDTH: tl.constexpr, KIND: tl.constexpr, SHIFTED: tl.constexpr
):
    """Distances ``[BQ, BE, C]`` along some columns, with pointers ``[BQ, 1, 1]`` and ``[1, BE, 1]`` to the rows."""
    query = load_planes(queries + columns, inside, WIDTH, KIND)
    row = load_planes(table + columns, inside, WIDTH, KIND)
    real = query[0] - row[0]
    imag = query[1] - row[1]
    if SHIFTED:
        shift = load_planes(shifts + columns, inside, WIDTH, KIND)
        real -= scalar * shift[0]
        imag -= scalar * shift[1]
    return tl.abs(real) if KIND == "l1" else tl.sqrt(real * real + imag * imag)


@triton.jit
def _rank_kernel(
    scores,  # [B, E]
    queries,  # [B, D]
    table,  # [E, D], rows STRIDE apart
    shifts,  # [B, D] or None
    scalars,  # [E] or None
    batch,
    num_entities,
    DIM: tl.constexpr,
    WIDTH: tl.constexpr,
    STRIDE: tl.constexpr,
    KIND: tl.constexpr,
    SHIFTED: tl.constexpr,
    BQ: tl.constexpr,
    BE: tl.constexpr,
    COLUMNS: tl.constexpr,
    GROUP: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Scores of BQ queries with BE entities: ``-sum_i |q_i - row_i - scalar shift_i|``.

    Programs of GROUP tiles of queries come one after the other for each tile of entities: they share its rows, and
    the next tile's programs share theirs.
    """
    in_group = GROUP * tl.cdiv(num_entities, BE)
    first = (tl.program_id(0) // in_group) * GROUP
    width = tl.minimum(tl.cdiv(batch, BQ) - first, GROUP)
    place = tl.program_id(0) % in_group
    query = (first + place % width) * BQ + tl.arange(0, BQ)[:, None, None]
    entity = (place // width).to(tl.int64) * BE + tl.arange(0, BE)[None, :, None]
    wanted = (query < batch) & (entity < num_entities)
    target = scores + query.to(tl.int64) * num_entities + entity
    # Beyond the ends: the last query or entity again, not stored.
    query = tl.minimum(query, batch - 1)
    entity = tl.minimum(entity, num_entities - 1)
    scalar = 0.0
    if SHIFTED:
        scalar = tl.load(scalars + entity)
        shifts += query.to(tl.int64) * DIM
    queries += query.to(tl.int64) * DIM
    table += entity * STRIDE

    total = tl.zeros([BQ, BE, COLUMNS], dtype=scores.dtype.element_ty)
    columns = tl.arange(0, COLUMNS)[None, None, :]
    WHOLE: tl.constexpr = WIDTH // COLUMNS * COLUMNS
    for start in tl.range(0, WHOLE, COLUMNS, num_stages=STAGES):
        total += _distances(queries, table, shifts, scalar, start + columns, None, WIDTH, KIND, SHIFTED)
    if WHOLE < WIDTH:  # the only masked tile
        columns += WHOLE
        inside = columns < WIDTH
        last = _distances(queries, table, shifts, scalar, columns, inside, WIDTH, KIND, SHIFTED)
        total += tl.where(inside, last, 0.0)

    tl.store(target, -tl.sum(total, axis=2)[:, :, None], mask=wanted)


def _rank(kind: Comparison, queries: Tensor, table: Tensor, shifts: Tensor | None, scalars: Tensor | None) -> Tensor:
    (batch, dim), num_entities = queries.shape, len(table)
    block = RANK_BLOCKS[kind]
    scores = queries.new_empty(batch, num_entities)
    _rank_kernel[(triton.cdiv(batch, block.queries) * triton.cdiv(num_entities, block.entities),)](
        scores,
        queries,
        table,
        shifts,
        scalars,
        batch,
        num_entities,
        DIM=dim,
        WIDTH=width_of(kind, dim),
        STRIDE=table.stride(0),
        KIND=kind,
        SHIFTED=shifts is not None,
        BQ=block.queries,
        BE=block.entities,
        COLUMNS=block.columns,
        GROUP=max(1, GROUP_QUERIES // block.queries),
        STAGES=block.stages,
        num_warps=block.warps,
    )
    return scores


def _rank_dot(queries: Tensor, table: Tensor, shifts: Tensor | None, scalars: Tensor | None) -> Tensor:
    """``q . (row + scalar shift) = q . row + scalar (q . shift)``: a matrix product and an outer product."""
    scores = queries @ table.T
    if shifts is not None and scalars is not None:
        scores.addr_((queries * shifts).sum(1), scalars)
    return scores


@torch.no_grad()
def compare_all(
    kind: Comparison, queries: Tensor, table: Tensor, shifts: Tensor | None = None, scalars: Tensor | None = None
) -> Tensor:
    """`eans.kernels.compare_all`; no memory of the result's size is taken beyond the result."""
    if shifts is None or scalars is None:
        shifts = scalars = None
    if kind == "dot":
        return _rank_dot(queries, table, shifts, scalars)
    check_types(queries, table)
    table = table if table.stride(1) == 1 else table.contiguous()
    if shifts is not None and scalars is not None:
        shifts, scalars = shifts.contiguous(), scalars.contiguous()
    with torch.cuda.device_of(queries):
        return _rank(kind, queries.contiguous(), table, shifts, scalars)


@triton.jit
def _count_kernel(
    counts,  # [3, CHUNKS, B]: greater, equal, nan
    scores,  # [B, e], rows ROW_STRIDE and columns COLUMN_STRIDE apart
    truth,  # [B]
    levels,  # [B]
    keys,  # [K]
    starts,  # [B]
    stops,  # [B]
    width,  # e
    offset,  # the first entity
    num_entities,  # E
    row_stride,
    column_stride,
    CHUNK: tl.constexpr,
    TILE: tl.constexpr,
):
    """Count in scores ``[chunk * CHUNK, (chunk + 1) * CHUNK)`` of one row, less an equal share of its known answers.

    Answers whose scores are not among these are passed over.
    """
    row, chunk = tl.program_id(0), tl.program_id(1)
    batch, chunks = tl.num_programs(0), tl.num_programs(1)
    scores += row.to(tl.int64) * row_stride
    mine = tl.load(truth + row) - offset
    level = tl.load(levels + row)
    lane = tl.arange(0, TILE)
    greater = tl.zeros([TILE], dtype=tl.int32)
    equal = tl.zeros([TILE], dtype=tl.int32)
    nan = tl.zeros([TILE], dtype=tl.int32)

    first = chunk * CHUNK
    end = tl.minimum(first + CHUNK, width)
    for begin in range(first, end, TILE):
        entity = begin + lane
        inside = entity < end
        score = tl.load(scores + entity.to(tl.int64) * column_stride, mask=inside, other=0.0)
        others = inside & (entity != mine)
        greater += (others & (score > level)).to(tl.int32)
        equal += (others & (score == level)).to(tl.int32)
        nan += (score != score).to(tl.int32)

    start, stop = tl.load(starts + row), tl.load(stops + row)
    share = tl.cdiv(stop - start, chunks)
    last = tl.minimum(start + (chunk + 1) * share, stop)
    # All keys of a row are the same multiple of E away from their answers: one slow division instead of many.
    base = tl.load(keys + start, mask=start < stop, other=0)
    base += offset - base % num_entities
    for begin in range(start + chunk * share, last, TILE):
        inside = begin + lane < last
        entity = tl.load(keys + begin + lane, mask=inside, other=0) - base
        inside = inside & (entity >= 0) & (entity < width) & (entity != mine)
        score = tl.load(scores + entity * column_stride, mask=inside, other=0.0)
        greater -= (inside & (score > level)).to(tl.int32)
        equal -= (inside & (score == level)).to(tl.int32)

    target = counts + (chunk * batch + row).to(tl.int64)
    plane = tl.cast(chunks, tl.int64) * batch
    tl.store(target, tl.sum(greater).to(tl.int64))
    tl.store(target + plane, tl.sum(equal).to(tl.int64))
    tl.store(target + 2 * plane, tl.sum(nan).to(tl.int64))


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
    """`eans.kernels.count_better`; nothing waits for the device, and whole numbers make the same sums in any order."""
    check_counts(scores, truth, keys, start, stop)
    batch, width = scores.shape
    levels = levels_of(scores, truth, first) if levels is None else levels.to(scores.dtype)
    chunks = triton.cdiv(width, COUNT_CHUNK)
    counts = torch.empty(3, chunks, batch, dtype=torch.int64, device=scores.device)
    if batch:
        with torch.cuda.device_of(scores):
            _count_kernel[(batch, chunks)](
                counts,
                scores,
                truth.contiguous(),
                levels.contiguous(),
                keys.contiguous(),
                start.contiguous(),
                stop.contiguous(),
                width,
                first,
                num_entities or width,
                scores.stride(0),
                scores.stride(1),
                CHUNK=COUNT_CHUNK,
                TILE=COUNT_TILE,
                num_warps=8,
            )
    return Counts(*(counts[:, 0] if chunks == 1 else counts.sum(1)).unbind())
