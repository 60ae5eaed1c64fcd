"""Relation patterns: which relations connect the same pairs of entities, and which the same pairs the other way round.

Two relations overlap in the pairs that both connect. If most pairs of one are pairs of the other, a triple of the one
answers a query about the other by being copied. A relation that overlaps with its own reverse is symmetric.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from eans.graph import KnowledgeGraph
from eans.triple_index import HEAD, RELATION, TAIL, ragged

Pattern = Literal["symmetric", "inverse", "near-duplicate"]
HALF = 0.5  # of one relation's pairs: what is kept of train
LEAST = 0.8  # share of both relations' pairs, from which they count as inverse or near-duplicate (Akrami et al., 2020)
MOST_RELATIONS = 1000  # of a pair of entities; pairs with more of them are left out: they tell no relations apart
BLOCK, MOST_SHARES = 1 << 20, 1 << 8  # coincidences, and triples, that are counted at a time; shares of the triples


@dataclass(frozen=True)
class Overlap:
    """Two relations that connect the same pairs of entities, or one that connects pairs in both directions.

    Attributes:
        first, second: relations, first <= second; they are equal for a symmetric relation.
        reverse: whether the pairs of one are those of the other with head and tail exchanged.
        count: pairs of the first that are, exchanged if `reverse`, pairs of the second.
        first_size, second_size: pairs of each; if `reverse`, without loops, which are their own reverse.
    """

    first: int
    second: int
    reverse: bool
    count: int
    first_size: int
    second_size: int

    @property
    def pattern(self) -> Pattern:
        """What the relations are if the overlap is large."""
        if self.first == self.second:
            return "symmetric"
        return "inverse" if self.reverse else "near-duplicate"

    @property
    def first_share(self) -> float:
        """Of the pairs of the first, how many are of the second."""
        return self.count / self.first_size

    @property
    def second_share(self) -> float:
        """Of the pairs of the second, how many are of the first."""
        return self.count / self.second_size

    @property
    def mutual_share(self) -> float:
        """The smaller of both shares."""
        return min(self.first_share, self.second_share)


def overlaps(triples: Tensor, num_entities: int, num_relations: int, least: float = LEAST) -> list[Overlap]:
    """The overlaps in which one of the two shares is at least `least`, the largest mutual share first.

    Args:
        triples: int64 ``[n, 3]``; those that repeat count once.
        num_entities, num_relations: how many ids there are.
        least: more than 0.
    """
    nothing = torch.empty(0, dtype=torch.int64)
    sizes = {reverse: torch.zeros(num_relations, dtype=torch.int64) for reverse in (False, True)}
    found = dict.fromkeys(sizes, (nothing, nothing))
    for share in _shares(triples):
        for reverse, of_share, coincidences in _overlapping(share, num_entities, num_relations):
            sizes[reverse] += of_share
            found[reverse] = _added(found[reverse], coincidences)
    result = []
    for reverse, (both, counts) in found.items():
        one, two, of_each = both // num_relations, both % num_relations, sizes[reverse]
        large = counts >= least * torch.minimum(of_each[one], of_each[two])
        rows = zip(one[large].tolist(), two[large].tolist(), counts[large].tolist(), strict=True)
        result += [Overlap(a, b, reverse, count, int(of_each[a]), int(of_each[b])) for a, b, count in rows]
    return sorted(result, key=lambda found: (-found.mutual_share, -found.count, found.first, found.second))


def _shares(triples: Tensor) -> Iterator[Tensor]:
    """The triples, some `BLOCK` at a time: those that connect the same entities, in any direction, all at once."""
    last = min(1 << (len(triples) // BLOCK).bit_length(), MOST_SHARES) - 1
    share = torch.cat(
        [((block[:, HEAD] + block[:, TAIL]) & last).to(torch.uint8) for block in torch.split(triples, BLOCK)]
        or [torch.empty(0, dtype=torch.uint8)]
    )
    for number in range(last + 1):
        yield triples[share == number] if last else triples


def _overlapping(
    triples: Tensor, num_entities: int, num_relations: int
) -> Iterator[tuple[bool, Tensor, tuple[Tensor, Tensor]]]:
    """Not reversed, then reversed: the pairs of each relation ``[R]``, and the coincidences of two."""
    pairs, place = torch.unique(triples[:, HEAD] * num_entities + triples[:, TAIL], return_inverse=True)
    codes = torch.unique(place * num_relations + triples[:, RELATION])
    pair, relation = codes // num_relations, codes % num_relations
    first = torch.searchsorted(pair, torch.arange(len(pairs) + 1))  # where the rows of each pair begin
    head, tail = pairs // num_entities, pairs % num_entities
    exchanged = tail * num_entities + head
    found = torch.searchsorted(pairs, exchanged).clamp_(max=max(0, len(pairs) - 1))
    opposite = torch.where((pairs[found] == exchanged) & (head != tail), found, -1)
    loops = (head == tail)[pair]
    for reverse, other, mine in ((False, pair, relation), (True, opposite[pair], relation[~loops])):
        sizes = torch.bincount(mine, minlength=num_relations)
        yield reverse, sizes, _coincidences(relation, first, other, num_relations, reverse)


def _added(one: tuple[Tensor, Tensor], two: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The counts of both: codes, ascending, and how often each occurs."""
    codes, where = torch.unique(torch.cat([one[0], two[0]]), return_inverse=True)
    counts = torch.zeros(len(codes), dtype=torch.int64)
    return codes, counts.index_add_(0, where, torch.cat([one[1], two[1]]))


_KEPT: WeakKeyDictionary[KnowledgeGraph, list[Overlap]] = WeakKeyDictionary()


def overlaps_in_train(graph: KnowledgeGraph) -> list[Overlap]:
    """The overlaps in train in which one of the two shares is at least half, found once for a graph."""
    if graph not in _KEPT:
        _KEPT[graph] = overlaps(graph.train, graph.num_entities, graph.num_relations, HALF)
    return _KEPT[graph]


def _coincidences(
    relation: Tensor, first: Tensor, other: Tensor, num_relations: int, equal: bool
) -> tuple[Tensor, Tensor]:
    """How often a row's relation a and a relation b of the pair ``other[row]`` come together, for a < b.

    Args:
        relation: of each row, ``[n]``; the rows of pair p are ``first[p]`` up to ``first[p + 1]``.
        other: a pair for each row, -1 for none, ``[n]``.
        equal: count a = b as well.

    Returns:
        ``a * num_relations + b``, ascending, and the counts.
    """
    start = torch.where(other < 0, 0, first[other])
    size = torch.where(other < 0, 0, first[other + 1] - start)
    size = torch.where(size > MOST_RELATIONS, 0, size)
    ends = size.cumsum(0)
    cuts = torch.searchsorted(ends, torch.arange(BLOCK, int(ends[-1]) + BLOCK if len(ends) else BLOCK, BLOCK))
    found = relation.new_empty(0), relation.new_empty(0)
    begin = 0
    for end in [*(cuts + 1).clamp(max=len(relation)).tolist(), len(relation)]:
        row, offset = ragged(size[begin:end])
        row += begin
        one, two = relation[row], relation[start[row] + offset]
        kept = one <= two if equal else one < two
        found = _added(found, torch.unique((one * num_relations + two)[kept], return_counts=True))
        begin = end
    return found
