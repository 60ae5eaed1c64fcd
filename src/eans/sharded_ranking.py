"""Ranking by several ranks, each among the entities that it owns: no rank needs the whole table."""

from __future__ import annotations

import torch
from torch import Tensor

from eans import kernels
from eans.distributed import ShardedTable
from eans.graph import RELATION, Side, TripleIndex, column, opposite
from eans.models import Model
from eans.models.base import Scorer
from eans.ranking import Asked, Cost, Tiling, count_at_home, count_elsewhere


class PartRanking:
    """Counts the candidates that beat or tie the truth, the ranks together.

    Each rank makes all queries of a block, for which it fetches the rows of the known entities, and scores its own
    entities. The score of the true one comes from its owner, who reads it from the tensor that it ranks among; the
    counts of all ranks are added up.

    Args:
        model: with the rows of `table` that this rank owns.
        table: of this rank.
        known: the known triples, on the device.
        memory: bound in bytes on the working memory.

    Attributes:
        rows: queries of a block; the same on all ranks.
    """

    def __init__(self, model: Model, table: ShardedTable, known: TripleIndex, memory: int) -> None:
        self.model, self.table, self.known = model, table, known
        self.world = table.world
        largest = range(-(-model.num_entities // self.world.size))
        self.rows, tiles = Tiling.of(memory, Cost.of(model), largest, known.keys["tail"].device)
        self.tiles = [slice(tile.start, min(tile.stop, table.owned)) for tile in tiles if tile.start < table.owned]

    @torch.no_grad()
    def count(self, triples: Tensor, side: Side) -> kernels.Counts:
        """As `eans.kernels.count_better` over all entities, for triples ``[B, 3]`` on the CPU, which all ranks have."""
        triples = triples.to(self.known.keys[side].device)
        score, asked = self._scorer(triples, side), self._asked(triples, side)
        levels, counts = count_at_home(score, asked, self.tiles)
        # Everywhere but at its owner a level is none.
        levels = self.world.total(torch.where(asked.truth < self.table.owned, levels, 0.0))
        counts += count_elsewhere(score, asked, levels.to(self.table.own.dtype), self.tiles)
        return kernels.Counts(*self.world.total(counts))

    def _asked(self, triples: Tensor, side: Side) -> Asked:
        """The queries with the rows of this rank instead of entities; L stands for those of other ranks."""
        rows, answers = self.known.answers(triples, side)
        slots = self._slots(answers)
        keys = (rows * (self.table.owned + 1) + slots)[slots < self.table.owned].sort().values
        first = torch.arange(len(triples), device=triples.device) * (self.table.owned + 1)
        start, stop = torch.searchsorted(keys, first), torch.searchsorted(keys, first + self.table.owned)
        truth = self._slots(triples[:, column(side)])
        return Asked(triples, truth, truth.cpu(), keys, start, stop, self.table.owned + 1)

    def _slots(self, entities: Tensor) -> Tensor:
        """Rows of entities int64 ``[n]`` in the table of their owner, this rank; L for others."""
        slots = self.table.placement.places[entities] - self.table.placement.starts[self.world.rank]
        return torch.where((slots >= 0) & (slots < self.table.owned), slots, self.table.owned)

    def _scorer(self, triples: Tensor, side: Side) -> Scorer:
        """Scores of ranges of this rank's rows in the `side` of the triples."""
        model, anchor = self.model, triples[:, column(opposite(side))]
        turned, way = model.oriented(triples, side)  # the known entity stays the one that is known
        rows = self.table.fetch(anchor, model.entity.detach())
        query = model.query(rows, model.relation_rows(turned[:, RELATION]), way)

        def score(rows: slice | Tensor, entities: slice) -> Tensor:
            scores = kernels.compare_all(model.comparison, query.vector[rows], model.candidate_table(entities))
            return scores.add_(model.offset) if model.offset else scores

        return score
