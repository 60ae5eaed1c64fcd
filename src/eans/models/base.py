"""What a model is: tables, and a way to turn (known entity, relation, side) into a query.

A candidate entity is only ever *compared* with a query (`eans.kernels`), so one file per model holds little more than
the `query` method, and every kernel serves every model. Higher scores mean more plausible; margins belong to losses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from eans import kernels
from eans.errors import UsageError
from eans.graph import HEAD, RELATION, TAIL, Side, column, opposite

Substitution = Literal["symmetric", "one-way"]
# Numbers of relation rows that `score_relations` reads at once; a row may be a matrix.
RELATION_NUMBERS = 1 << 23


class Query(NamedTuple):
    """What candidates are compared with.

    Attributes:
        vector: ``[B, D]``.
        shift: ``[B, S]``, ``[1, S]`` for all, or None: what `Model.candidate` does to a candidate. In TransD the
            direction along which it moves; in models that are not fused, whatever else they need of the relation.
    """

    vector: Tensor
    shift: Tensor | None = None


class TripleRows(NamedTuple):
    """What the tables hold of B triples: rows ``[B, F]``, ``[B, G]`` and ``[B, F]``."""

    head: Tensor
    relation: Tensor
    tail: Tensor


class Scores(NamedTuple):
    """The scores of one training batch, without margins.

    Attributes:
        positive: ``[B]``.
        negative: ``[B, N]``.
        substitution: ``[B, N]`` or None: how plausible it is that the negative could stand in for the positive
            entity, scored through the extra relation `substitution`.
    """

    positive: Tensor
    negative: Tensor
    substitution: Tensor | None

    def detach(self) -> Scores:
        """The same scores without their history."""
        substitution = self.substitution.detach() if self.substitution is not None else None
        return Scores(self.positive.detach(), self.negative.detach(), substitution)


class Model(nn.Module, ABC):
    """Base of all models.

    Two tables hold every parameter: `entity` ``[E, F]`` and `relation` ``[R + 1, G]``; the last relation row is the
    "substitution" relation of EANS. A subclass states the widths F and G in units of `dim`, the comparison, and
    `query`.

    With reciprocal relations the table has ``2R + 1`` rows: row ``R + r`` is the inverse of relation r, and every
    question for a head, (?, r, t), is asked as one for a tail, (t, R + r, ?). `score` and `score_relations` are the
    tail direction.

    Args:
        num_entities, num_relations: sizes of the graph.
        dim: the nominal width d; complex models store 2d numbers per entity.
        init_range: tables start uniform in ``+-init_range``; None for `default_range`.
        generator: source of the initial values.
        reciprocal: give every relation a second row for questions about heads.
    """

    comparison: ClassVar[kernels.Comparison]
    entity_width: ClassVar[int] = 1
    relation_width: ClassVar[int] = 1
    candidate_width: ClassVar[int] = 1  # leading columns of an entity row (in units of dim) that are compared
    offset: float = 0.0  # added to every score
    fused: ClassVar[bool] = True  # candidates are compared by the kernels as they stand in the table

    def __init__(
        self,
        num_entities: int,
        num_relations: int,
        dim: int,
        init_range: float | None = None,
        generator: torch.Generator | None = None,
        reciprocal: bool = False,
    ) -> None:
        super().__init__()
        self.num_entities = num_entities
        self.num_relations = num_relations
        self.dim = dim
        self.reciprocal = reciprocal
        self.substitution_relation = num_relations * (2 if reciprocal else 1)
        self.init_range = init_range if init_range is not None else self.default_range(dim)
        self.entity = nn.Parameter(torch.empty(num_entities, self.entity_width * dim))
        self.relation = nn.Parameter(torch.empty(self.substitution_relation + 1, self.relation_columns()))
        self.reset_parameters(generator)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw fresh initial tables."""
        for table in (self.entity, self.relation):
            nn.init.uniform_(table, -self.init_range, self.init_range, generator=generator)

    def relation_columns(self) -> int:
        """G, the numbers of a relation row; a model whose rows are no multiple of `dim` says so here."""
        return self.relation_width * self.dim

    @classmethod
    def default_margin(cls) -> float:
        """The margin of losses: 9, as in the paper on FB15k-237, for distances; none for dot products."""
        return 0.0 if cls.comparison == "dot" else 9.0

    @classmethod
    def default_range(cls, dim: int, margin: float = 9.0) -> float:
        """Initial range: the RotatE code's ``(margin + 2) / dim`` for distances; for dot products the range at which
        initial scores have a standard deviation of 0.1 whatever the width.
        """
        if cls.comparison == "dot":
            return float(3.0**0.5 * (0.1 / (cls.candidate_width**2 * dim) ** 0.5) ** (1 / 3))
        return (margin + 2.0) / dim

    @abstractmethod
    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Query:
        """The query for the missing `side`, from rows of the known entity ``[B, F]`` and the relation ``[B, G]``.

        One relation may stand for all: ``[1, G]``.
        """

    def entity_rows(self, entities: Tensor) -> Tensor:
        """Entity parameters of ids ``[...]``: ``[..., F]``."""
        return kernels.gather(self.entity, entities)

    def relation_rows(self, relations: Tensor) -> Tensor:
        """Relation parameters of ids ``[B]``: ``[B, G]``."""
        return kernels.gather(self.relation, relations)

    def candidate_table(self) -> Tensor:
        """What is compared with queries, ``[E, D]``: a view of columns of `entity`, or a table made from it."""
        return self.entity[:, : self.candidate_width * self.dim]

    def candidate_scalars(self, rows: Tensor) -> Tensor | None:
        """One number per entity row ``[..., F]`` that multiplies a query's shift: ``[...]``, or None."""
        del rows
        return None

    def entity_features(self) -> Tensor:
        """All entity-indexed parameters side by side, ``[E, F]``: what EANS clusters (paper, eq. 1)."""
        return self.entity.detach()

    def triple_rows(self, triples: Tensor, side: Side = "tail") -> TripleRows:
        """The rows of triples ``[B, 3]``, both entities' gathered at once.

        Those of `side` come last, which is the order in which the gradients of an entity that is on both are added up.
        """
        ends = torch.stack((triples[:, column(opposite(side))], triples[:, column(side)]))
        anchor, answer = self.entity_rows(ends).unbind()
        head, tail = (anchor, answer) if side == "tail" else (answer, anchor)
        return TripleRows(head, self.relation_rows(triples[:, RELATION]), tail)

    def factors(self, rows: TripleRows) -> tuple[Tensor, Tensor, Tensor]:
        """Coordinates of head, relation and tail for the N3 penalty, of P parts each: three tensors ``[B, P, ...]``."""
        return rows.head[:, None], rows.relation[:, None], rows.tail[:, None]

    def duals(self, rows: TripleRows) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """For the penalty DURA: the rows of heads and tails, and the queries made of them for tails and heads.

        Four tensors ``[B, ...]``. Only dot products have it; distances refuse.
        """
        if self.comparison != "dot":
            raise UsageError(
                f"model '{type(self).__name__.lower()}' compares by distance, and loss.penalty 'dura' is for dot "
                "products; use model.name 'distmult', 'complex', 'simple' or 'rescal'"
            )
        head, relation, tail = rows
        return (head, tail), (self.query(head, relation, "tail").vector, self.query(tail, relation, "head").vector)

    def total_score(self) -> Tensor:
        """The sum of the scores of all ``E R E`` triples, offset and substitution relation left out: a scalar.

        Only models with a closed form have it; the others refuse.
        """
        raise UsageError(
            f"model '{type(self).__name__.lower()}' has no closed form of the sum over all triples, which "
            "loss.penalty 'stay-positive' needs; use model.name 'distmult' or 'simple'"
        )

    def relation_query(self, heads: Tensor, tails: Tensor) -> Tensor:
        """What a relation row is multiplied by in the score of head and tail rows ``[B, F]`` each: ``[B, G]``.

        Only models that are linear in the relation have it; the others refuse.
        """
        del heads, tails
        raise UsageError(
            f"model '{type(self).__name__.lower()}' is not linear in the relation, which loss.relation_weight needs; "
            "use model.name 'distmult', 'complex', 'simple' or 'rescal'"
        )

    def relation_scores(self, rows: TripleRows) -> Tensor:
        """Scores of every relation between the heads and tails of B triples, with gradients: ``[B, R]``.

        As `score_relations`, at the cost of one matrix product. Reciprocal relations are scored as well: ``[B, 2R]``.
        """
        return kernels.products(self.relation_query(rows.head, rows.tail), self.relation[: self.substitution_relation])

    def oriented(self, triples: Tensor, side: Side) -> tuple[Tensor, Side]:
        """The question for the `side` of triples ``[B, 3]`` as the tables answer it: triples ``[B, 3]`` and side.

        With reciprocal relations (h, r, t) turns into (t, R + r, h) where the head is asked for.
        """
        if not self.reciprocal or side == "tail":
            return triples, side
        head, relation, tail = triples.unbind(1)
        return torch.stack((tail, relation + self.num_relations, head), dim=1), "tail"

    def candidate(self, rows: Tensor, shift: Tensor | None) -> Tensor:
        """What is compared of entity rows ``[B, F]``, changed by the query's shift: ``[B, D]``."""
        columns = rows[..., : self.candidate_width * self.dim]
        scalars = self.candidate_scalars(rows)
        return columns if shift is None or scalars is None else columns + scalars[..., None] * shift

    def _compare_positive(self, query: Query, rows: Tensor) -> Tensor:
        scores = kernels.compare_rows(self.comparison, query.vector, self.candidate(rows, query.shift))
        return scores + self.offset if self.offset else scores

    def compare_candidates(self, queries: list[Query], entities: Tensor) -> Tensor:
        """Scores of the first query, and the mean score of the others: ``[min(Q, 2), B, N]``.

        The candidates int64 ``[B, N]`` of a positive are compared with all of its queries, ``[B, ...]`` each. This and
        `compare_all` are what a model overrides whose candidates are more than rows of the table.
        """
        shifts = [query.shift.expand_as(query.vector) for query in queries if query.shift is not None]
        scores = kernels.compare(
            self.comparison,
            torch.stack([query.vector for query in queries]),
            self.candidate_table(),
            entities,
            torch.stack(shifts) if shifts else None,
            self.candidate_scalars(self.entity),
            mean_rest=True,
        )
        return scores + self.offset if self.offset else scores

    def compare_everyone(self, queries: list[Query]) -> list[Tensor]:
        """Scores of all entities in their order, for each query: ``[B, E]`` each.

        A matrix product, so only for models that compare by a dot product; the others refuse.
        """
        if self.comparison != "dot":
            raise UsageError(
                f"model '{type(self).__name__.lower()}' compares by a distance, no matrix product, and sampler 'all' "
                "needs one; use another sampler, or model.name 'distmult', 'complex', 'simple' or 'rescal'"
            )
        table = self.candidate_table()
        scores = [kernels.products(query.vector, table) for query in queries]
        return [score + self.offset for score in scores] if self.offset else scores

    def compare_all(self, triples: Tensor, side: Side) -> Tensor:
        """`score_all` of `oriented` triples, without gradients: ``[B, E]``."""
        anchor = self.entity_rows(triples[:, column(opposite(side))])
        query = self.query(anchor, self.relation_rows(triples[:, RELATION]), side)
        return kernels.compare_all(
            self.comparison,
            query.vector,
            self.candidate_table(),
            query.shift,
            self.candidate_scalars(self.entity),
        )

    def score(self, triples: Tensor) -> Tensor:
        """Plausibility of triples ``[B, 3]``: ``[B]``.

        Relations may be given by the numbers of their inverses, ``R + r``, where there are reciprocal ones.
        """
        rows = self.entity_rows(torch.stack((triples[:, HEAD], triples[:, TAIL]), dim=1))
        query = self.query(rows[:, 0], self.relation_rows(triples[:, RELATION]), "tail")
        return self._compare_positive(query, rows[:, 1])

    def score_candidates(self, triples: Tensor, side: Side, entities: Tensor) -> Tensor:
        """Scores with the `side` of each triple ``[B, 3]`` replaced by `entities` ``[B, N]``: ``[B, N]``."""
        triples, side = self.oriented(triples, side)
        anchor = self.entity_rows(triples[:, column(opposite(side))])
        query = self.query(anchor, self.relation_rows(triples[:, RELATION]), side)
        return self.compare_candidates([query], entities)[0]

    def score_all(self, triples: Tensor, side: Side) -> Tensor:
        """Scores of every entity in the `side` of each triple ``[B, 3]``, without gradients: ``[B, E]``."""
        with torch.no_grad():
            scores = self.compare_all(*self.oriented(triples, side))
            return scores.add_(self.offset) if self.offset else scores

    def score_relations(self, heads: Tensor, tails: Tensor) -> Tensor:
        """Scores of every relation between ``[B]`` heads and ``[B]`` tails: ``[B, R]``."""
        relations = torch.arange(self.num_relations, device=heads.device)
        pairs = torch.cartesian_prod(torch.arange(len(heads), device=heads.device), relations)
        triples = torch.stack([heads[pairs[:, 0]], pairs[:, 1], tails[pairs[:, 0]]], dim=1)
        rows = max(1, RELATION_NUMBERS // self.relation.shape[1])
        with torch.no_grad():
            scores = torch.cat([self.score(part) for part in torch.split(triples, rows)])
        return scores.reshape(len(heads), self.num_relations)

    def substitution_queries(self, positive: Tensor, substitution: Substitution) -> list[Query]:
        """Queries whose scores average to the substitution score of the positive rows ``[B, F]``.

        One-way: "(positive, substitution, candidate)". Symmetric: also with the ends exchanged. A dot product is
        linear in the query, so there the two fold into their mean.
        """
        relation = self.relation_rows(torch.full((1,), self.substitution_relation, device=positive.device))
        forward = self.query(positive, relation, "tail")
        if substitution == "one-way":
            return [forward]
        backward = self.query(positive, relation, "head")
        if self.comparison == "dot":
            return [Query((forward.vector + backward.vector) / 2)]
        return [forward, backward]

    def dropout(self, rows: int, share: float, generator: torch.Generator) -> Tensor:
        """Zero for a `share` of the numbers of so many queries, ``1 / (1 - share)`` for the others: ``[rows, D]``.

        A dot product with what is left is the same on average; a distance is not.
        """
        if self.comparison != "dot":
            raise UsageError(
                f"model '{type(self).__name__.lower()}' compares by a distance, of which train.dropout can leave no "
                "part out; set it to 0, or take model.name 'distmult', 'complex', 'simple' or 'rescal'"
            )
        width = self.candidate_width * self.dim
        lots = torch.rand(rows, width, generator=generator, device=self.entity.device)
        return (lots >= share) / (1.0 - share)

    def training_scores(
        self,
        triples: Tensor,
        side: Side,
        entities: Tensor | None,
        substitution: Substitution | None = None,
        kept: Tensor | None = None,
        rows: TripleRows | None = None,
    ) -> Scores:
        """All scores a loss needs for triples ``[B, 3]`` whose `side` is corrupted by `entities` ``[B, N]``.

        Candidate rows are read once and compared with one to three queries. None for `entities` stands for all of them
        in their order, ``N = E``. `kept` ``[B, D]``, the factors of `dropout`, is multiplied with the triples' queries.
        `rows` are those of the `oriented` triples, where the caller has them.
        """
        triples, side = self.oriented(triples, side)
        head, relation, tail = self.triple_rows(triples, side) if rows is None else rows
        anchor, positive = (head, tail) if side == "tail" else (tail, head)
        query = self.query(anchor, relation, side)
        if kept is not None:
            query = query._replace(vector=query.vector * kept)
        queries = [query]
        if substitution is not None:
            queries += self.substitution_queries(positive, substitution)
        if entities is None:
            scores = self.compare_everyone(queries)
        else:
            scores = list(self.compare_candidates(queries, entities).unbind())
        return Scores(self._compare_positive(query, positive), scores[0], scores[1] if len(scores) > 1 else None)

    def extra_repr(self) -> str:
        return f"entities={self.num_entities}, relations={self.num_relations}, dim={self.dim}"
