"""A training step of one of several ranks, each with a part of the entity table's rows.

Every rank makes the whole batch and proposes candidates for all of it, from the same random numbers as one process
would. It then goes on with the positives whose replaced entity it owns: so a step computes the same on any number of
ranks, up to the order of sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from eans.distributed import Placement, ShardedTable, send_home
from eans.graph import HEAD, RELATION, TAIL, column
from eans.kernels.deferred_gradients import DeferredGradients, TableSinks, deferred_for
from eans.models import learning
from eans.objective import total
from eans.optimizer import SHARED_STATE
from eans.step import Step, diverged
from eans.types import Batch, LossTerms, Negatives, Scores, Side, Whole


class ShardedStep(Step):
    """A `Step` on the rows of a `ShardedTable`, which become the model's entity table meanwhile.

    Attributes:
        table: whose rows ``[L, F]`` the model has as its entities.
        relation_bytes: bytes that have left this rank for the gradients of relations.
    """

    def __init__(self, *parts: Any, table: ShardedTable, **options: Any) -> None:
        super().__init__(*parts, **options)
        self.table, self.own = table, self.model.entity
        self.world = table.world
        self.relation_bytes = 0
        # On a CPU parts of gradients are rows, which can be told apart by owner; elsewhere gradients are tables here.
        self.sorts = self.execution.device.type == "cpu"
        self.sink = self.optimizer.sink(self.own) if self.sorts or self.optimizer.by_rows else None
        self.read = torch.empty(0, dtype=torch.int64, device=self.execution.device)
        self.work.enabled = False  # messages are no part of a CUDA graph
        self.ordering = self.sampler.orderings

    def __call__(self, number: int) -> LossTerms:
        terms = super().__call__(number)
        if self.sampler.orderings != self.ordering:
            self.place()
        return terms

    def place(self) -> None:
        """Move rows and what the optimizer has of them to where the sampler's ordering wants them."""
        self.ordering = self.sampler.orderings
        ordering = self.sampler.ordering()
        assert ordering is not None, "only a new ordering moves rows"
        moments = self.optimizer.state.get(self.own, {})
        rows = {name: value for name, value in moments.items() if name not in SHARED_STATE}
        entities, places = ordering
        moved = self.table.move(Placement(entities.clone(), places.clone(), self.world.size), rows)
        moments.update(moved)

    def _compute(self, rows: Tensor, side: Side) -> tuple[Batch, Negatives, Scores, LossTerms]:
        self.optimizer.zero_grad()
        with self.execution.small_operations(), learning(self.model, self.generator):
            batch = self.stream.batch(rows, side, self.execution.places)
            mine = self.table.mine(batch.triples[:, column(side)]).nonzero()[:, 0]
            part = Batch(batch.triples[mine], side, batch.weight[mine])
            negatives = self._negatives(batch, part, mine)
            kept = self.model.dropout(len(rows), self.dropout, self.generator)[mine] if self.dropout else None
            whole = self._whole(batch, negatives)
            with self._guests(part, negatives) as (local, candidates):
                log_proposal = self._log_proposal(part, negatives)
                scores, terms = self._terms(local, candidates, kept, log_proposal, whole)
                found = self._summed(terms)
                if len(mine):
                    total(terms).backward()  # type: ignore[no-untyped-call]
                gradient = self.model.entity.grad
            read = self.read if self.optimizer.by_rows else None
            self.own.grad = send_home(self.table, gradient, self.execution.sinks.entity, self.sink, read)
            self._add_relations(batch)
            self.optimizer.step()
        return part, negatives, scores.detach(), found

    def _negatives(self, batch: Batch, part: Batch, mine: Tensor) -> Negatives:
        """Those of some positives, ``batch.triples[mine]``, drawn with those of all."""
        entities = self.sampler.propose(batch.triples, batch.side, self.generator)
        if self.sampler.sorts:
            entities = entities.sort(dim=1).values
        if self.sampler.false_negatives != "resample":
            return self.sampler.settle(entities[mine], part.triples, part.side, self.generator)
        # What is drawn again for one positive depends on those before it.
        drawn = self.sampler.settle(entities, batch.triples, batch.side, self.generator)
        weight = None if drawn.weight is None else drawn.weight[mine]
        return Negatives(drawn.entities[mine], drawn.known_true[mine], weight)

    def _whole(self, batch: Batch, negatives: Negatives) -> Whole:
        """What the loss divides by. All ranks know the batch, but not the labels of each other's negatives."""
        known = negatives.known_true.sum()
        if self.objective.loss.needs_labels:
            known = self.world.total(known[None])[0]
        return Whole(len(batch.triples), batch.weight.sum(), known)

    @contextmanager
    def _guests(self, part: Batch, negatives: Negatives) -> Iterator[tuple[Batch, Negatives]]:
        """The same with local ids, while the model's entity table is that of own and guest rows."""
        used = part.triples[:, HEAD], part.triples[:, TAIL], negatives.entities
        heads, tails, candidates = self.table.admit(*used, before=self._prepare)
        self.own.data = self.table.own
        self.model.entity = nn.Parameter(self.table.rows)
        self.execution.sinks = TableSinks(self._sink())
        try:
            triples = torch.stack([heads, part.triples[:, RELATION], tails], 1)
            yield part._replace(triples=triples), negatives._replace(entities=candidates)
        finally:
            self.model.entity = self.own

    def _prepare(self, rows: Tensor) -> None:
        """Before own rows int64 ``[M]`` are read, here or by those that they are given to."""
        self.read = rows
        self.optimizer.prepare(rows)

    def _sink(self) -> DeferredGradients | None:
        """Where parts of the gradient of own and guest rows are left."""
        if self.sink is None or not self.sorts:
            return None
        sink = deferred_for(self.model.entity)
        sink.by_rows = self.sink.by_rows
        return sink

    def _log_proposal(self, part: Batch, negatives: Negatives) -> Tensor | None:
        if not self.objective.loss.needs_proposal:
            return None
        return self.sampler.log_proposal(part.triples, part.side, negatives.entities)

    def _terms(
        self, local: Batch, candidates: Negatives, kept: Tensor | None, log_proposal: Tensor | None, whole: Whole
    ) -> tuple[Scores, LossTerms]:
        """Scores of this rank's positives, and what they add to the terms of the whole batch."""
        if not len(local.triples):
            none, zero = self.own.new_zeros(0), self.own.new_zeros(())
            return Scores(none, none.view(0, 0), None), dict.fromkeys(self.objective.names, zero)
        positives, scores = self._scores(local, candidates, kept)
        return scores, self.objective(self.model, positives, scores, candidates, log_proposal, whole)

    def _summed(self, terms: LossTerms) -> LossTerms:
        """The terms of the whole batch, which all ranks find finite, or none."""
        summed = self.world.total(torch.stack([total(terms), *terms.values()]).detach())
        if not bool(torch.isfinite(summed[0])):
            raise diverged(self.number, float(self.optimizer.rate))
        found = dict(zip(terms, summed[1:].unbind(), strict=True))
        self.sums.add(summed[0], found)
        return found

    def _add_relations(self, batch: Batch) -> None:
        """Add up the gradients of relations, which all ranks have: of those that may have one in this batch."""
        before, relation = self.world.sent, self.model.relation
        if relation.grad is None:
            relation.grad = torch.zeros_like(relation)
        rows = torch.arange(len(relation), device=relation.device)
        if not any("relation" in term.whole_tables for term in self.objective.terms):
            relations = self.model.oriented(batch.triples, batch.side)[0][:, RELATION]
            rows = torch.unique(torch.cat([relations, rows[self.model.substitution_relation :]]))
        relation.grad[rows] = self.world.total(relation.grad[rows])
        self.relation_bytes += self.world.sent - before
