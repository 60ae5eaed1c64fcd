"""Where each row of a table is used: equal ids are put side by side. A few ids are counted rather than sorted."""

# Triton has no type stubs, its decorator is untyped, and the arguments of a kernel have no Python types to state.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from eans.kernels.deferred_gradients import DeferredGradients, Plan, Segments, Uses

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
    """The first programs find the places of BLOCK ids each, the others the starts of BLOCK ids each."""
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


def _narrow(size: int) -> torch.dtype:
    """A type for ids below `size`. A radix sort passes over the bits of its keys: half as wide is half as long."""
    return torch.int16 if size < 2**15 else torch.int32 if size < 2**31 else torch.int64


def sorted_ids(ids: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Where each of the ids ``0 .. size - 1`` stands in `ids` int64 ``[M]``.

    Returns:
        order: int64 ``[M]``; a stable sort, so that sums over a segment always run in the same order.
        starts: int64 ``[size + 1]``; id i stands at ``order[starts[i] : starts[i + 1]]``.
    """
    if 0 < len(ids) <= FEW and size < 2**31 - 1:
        order, starts = torch.empty_like(ids), ids.new_empty(size + 1)
        with torch.cuda.device_of(ids):
            _count_kernel[(triton.cdiv(len(ids), BLOCK) + triton.cdiv(size + 1, BLOCK),)](
                order, starts, ids.contiguous(), len(ids), size, BLOCK=BLOCK, OTHERS=OTHERS
            )
        return order, starts
    keys, order = torch.sort(ids.to(_narrow(size)), stable=True)
    bounds = torch.arange(size + 1, dtype=keys.dtype, device=ids.device)
    return order, torch.searchsorted(keys, bounds)


def sorted_uses(ids: Tensor, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """As `sorted_ids`, with nothing of that size: order int64 ``[M]``, and keys and ends ``[M]`` as of `Uses`."""
    if 0 < len(ids) <= FEW and size < 2**31 - 1:
        order = torch.empty_like(ids)
        with torch.cuda.device_of(ids):  # only the programs that find places
            _count_kernel[(triton.cdiv(len(ids), BLOCK),)](
                order, order, ids.contiguous(), len(ids), size, BLOCK=BLOCK, OTHERS=OTHERS
            )
        keys = ids[order]
    else:
        keys, order = torch.sort(ids.to(_narrow(size)), stable=True)
    return order, keys, torch.searchsorted(keys, keys, right=True)


def segments_of(
    entities: Tensor | None,
    gathered: list[Tensor],
    num_rows: int,
    ordering: tuple[Tensor, Tensor] | None,
    rows_stay: bool = False,
) -> Segments | Uses:
    """Sort the uses of a table's rows, or of places in an ordering: as candidates ``[B, N]``, and as gathered rows.

    Where rows without a use stay as they are and there are more rows than uses, segments are those of the uses.
    """
    ids = gathered if entities is None else [entities.reshape(-1), *gathered]
    rows = torch.cat(ids) if len(ids) > 1 else ids[0]
    places, pairs = rows if ordering is None else ordering[1][rows], 0 if entities is None else entities.numel()
    if rows_stay and len(rows) < num_rows:
        return Uses(*sorted_uses(places, num_rows), pairs)
    return Segments(*sorted_ids(places, num_rows), pairs)


def plan(deferred: DeferredGradients, entities: Tensor, num_rows: int) -> None:
    """Sort the uses of a table beside the work that follows: of the candidates ``[B, N]``, and what was gathered."""
    gathered = list(deferred.gathered)
    with deferred.side_stream:
        segments = segments_of(entities, gathered, num_rows, deferred.ordering, deferred.rows_stay)
    deferred.plan = Plan(entities, len(gathered), segments)
