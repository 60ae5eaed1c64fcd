"""What the CPU loops work on: tensors as flat arrays, fresh tables, and where each id of a list stands.

In a loop every tensor is a flat array, and positions are unsigned: a signed index might be negative, which Python
defines to count from the end, and the compiler cannot use vector instructions on "either".
"""

# Numba's decorator is untyped, and the arguments of a loop are arrays and scalars whose types the compiler infers.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numba import uint64
from torch import Tensor

from eans.kernels.numba_threads import compiled

# Blocks of this size or more are new to the process each time; smaller ones are used again (the C library's limit).
MAPPED_BYTES = 1 << 25
# Bits of an id by which it is sorted at a time; the counts of their values fit the nearest cache.
DIGIT_BITS = 11


def flat(tensor: Tensor) -> Any:
    """The elements of a tensor whose last dimension is contiguous, from its first to its last, gaps included."""
    tensor = tensor.detach()
    if tensor.numel() == 0:
        return tensor.reshape(-1).numpy()
    if not tensor.is_contiguous():
        reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1
        tensor = tensor.as_strided((reach,), (1,))
    return tensor.reshape(-1).numpy()


def zeros(shape: Iterable[int], dtype: torch.dtype) -> Tensor:
    """Like `torch.zeros` of float32 or float64; for a table of tens of megabytes several times faster.

    The time of a large fresh table goes into mapping its pages. NumPy asks the system for huge ones, and has them
    cleared only when they are first touched. The start is that of a cache line, as in PyTorch. The tensor is no view of
    another one: autograd adds further gradients to it in place, where it would fill a new table beside a view.
    """
    shape = tuple(shape)
    size = math.prod(shape) * dtype.itemsize
    if size < MAPPED_BYTES:
        return torch.zeros(shape, dtype=dtype)
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    values = raw[start : start + size].view(np.float32 if dtype == torch.float32 else np.float64)
    return torch.from_numpy(values.reshape(shape))


@compiled
def _sort_digit(keys, order, from_keys, from_order, counts, shift):
    """One stable pass of a radix sort: by the bits ``shift .. shift + 10`` of the keys."""
    counts[:] = 0
    mask = uint64(len(counts) - 2)
    for i in range(len(from_keys)):
        counts[((uint64(from_keys[i]) >> uint64(shift)) & mask) + uint64(1)] += 1
    for d in range(uint64(1), uint64(len(counts))):
        counts[d] += counts[d - uint64(1)]
    for i in range(len(from_keys)):
        digit = (uint64(from_keys[i]) >> uint64(shift)) & mask
        place = uint64(counts[digit])
        keys[place] = from_keys[i]
        order[place] = from_order[i]
        counts[digit] += 1


def sorted_ids(ids: Any) -> tuple[Any, Any]:
    """Ids from 0 on, int64 ``[M]``, sorted, and where each of them stood; equal ones keep their order.

    Takes time for M alone, where `segments` passes over every id that there might be.
    """
    keys, order = ids, np.arange(len(ids))
    for shift in range(0, int(ids.max()).bit_length() if len(ids) else 0, DIGIT_BITS):
        given, (keys, order) = (keys, order), np.empty((2, len(ids)), np.int64)
        _sort_digit(keys, order, *given, np.empty((1 << DIGIT_BITS) + 1, np.int64), shift)
    return keys, order


def distinct_ids(ids: Any) -> tuple[Any, Any, Any]:
    """Each of the ids int64 ``[M]`` once, ascending, and where it stands.

    Returns:
        distinct int64 ``[U]``, order int64 ``[M]`` and starts int64 ``[U + 1]``: the i-th one stands at
        ``order[starts[i] : starts[i + 1]]``, ascending.
    """
    keys, order = sorted_ids(ids)
    new = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    starts = np.append(np.flatnonzero(new), len(keys))
    return keys[starts[:-1]], order, starts


@compiled
def _sort_segments(order, starts, ids):
    starts[:] = 0
    two = uint64(2)
    for i in range(len(ids)):
        starts[uint64(ids[i]) + two] += 1
    for v in range(two, uint64(len(starts))):
        starts[v] += starts[v - uint64(1)]
    # While a segment is filled, its start stands one place too far to the right and moves to its end.
    for i in range(len(ids)):
        v = uint64(ids[i]) + uint64(1)
        order[uint64(starts[v])] = i
        starts[v] += 1


def segments(ids: Tensor, size: int) -> tuple[Any, Any]:
    """Where each of the ids 0 .. `size` - 1 stands in `ids` int64 ``[M]``, which has no others.

    Returns:
        order int64 ``[M]`` and starts int64 ``[size + 2]``: v stands at ``order[starts[v] : starts[v + 1]]``, ascending
        (the last start is of no use).
    """
    order, starts = np.empty(len(ids), np.int64), np.empty(size + 2, np.int64)
    _sort_segments(order, starts, flat(ids.contiguous()))
    return order, starts
