"""The pairs of a positive and a candidate, sorted by entity, for the CPU loops."""

# Numba's decorator is untyped, and the arguments of a loop are arrays and scalars whose types the compiler infers.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import uint64
from torch import Tensor

from eans.kernels.numba_arrays import flat, sorted_ids
from eans.kernels.numba_threads import compiled


class Pairs(NamedTuple):
    """The pairs (positive, candidate) in the order of their entities: three arrays int64 ``[B * N]``.

    Attributes:
        place: position in ``entities`` ``[B, N]``; ascending within an entity.
        entity, positive: what stands there, and in which row.
    """

    place: Any
    entity: Any
    positive: Any


@compiled
def _counting_sort(place, entity, positive, entities, negatives, ends):
    """Fill the arrays of `Pairs` from `entities` ``[B * N]``; `ends` ``[E + 1]`` is scratch."""
    ends[:] = 0
    for i in range(len(entities)):
        ends[uint64(entities[i]) + uint64(1)] += 1
    for e in range(1, len(ends)):
        ends[e] += ends[e - 1]
    for i in range(len(entities)):
        e = uint64(entities[i])
        p = uint64(ends[e])
        ends[e] += 1
        place[p] = i
        entity[p] = e
        positive[p] = uint64(i) // uint64(negatives)


def distinct(pairs: Pairs) -> tuple[Any, Any]:
    """The entities of the pairs, each once, int64 ``[U]``; and where each pair's is among them, int64 ``[B * N]``."""
    new = np.ones(len(pairs.entity), bool)
    np.not_equal(pairs.entity[1:], pairs.entity[:-1], out=new[1:])
    return pairs.entity[new], np.cumsum(new) - 1


def pairs_by_entity(entities: Tensor, num_entities: int) -> Pairs:
    """Sort the pairs of `entities` ``[B, N]``."""
    ids, negatives = flat(entities), max(1, entities.shape[1])
    if len(ids) < num_entities:  # counting passes over every entity
        entity, place = sorted_ids(ids)
        return Pairs(place, entity, place // negatives)
    pairs = Pairs(*np.empty((3, len(ids)), np.int64))
    _counting_sort(*pairs, ids, negatives, np.empty(num_entities + 1, np.int64))
    return pairs
