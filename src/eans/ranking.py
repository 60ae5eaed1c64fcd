"""Queries against all entities, a tile of entities at a time: counts of what beats the true answer, and the best.

No matrix of queries and all entities ever exists, so that the bound on the working memory holds at any number of
entities. A true answer's score is read from the tensor of the tile that it is in, where it is ranked against that tile;
other tiles are compared with it afterwards. Each pair is scored once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from eans import kernels
from eans.graph import Side, TripleIndex, column
from eans.models import Model
from eans.models.base import ALL, Scorer

DEFAULT_MEMORY = 512 * 2**20
# Numbers that a block needs per query and entity, and per query and column of the entity table: the scores and a little
# for what counting takes; the rows that a query is made of and what lies between. A relation row that is longer than
# the entity's (a matrix) is read besides, and layers hold what they say.
PER_ENTITY, PER_COLUMN, PER_EXCESS, PER_LAYER_NUMBER = 1.125, 8, 1.25, 1.125
# Most rows of a block. On a CPU a block's queries should stay in cache; a GPU wants few launches of many programs.
MOST_ROWS = {"cpu": 1024, "cuda": 8192}
# Entities of a tile below which there are fewer queries instead: calls take their time, too.
LEAST_ENTITIES = 4096


class Cost(NamedTuple):
    """Bytes of working memory for each query of a block, and for each pair of a query and an entity."""

    query: float
    pair: float

    @classmethod
    def of(cls, model: Model) -> Cost:
        """What a model needs."""
        columns, size = model.entity.shape[1], model.entity.element_size()
        # Models that are not fused read each relation once and not for every query.
        excess = max(0, model.relation.shape[1] - columns) if model.fused else 0
        numbers = PER_COLUMN * columns + PER_EXCESS * excess + PER_LAYER_NUMBER * model.layer_numbers
        return cls(size * numbers, size * PER_ENTITY)


class Tiling(NamedTuple):
    """How much is scored at a time: so many queries with each of these ranges of entities."""

    rows: int
    tiles: Sequence[slice]

    @classmethod
    def of(cls, memory: int, cost: Cost, entities: range, device: torch.device) -> Tiling:
        """The largest that the memory allows for a range of entities, of which a few are the least it can do."""
        least = min(len(entities), LEAST_ENTITIES)
        rows = int(max(1, min(MOST_ROWS.get(device.type, 1024), memory // (cost.query + cost.pair * least))))
        most = max(least, int((memory / rows - cost.query) // cost.pair))
        count = max(1, -(-len(entities) // max(1, most)))
        size = max(1, -(-len(entities) // count))
        starts = range(entities.start, entities.stop, size)
        return cls(rows, [slice(start, min(start + size, entities.stop)) for start in starts])


def bytes_per_query(model: Model) -> int:
    """Working memory for each query of a block that is compared with all entities at once."""
    cost = Cost.of(model)
    return math.ceil(cost.query + cost.pair * model.num_entities)


class Asked(NamedTuple):
    """Queries whose true answers are ranked.

    Attributes:
        triples: int64 ``[B, 3]``.
        truth: int64 ``[B]``: the true answers.
        home: the same, on the CPU: which tile has them is decided without waiting for a device.
        keys, start, stop: the known answers, as `eans.kernels.count_better` takes them.
        num_entities: E.
    """

    triples: Tensor
    truth: Tensor
    home: Tensor
    keys: Tensor
    start: Tensor
    stop: Tensor
    num_entities: int

    @classmethod
    def of(cls, triples: Tensor, side: Side, known: TripleIndex) -> Asked:
        """Of triples ``[B, 3]`` on the CPU, by an index that is anywhere."""
        there = triples.to(known.keys[side].device)
        start, stop = known.run(there, side)
        place = column(side)
        return cls(there, there[:, place], triples[:, place], known.keys[side], start, stop, known.num_entities)

    def counted(self, score: Scorer, rows: slice | Tensor, tile: slice, levels: Tensor | None) -> tuple[Tensor, Tensor]:
        """`Counts` ``[3, b]`` of some rows in a tile, and the true answers' scores ``[b]``.

        These are `levels`, or read from the tile, which then has all of them.
        """
        scores, truth = score(rows, tile), self.truth[rows]
        if levels is None:
            levels = kernels.levels_of(scores, truth, tile.start)
        answers = self.keys, self.start[rows], self.stop[rows]
        found = kernels.count_better(scores, truth, *answers, levels, tile.start, self.num_entities)
        return torch.stack(found), levels.double()


def count_at_home(score: Scorer, asked: Asked, tiles: Sequence[slice]) -> tuple[Tensor, Tensor]:
    """The scores of the true answers ``[B]``, and `Counts` ``[3, B]`` of the tiles that these are in.

    A score is NaN where the true answer is in none of the tiles, as in a process that owns a part of the entities.
    """
    counts = asked.truth.new_zeros(3, len(asked.truth))
    levels = asked.truth.new_full(asked.truth.shape, torch.nan, dtype=torch.float64)  # holds float32 exactly
    for tile, (rows, _) in zip(tiles, _parted(asked.home, tiles, asked.truth.device), strict=True):
        if isinstance(rows, slice) or len(rows):
            counts[:, rows], levels[rows] = asked.counted(score, rows, tile, None)
    return levels, counts


def count_elsewhere(score: Scorer, asked: Asked, levels: Tensor, tiles: Sequence[slice]) -> Tensor:
    """`Counts` ``[3, B]`` of the tiles that the true answers, which score `levels` ``[B]``, are not in."""
    counts = asked.truth.new_zeros(3, len(asked.truth))
    for tile, (_, rows) in zip(tiles, _parted(asked.home, tiles, asked.truth.device), strict=True):
        if isinstance(rows, slice) or len(rows):
            counts[:, rows] += asked.counted(score, rows, tile, levels[rows])[0]
    return counts


def count(score: Scorer, asked: Asked, tiles: Sequence[slice]) -> kernels.Counts:
    """Candidates that beat or tie the true answers, over tiles of all entities; nothing waits for a GPU."""
    levels, counts = count_at_home(score, asked, tiles)
    if len(tiles) > 1:
        counts += count_elsewhere(score, asked, levels, tiles)
    return kernels.Counts(*counts)


def _parted(
    home: Tensor, tiles: Sequence[slice], device: torch.device
) -> Iterator[tuple[slice | Tensor, slice | Tensor]]:
    """For each tile the rows whose true answer is in it, and the other rows."""
    none = torch.empty(0, dtype=torch.int64, device=device)
    if len(tiles) == 1 and bool(((home >= tiles[0].start) & (home < tiles[0].stop)).all()):
        yield ALL, none
        return
    order = home.argsort(stable=True)
    bounds = torch.searchsorted(home[order], torch.tensor([[tile.start, tile.stop] for tile in tiles]))
    order = order.to(device)
    for first, last in bounds.tolist():
        yield order[first:last], ALL if first == last else torch.cat((order[:first], order[last:]))


def best(
    score: Scorer, k: int, answers: tuple[Tensor, Tensor, Tensor], num_entities: int, tiles: Sequence[slice]
) -> kernels.Best:
    """The k best entities of each query, known `answers` (keys, start, stop) left out; k is at most E."""
    found: kernels.Best | None = None
    for tile in tiles:
        scores = score(ALL, tile)
        more = kernels.best(scores, min(k, scores.shape[1]), *answers, tile.start, num_entities)
        found = more if found is None else kernels.merged(found, more, k)
    assert found is not None
    return found
