"""Putting equal ids side by side, and batches in an order; a few ids are counted rather than sorted."""

# Triton has no type stubs, its decorator is untyped, and the arguments of a kernel have no Python types to state.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Up to so many ids each is compared with every other one: one launch, where a sort needs half a dozen.
FEW = 4096
BLOCK, OTHERS = 32, 256


@triton.jit
def _count_kernel(
    order,  # [M]
    starts,  # [size + 1]
    ids,  # [M]
    count,
    size,
    BLOCK: tl.constexpr,
    OTHERS: tl.constexpr,
):
    """The first programs find the places of BLOCK ids each, the others the starts of BLOCK numbers each."""
    ranking = tl.cdiv(count, BLOCK)
    program = tl.program_id(0)
    mine = program * BLOCK + tl.arange(0, BLOCK)[:, None]
    number = (program - ranking) * BLOCK + tl.arange(0, BLOCK)[:, None]
    if program < ranking:
        number = tl.load(ids + mine, mask=mine < count, other=0).to(tl.int32)
    before = tl.zeros([BLOCK, OTHERS], dtype=tl.int32)
    for start in range(0, count, OTHERS):
        place = start + tl.arange(0, OTHERS)[None, :]
        other = tl.load(ids + place, mask=place < count, other=2147483647).to(tl.int32)
        # Equal ids keep their order; starts count smaller ones only.
        tied = (other == number) & (place < mine) & (program < ranking)
        before += ((other < number) | tied).to(tl.int32)
    rank = tl.sum(before, axis=1)[:, None]
    if program < ranking:
        tl.store(order + rank, mine.to(tl.int64), mask=mine < count)
    else:
        tl.store(starts + number, rank.to(tl.int64), mask=number <= size)


def sorted_ids(ids: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Where each of the numbers ``0 .. size - 1`` stands in `ids` int64 ``[M]``.

    Returns:
        order: int64 ``[M]``; a stable sort, so that sums over a segment always run in the same order.
        starts: int64 ``[size + 1]``; number i stands at ``order[starts[i] : starts[i + 1]]``.
    """
    if 0 < len(ids) <= FEW and size < 2**31 - 1:
        order, starts = torch.empty_like(ids), ids.new_empty(size + 1)
        with torch.cuda.device_of(ids):
            _count_kernel[(triton.cdiv(len(ids), BLOCK) + triton.cdiv(size + 1, BLOCK),)](
                order, starts, ids.contiguous(), len(ids), size, BLOCK=BLOCK, OTHERS=OTHERS
            )
        return order, starts
    # A radix sort passes over the bits of its keys: half as wide is half as long.
    narrow = torch.int16 if size < 2**15 else torch.int32 if size < 2**31 else torch.int64
    keys, order = torch.sort(ids.to(narrow), stable=True)
    bounds = torch.arange(size + 1, dtype=narrow, device=ids.device)
    return order, torch.searchsorted(keys, bounds)


@triton.jit
def _take_kernel(
    batch_triples,  # [B, 3]
    batch_weights,  # [B]
    rows,  # [B]
    triples,  # [T, 3]
    weights,  # [T]
    places,  # [E] or None
    count,
    COLUMN: tl.constexpr,
    BLOCK: tl.constexpr,
    OTHERS: tl.constexpr,
):
    mine = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    inside = mine < count
    row = tl.load(rows + mine, mask=inside, other=0)
    rank = mine
    if places is not None:
        key = tl.load(places + tl.load(triples + row * 3 + COLUMN)).to(tl.int32)
        before = tl.zeros([BLOCK, OTHERS], dtype=tl.int32)
        for start in range(0, count, OTHERS):
            place = start + tl.arange(0, OTHERS)[None, :]
            there = place < count
            entity = tl.load(triples + tl.load(rows + place, mask=there, other=0) * 3 + COLUMN, mask=there, other=0)
            other = tl.load(places + entity, mask=there, other=2147483647).to(tl.int32)
            before += ((other < key) | ((other == key) & (place < mine))).to(tl.int32)
        rank = tl.sum(before, axis=1)[:, None]
    for column in tl.static_range(3):
        tl.store(batch_triples + rank * 3 + column, tl.load(triples + row * 3 + column, mask=inside), mask=inside)
    tl.store(batch_weights + rank, tl.load(weights + row, mask=inside), mask=inside)


def take(triples: Tensor, weights: Tensor, rows: Tensor, places: Tensor | None, column: int) -> tuple[Tensor, Tensor]:
    """`reference_step.take`."""
    few = places is not None and len(rows) <= FEW
    batch_triples, batch_weights = triples.new_empty(len(rows), 3), weights.new_empty(len(rows))
    with torch.cuda.device_of(rows):
        _take_kernel[(triton.cdiv(len(rows), BLOCK),)](
            batch_triples, batch_weights, rows, triples, weights, places if few else None, len(rows),
            COLUMN=column, BLOCK=BLOCK, OTHERS=OTHERS,
        )  # fmt: skip
    return batch_triples, batch_weights
