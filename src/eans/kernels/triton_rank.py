"""`compare_all` for GPUs: every query against every entity, for ranking.

A program holds a tile of differences ``[queries, entities, columns]`` in registers and walks along the columns, so that
each number it loads serves many pairs and the sums are reduced once, at the end. `dot` is a matrix product and stays
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

from eans.kernels.reference import Comparison
from eans.kernels.triton_gradients import check_types, load_planes, width_of


class Block(NamedTuple):
    """Queries, entities and columns that a program holds at a time (powers of two), and its number of warps."""

    queries: int
    entities: int
    columns: int
    warps: int


# 128 sums per thread: 8 queries x 4 entities x 4 columns.
RANK_BLOCKS: dict[str, Block] = {"l1": Block(16, 16, 32, 2), "modulus": Block(8, 16, 32, 1)}


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
):
    """Scores of BQ queries with BE entities: ``-sum_i |q_i - row_i - scalar shift_i|``.

    Queries are the fast axis: all of them meet one tile of entities while it is in the cache.
    """
    tiles = tl.cdiv(batch, BQ)
    query = (tl.program_id(0) % tiles) * BQ + tl.arange(0, BQ)[:, None, None]
    entity = (tl.program_id(0) // tiles).to(tl.int64) * BE + tl.arange(0, BE)[None, :, None]
    asked = query < batch
    exists = entity < num_entities
    scalar = 0.0
    if SHIFTED:
        scalar = tl.load(scalars + entity, mask=exists, other=0.0)

    total = tl.zeros([BQ, BE, COLUMNS], dtype=queries.dtype.element_ty)
    for start in range(0, WIDTH, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)[None, None, :]
        within = columns < WIDTH
        vector = load_planes(queries + query * DIM + columns, asked & within, WIDTH, KIND)
        row = load_planes(table + entity * STRIDE + columns, exists & within, WIDTH, KIND)
        real = vector[0] - row[0]
        imag = vector[1] - row[1]
        if SHIFTED:
            shift = load_planes(shifts + query * DIM + columns, asked & within, WIDTH, KIND)
            real -= scalar * shift[0]
            imag -= scalar * shift[1]
        if KIND == "l1":
            total += tl.abs(real)
        else:
            total += tl.sqrt(real * real + imag * imag)

    target = scores + query.to(tl.int64) * num_entities + entity
    tl.store(target, -tl.sum(total, axis=2)[:, :, None], mask=asked & exists)


def _rank(
    kind: Comparison, queries: Tensor, table: Tensor, shifts: Tensor | None, scalars: Tensor | None
) -> Tensor:
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
    """Compare each query with every entity, without gradients: ``[B, D]``, ``[E, D]`` -> ``[B, E]``.

    Optional `shifts` ``[B, D]`` and `scalars` ``[E]`` as in `compare`. No memory of the result's size is taken beyond
    the result.
    """
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
