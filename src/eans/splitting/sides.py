"""On which side of a split each triple goes, as arrays: 0 train, 1 valid, 2 test, -1 none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from eans.relation_patterns import Overlap

Ints = NDArray[np.int64]
TRAIN, VALID, TEST, NONE = 0, 1, 2, -1


def parts_of(triples: Ints, num_entities: int) -> Ints:
    """What train must cover, numbered: head, tail, and relations after the entities, ``[n, 3]``."""
    return np.stack([triples[:, 0], triples[:, 2], num_entities + triples[:, 1]], axis=1)


def at_random(
    groups: Ints, parts: Ints | None, shares: tuple[float, float, float], generator: np.random.Generator
) -> Ints:
    """Sides of triples, those of a group on one side.

    Args:
        groups: ``[n]``, numbers from 0 on.
        parts: what of each triple train must cover, ``[n, 3]``; None to cover nothing.
        shares: of train, valid and test.
        generator: of random numbers.
    """
    sizes = np.bincount(groups)
    order = generator.permutation(len(sizes))
    wanted = [max(1, round(len(groups) * share)) if share else 0 for share in shares[1:]]
    held = _some(order, sizes, sum(wanted))
    if parts is not None:
        held = _covered(held, order, groups, sizes, parts, sum(wanted))
    held = generator.permutation(held)
    total = int(sizes[held].sum())
    valid = _some(held, sizes, wanted[0] if total >= sum(wanted) else round(total * wanted[0] / sum(wanted)))
    of_group = np.zeros(len(sizes), dtype=np.int64)
    of_group[held] = TEST if wanted[1] else TRAIN  # what is left of valid alone, where groups do not fit
    of_group[valid] = VALID
    return of_group[groups]


def _some(order: Ints, sizes: Ints, wanted: int) -> Ints:
    """Groups, the first ones of `order` that fit, with at most `wanted` triples together."""
    if sizes.max(initial=1) == 1:
        return order[:wanted]
    taken, left = [], wanted
    for group, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
        if size <= left:
            taken.append(group)
            left -= size
            if not left:
                break
    return np.array(taken, dtype=np.int64)


def _covered(held: Ints, order: Ints, groups: Ints, sizes: Ints, parts: Ints, wanted: int) -> Ints:
    """Other groups to hold out, of which every part is also a part of a triple of train.

    What train lacks is given back to it, a triple for each part. As many triples are held out instead, none of which
    has a part for which train needs it.
    """
    is_held = np.zeros(len(sizes), dtype=bool)
    is_held[held] = True
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    rows = np.argsort(place[groups], kind="stable")  # in the order of their groups
    out = is_held[groups]
    lacking = np.ones(int(parts.max(initial=-1)) + 1, dtype=bool)
    lacking[parts[~out]] = False
    of_held = rows[out[rows]]
    returned = groups[_first_with(of_held, parts, lacking)]
    is_held[returned] = False
    missing = wanted - int(sizes[is_held].sum())
    if missing > 0:
        # Train needs a triple for each part: of those that were given back, if one has it, or of the last others.
        back = np.isin(groups, returned)
        need = _first_with(np.concatenate([rows[back[rows]], rows[~out[rows]][::-1]]), parts, np.ones_like(lacking))
        free = ~is_held
        free[groups[need]] = free[returned] = False
        is_held[_some(order[free[order]], sizes, missing)] = True
    return order[is_held[order]]


def _first_with(rows: Ints, parts: Ints, asked: NDArray[np.bool_]) -> Ints:
    """The first of the `rows` that has each part of those asked for."""
    flat = parts[rows].ravel()
    at = np.flatnonzero(asked[flat])
    found: Ints = rows[at[np.unique(flat[at], return_index=True)[1]] // parts.shape[1]]
    return found


def by_time(times: NDArray[np.generic], parts: Ints | None, shares: tuple[float, float, float]) -> Ints:
    """Sides of triples with times ``[n]``, cut between different times where the shares are nearest.

    What has a part, of `parts` as in `at_random`, that train lacks is on no side.
    """
    number, counts = np.unique(times, return_inverse=True, return_counts=True)[1:]
    before = np.concatenate([[0], np.cumsum(counts)])  # triples before each of the different times
    last = len(counts)
    first_cut, second_cut = (int(np.abs(before - len(times) * sum(shares[:k])).argmin()) for k in (1, 2))
    second_cut = min(second_cut, last - 1) if shares[2] else last
    first_cut = min(first_cut, second_cut - 1) if shares[1] else second_cut
    first_cut = max(first_cut, 1)
    sides = np.where(number < first_cut, TRAIN, np.where(number < second_cut, VALID, TEST))
    if parts is not None:
        known = np.zeros(int(parts.max(initial=-1)) + 1, dtype=bool)
        known[parts[sides == TRAIN]] = True
        sides[~known[parts].all(axis=1)] = NONE
    return sides.astype(np.int64)


def pattern_groups(triples: Ints, num_entities: int, num_relations: int, patterns: Sequence[Overlap]) -> Ints:
    """A number for each triple, ``[n]``, from 0 on, the same for what may be copied from each other.

    These are triples that connect the same two entities, in either direction, by relations that the patterns connect.
    """
    root = list(range(num_relations))

    def find(relation: int) -> int:
        while root[relation] != relation:
            relation = root[relation]
        return relation

    for found in patterns:
        one, two = sorted((find(found.first), find(found.second)))
        root[two] = one
    concerned = np.zeros(num_relations, dtype=bool)
    for found in patterns:
        concerned[[found.first, found.second]] = True
    family = np.array([find(relation) for relation in range(num_relations)], dtype=np.int64)
    low, high = np.minimum(triples[:, 0], triples[:, 2]), np.maximum(triples[:, 0], triples[:, 2])
    pair = np.unique(low * num_entities + high, return_inverse=True)[1]
    code = pair * num_relations + family[triples[:, 1]]
    alone = ~concerned[triples[:, 1]]
    code[alone] = -1 - np.flatnonzero(alone)
    numbers: Ints = np.unique(code, return_inverse=True)[1]
    return numbers
