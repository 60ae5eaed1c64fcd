"""Drawing from pools and labelling false negatives on a CPU as compiled loops.

The results are whole numbers, so they do not depend on the threads.
"""

# Numba's decorator is untyped, and the arguments of a loop are arrays and scalars whose types the compiler infers.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eans.kernels.numba_arrays import flat
from eans.kernels.numba_threads import compiled, cuts, inlined, share, threads_for

# A search takes so many times as long as the work on one element, which `threads_for` counts in.
WORK_PER_CANDIDATE = 16
# An odd number whose multiples are scattered over the bits from the shift on.
SCATTER, SCATTER_SHIFT = 0x9E3779B1, 16


@inlined
def _before(keys, wanted, low, high):
    """How many of the sorted ``keys[low : high]`` are below `wanted`, plus low."""
    while low < high:
        middle = (low + high) // 2
        if keys[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _met_before(met, rows, row, entity):
    """Was the entity met in this row before? Two arrays of a power of two, entities and their rows, remember it."""
    mask = len(met) - 1
    slot = (entity * SCATTER >> SCATTER_SHIFT) & mask
    while rows[slot] == row and met[slot] != entity:
        slot = (slot + 1) & mask
    again = rows[slot] == row
    rows[slot], met[slot] = row, entity
    return again


@compiled
def _label_loop(known, keys, prefix, entities, negatives, num_entities, repeats_from, met, rows, first, last):
    """Label rows ``[first, last)``. `met` and `rows` have room for twice the entities of a row; `rows` starts as -1."""
    for row in range(first, last):
        lowest = prefix[row] * num_entities
        begin = _before(keys, lowest, 0, len(keys))
        end = _before(keys, lowest + num_entities, begin, len(keys))
        again = repeats_from >= 0.0 and end - begin >= repeats_from
        for place in range((row + 1) * negatives - 1, row * negatives - 1, -1):
            entity = entities[place]
            found = _before(keys, lowest + entity, begin, end)
            true = found < end and keys[found] == lowest + entity
            if again:
                true = _met_before(met, rows, row, entity) or true
            known[place] = true


def label(keys: Tensor, prefix: Tensor, entities: Tensor, num_entities: int, repeats_from: float | None) -> Tensor:
    """`eans.kernels.label`, compiled."""
    batch, negatives = entities.shape
    known = torch.empty(batch, negatives, dtype=torch.bool)
    if not entities.numel():
        return known
    arrays = flat(known), flat(keys.contiguous()), flat(prefix.contiguous()), flat(entities.contiguous())
    _check(arrays[-1], num_entities)
    threads = threads_for(WORK_PER_CANDIDATE * entities.numel())

    def part(first: int, last: int) -> None:
        room = 1 << (2 * negatives).bit_length() if repeats_from is not None else 0
        met, rows = np.zeros(room, np.int64), np.full(room, -1, np.int64)
        _label_loop(
            *arrays, negatives, num_entities, -1.0 if repeats_from is None else repeats_from, met, rows, first, last
        )

    share(part, cuts(batch, threads), threads)
    return known


@compiled
def _pick_loop(entities, ids, starts, kept, uniforms, num_entities, negatives):
    for row in range(len(kept)):
        start, stop = starts[kept[row]], starts[kept[row] + 1]
        size = stop - start if stop > start else num_entities
        scale = np.float32(size)
        for place in range(row * negatives, (row + 1) * negatives):
            # A product close to the size may round up to it.
            chosen = min(np.int64(uniforms[place] * scale), size - 1)
            entities[place] = ids[start + chosen] if stop > start else chosen


def pick(ids: Tensor, starts: Tensor, kept: Tensor, uniforms: Tensor, num_entities: int) -> Tensor:
    """`eans.kernels.pick`, compiled."""
    entities = torch.empty(uniforms.shape, dtype=torch.int64)
    arrays = [flat(tensor.contiguous()) for tensor in (ids, starts, kept, uniforms)]
    _check(arrays[2], len(starts) - 1)
    _pick_loop(flat(entities), *arrays, num_entities, uniforms.shape[1])
    return entities


def _check(entities: NDArray[np.int64], size: int) -> None:
    """Raise for what the loops, which check nothing, would read wrongly."""
    if len(entities) and (entities.min() < 0 or entities.max() >= size):
        raise IndexError(f"entities from {entities.min()} to {entities.max()} among {size}")
