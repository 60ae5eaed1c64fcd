"""Ranking by several ranks, each among the entities that it owns: no rank needs the whole table."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from eans import kernels
from eans.distributed import ShardedTable
from eans.graph import HEAD, RELATION, TAIL, Side, TripleIndex, column, opposite
from eans.models import Model

PER_ENTITY = 6  # bytes of a block for each query and entity: a score, and what comparing it takes


class PartRanking:
    """Counts the candidates that beat or tie the truth, the ranks together.

    Each rank makes all queries of a block, for which it fetches the rows of the known entities, and scores its own
    entities. The score of the true one comes from its owner, who reads it from the tensor that it ranks among; the
    counts of all ranks are added up. ``(W - 1) (row + 8)`` bytes are fetched for a query at most.

    Args:
        model: with the rows of `table` that this rank owns.
        table: of this rank.
        known: the known triples, on the device.
    """

    def __init__(self, model: Model, table: ShardedTable, known: TripleIndex) -> None:
        self.model, self.table, self.known = model, table, known
        self.world = table.world

    def rows(self, memory: int) -> int:
        """How many queries a block has in so many bytes; the same on all ranks."""
        largest = -(-self.model.num_entities // self.world.size)
        return max(1, memory // (PER_ENTITY * largest))

    @torch.no_grad()
    def count(self, triples: Tensor, side: Side) -> kernels.Counts:
        """As `eans.kernels.count_better`, over all entities, for triples ``[B, 3]`` that all ranks have."""
        scores = self._scores(triples, side)
        rows = torch.arange(len(triples), device=triples.device)
        truth = triples[:, column(side)]
        levels = scores.new_zeros(len(triples))
        here, slots = self._own(truth)
        levels[here] = scores[rows[here], slots]
        levels = self.world.total(levels)[:, None]
        invalid = torch.isnan(scores).sum(1)
        asked, answers = self.known.answers(triples, side)
        for row, entity in ((asked, answers), (rows, truth)):  # no candidates: equal to nothing, above nothing
            here, slots = self._own(entity)
            scores[row[here], slots] = torch.nan
        found = torch.stack([(scores > levels).sum(1), (scores == levels).sum(1), invalid])
        return kernels.Counts(*self.world.total(found).unbind())

    def _own(self, entities: Tensor) -> tuple[Tensor, Tensor]:
        """Which of the entities ``[n]`` are this rank's, and their rows: a mask ``[n]`` and int64 ``[m]``."""
        placement = self.table.placement
        here = placement.owner(entities) == self.world.rank
        return here, placement.places[entities[here]] - placement.starts[self.world.rank]

    def _scores(self, triples: Tensor, side: Side) -> Tensor:
        """Of this rank's entities in the `side` of the triples: ``[B, L]``."""
        model, anchor = self.model, column(opposite(side))
        (local,) = self.table.admit(triples[:, anchor])
        own, model.entity = model.entity, nn.Parameter(self.table.rows)
        try:
            ends = {HEAD: local, TAIL: local}  # that of the other side is not read
            asked = torch.stack([ends[HEAD], triples[:, RELATION], ends[TAIL]], 1)
            asked, turned = model.oriented(asked, side)
            rows = model.entity_rows(asked[:, column(opposite(turned))])
            query = model.query(rows, model.relation_rows(asked[:, RELATION]), turned)
        finally:
            model.entity = own
        own.data = self.table.own
        scores = kernels.compare_all(model.comparison, query.vector, model.candidate_table())
        return scores.add_(model.offset) if model.offset else scores
