"""What a model is: parameters, and a way to turn (known entity, relation, side) into a query.

A candidate entity is only ever *compared* with a query (`eans.kernels`), so one file per model holds little more than
the `query` method, and every kernel serves every model. Higher scores mean more plausible; margins belong to losses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from eans import kernels
from eans.errors import UsageError
from eans.graph import HEAD, RELATION, TAIL, column, opposite
from eans.kernels.deferred_gradients import AUTOGRAD, DeferredGradients, TableSinks
from eans.models.arguments import require_entities, require_triples
from eans.models.parameters import Parameters
from eans.models.query import Positives, Query, substitution_queries
from eans.types import Batch, Capability, Scores, Side, Substitution, TripleRows

# Numbers of relation rows, or of layers, that `score_relations` works on at once; a row may be a matrix.
RELATION_NUMBERS = 1 << 23
ALL = slice(None)
# Scores ``[b, e]`` of some rows of a batch of queries, a slice or ids ``[b]``, with a range of entities.
Scorer = Callable[[slice | Tensor, slice], Tensor]


class Model(Parameters, ABC):
    """Base of all models. A subclass declares the widths of its rows and the comparison (see `Parameters`) and writes
    `query`; where that takes layers, it makes them in `make_layers`.

    Scores are those of a trained model: layers are in evaluation mode. A training step computes its own in `learning`.
    """

    @abstractmethod
    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Query:
        """The query for the missing `side`, from rows of the known entity ``[B, F]`` and the relation ``[B, G]``.

        One relation may stand for all: ``[1, G]``.
        """

    def candidate_table(self, entities: slice = ALL) -> Tensor:
        """What is compared with queries, ``[E, D]``: a view of columns of `entity`, or a table made from it.

        Or that of a range of entities, ``[e, D]``.
        """
        return self.entity[entities, : self.candidate_columns()]

    def candidate_scalars(self, rows: Tensor, deferred: DeferredGradients | None = None) -> Tensor | None:
        """One number per entity row ``[..., F]`` that multiplies a query's shift: ``[...]``, or None.

        `deferred` is that of the entity table, where `rows` are the whole table.
        """
        del rows, deferred
        return None

    def factors(self, rows: TripleRows) -> tuple[Tensor, Tensor, Tensor]:
        """Coordinates of head, relation and tail for the N3 penalty, of P parts each: three tensors ``[B, P, ...]``."""
        return rows.head[:, None], rows.relation[:, None], rows.tail[:, None]

    def total_score(self) -> Tensor:
        """The sum of the scores of all ``E R E`` triples, offset and substitution relation left out: a scalar.

        For models that declare `closed_form_sum`.
        """
        raise self._lacks(Capability.CLOSED_FORM_SUM)

    def relation_query(self, heads: Tensor, tails: Tensor) -> Tensor:
        """What a relation row is multiplied by in the score of head and tail rows ``[B, F]`` each: ``[B, G]``.

        For models that declare `linear_in_relation`, with unbounded rows.
        """
        del heads, tails
        raise self._lacks(Capability.LINEAR_IN_RELATION)

    def relation_scores(self, rows: TripleRows) -> Tensor:
        """Scores of every relation between the heads and tails of B triples, with gradients: ``[B, R]``.

        As `score_relations`, at the cost of one matrix product. Reciprocal relations are scored as well: ``[B, 2R]``.
        """
        if self.bounded:
            raise self._lacks(Capability.UNBOUNDED_ROWS)
        return kernels.products(self.relation_query(rows.head, rows.tail), self.relation[: self.substitution_relation])

    def candidate(self, rows: Tensor, shift: Tensor | None) -> Tensor:
        """What is compared of entity rows ``[B, F]``, changed by the query's shift: ``[B, D]``."""
        columns = rows[..., : self.candidate_columns()]
        scalars = self.candidate_scalars(rows)
        return columns if shift is None or scalars is None else columns + scalars[..., None] * shift

    def _compare_positive(self, query: Query, rows: Tensor) -> Tensor:
        scores = kernels.compare_rows(self.comparison, query.vector, self.candidate(rows, query.shift))
        return scores + self.offset if self.offset else scores

    def compare_candidates(self, queries: list[Query], entities: Tensor, sinks: TableSinks = AUTOGRAD) -> Tensor:
        """Scores of the first query, and the mean score of the others: ``[min(Q, 2), B, N]``.

        The candidates int64 ``[B, N]`` of a positive are compared with all of its queries, ``[B, ...]`` each. This and
        `comparer` are what a model overrides whose candidates are more than rows of the table.
        """
        shifts = [query.shift.expand_as(query.vector) for query in queries if query.shift is not None]
        scores = kernels.compare(
            self.comparison,
            torch.stack([query.vector for query in queries]),
            self.candidate_table(),
            entities,
            torch.stack(shifts) if shifts else None,
            self.candidate_scalars(self.entity, sinks.entity),
            mean_rest=True,
            deferred=None if self.bounded else sinks.entity,
        )
        return scores + self.offset if self.offset else scores

    def products_with_all(self, queries: list[Query], sinks: TableSinks = AUTOGRAD) -> list[Tensor]:
        """Scores of all entities in their order, for each query: ``[B, E]`` each.

        A matrix product, so only for models that compare by a dot product.
        """
        if self.comparison != "dot":
            raise self._lacks(Capability.DOT_PRODUCT)
        table, deferred = self.candidate_table(), None if self.bounded else sinks.entity
        scores = [kernels.products(query.vector, table, deferred) for query in queries]
        return [score + self.offset for score in scores] if self.offset else scores

    def comparer(self, triples: Tensor, side: Side) -> Scorer:
        """What compares the queries of `oriented` triples, which are made once, with ranges of entities."""
        anchor = self.entity_rows(triples[:, column(opposite(side))])
        query = self.query(anchor, self.relation_rows(triples[:, RELATION]), side)

        def compare(rows: slice | Tensor, entities: slice) -> Tensor:
            return kernels.compare_all(
                self.comparison,
                query.vector[rows],
                self.candidate_table(entities),
                None if query.shift is None else query.shift[rows],
                self.candidate_scalars(self.entity[entities]),
            )

        return compare

    def compare_all(self, triples: Tensor, side: Side) -> Tensor:
        """`score_all` of `oriented` triples, without gradients: ``[B, E]``."""
        return self.comparer(triples, side)(ALL, ALL)

    def score(self, triples: Tensor) -> Tensor:
        """Plausibility of triples ``[B, 3]``: ``[B]``.

        Relations may be given by the numbers of their inverses, ``R + r``, where there are reciprocal ones.
        """
        require_triples(self, triples)
        rows = self.entity_rows(torch.stack((triples[:, HEAD], triples[:, TAIL]), dim=1))
        query = self.query(rows[:, 0], self.relation_rows(triples[:, RELATION]), "tail")
        return self._compare_positive(query, rows[:, 1])

    def score_candidates(self, triples: Tensor, side: Side, entities: Tensor) -> Tensor:
        """Scores with the `side` of each triple ``[B, 3]`` replaced by `entities` ``[B, N]``: ``[B, N]``."""
        require_triples(self, triples)
        require_entities(self, entities, len(triples))
        return self.scores_of_candidates(triples, side, entities)

    def scores_of_candidates(self, triples: Tensor, side: Side, entities: Tensor) -> Tensor:
        """`score_candidates` without a check of the ids, which would wait for the device."""
        triples, side = self.oriented(triples, side)
        anchor = self.entity_rows(triples[:, column(opposite(side))])
        query = self.query(anchor, self.relation_rows(triples[:, RELATION]), side)
        return self.compare_candidates([query], entities)[0]

    def score_all(self, triples: Tensor, side: Side) -> Tensor:
        """Scores of every entity in the `side` of each triple ``[B, 3]``, without gradients: ``[B, E]``."""
        require_triples(self, triples)
        return self.scores_of_all(triples, side)

    def scores_of_all(self, triples: Tensor, side: Side) -> Tensor:
        """`score_all` without a check of the ids, which would wait for the device."""
        return self.scorer(triples, side)(ALL, ALL)

    def scorer(self, triples: Tensor, side: Side) -> Scorer:
        """What scores ranges of entities in the `side` of triples ``[B, 3]``, without gradients: ``[b, e]``.

        Each query is made once. Where a model has a `compare_all` of its own, so are the scores of all entities.
        """
        triples, side = self.oriented(triples, side)
        with torch.no_grad():
            if type(self).compare_all is Model.compare_all:
                compare = self.comparer(triples, side)
            else:
                scores_of_all = self.compare_all(triples, side)

                def compare(rows: slice | Tensor, entities: slice) -> Tensor:
                    return scores_of_all[rows, entities].clone()

        def score(rows: slice | Tensor, entities: slice) -> Tensor:
            with torch.no_grad():
                scores = compare(rows, entities)
                return scores.add_(self.offset) if self.offset else scores

        return score

    def score_relations(self, heads: Tensor, tails: Tensor) -> Tensor:
        """Scores of every relation between ``[B]`` heads and ``[B]`` tails: ``[B, R]``."""
        for entities in (heads, tails):
            require_entities(self, entities)
        if len(heads) != len(tails):
            raise UsageError(f"heads and tails must be as many, got {len(heads)} and {len(tails)}")
        if not len(heads):
            return heads.new_empty(0, self.num_relations, dtype=self.entity.dtype)
        relations = torch.arange(self.num_relations, device=heads.device)
        pairs = torch.cartesian_prod(torch.arange(len(heads), device=heads.device), relations)
        triples = torch.stack([heads[pairs[:, 0]], pairs[:, 1], tails[pairs[:, 0]]], dim=1)
        rows = max(1, RELATION_NUMBERS // max(self.relation.shape[1], self.layer_numbers))
        with torch.no_grad():
            scores = torch.cat([self.score(part) for part in torch.split(triples, rows)])
        return scores.reshape(len(heads), self.num_relations)

    def dropout(self, rows: int, share: float, generator: torch.Generator) -> Tensor:
        """Zero for a `share` of the numbers of so many queries, ``1 / (1 - share)`` for the others: ``[rows, D]``.

        A dot product with what is left is the same on average; a distance is not.
        """
        if self.comparison != "dot":
            raise self._lacks(Capability.DOT_PRODUCT)
        uniforms = torch.rand(rows, self.candidate_columns(), generator=generator, device=self.entity.device)
        return (uniforms >= share) / (1.0 - share)

    def positives(self, batch: Batch, sinks: TableSinks = AUTOGRAD) -> Positives:
        """The positives of a batch, `oriented`, with their rows."""
        triples, side = self.oriented(batch.triples, batch.side)
        return Positives(triples, side, batch.weight, self.triple_rows(triples, side, sinks), sinks)

    def training_scores(
        self,
        triples: Tensor,
        side: Side,
        entities: Tensor | None,
        substitution: Substitution | None = None,
        kept: Tensor | None = None,
    ) -> Scores:
        """`step_scores` of triples ``[B, 3]`` whose `side` is replaced."""
        triples, side = self.oriented(triples, side)
        return self.step_scores(self.triple_rows(triples, side), side, entities, substitution, kept)

    def step_scores(
        self,
        rows: TripleRows,
        side: Side,
        entities: Tensor | None,
        substitution: Substitution | None = None,
        kept: Tensor | None = None,
        sinks: TableSinks = AUTOGRAD,
    ) -> Scores:
        """All scores that a loss needs, from the rows of triples whose `side` is replaced by `entities` ``[B, N]``.

        The rows are those of `oriented` triples. Candidate rows are read once and compared with one to three queries.
        None for `entities` stands for all of them in their order, ``N = E``. `kept` ``[B, D]``, the factors of
        `dropout`, is multiplied with the triples' queries. Gradients of the tables are left in `sinks`.
        """
        anchor, positive = (rows.head, rows.tail) if side == "tail" else (rows.tail, rows.head)
        query = self.query(anchor, rows.relation, side)
        if kept is not None:
            query = query._replace(vector=query.vector * kept)
        queries = [query]
        if substitution is not None:
            queries += substitution_queries(self, positive, substitution, sinks)
        if entities is None:
            scores = self.products_with_all(queries, sinks)
        else:
            scores = list(self.compare_candidates(queries, entities, sinks).unbind())
        return Scores(self._compare_positive(query, positive), scores[0], scores[1] if len(scores) > 1 else None)

    def extra_repr(self) -> str:
        return f"entities={self.num_entities}, relations={self.num_relations}, dim={self.dim}"
