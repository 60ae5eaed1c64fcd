"""What a model turns (known entity, relation, side) into, and the positives of a step for which it does."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from eans.kernels import Comparison
from eans.kernels.deferred_gradients import AUTOGRAD, TableSinks
from eans.types import Side, Substitution, TripleRows


class Query(NamedTuple):
    """What candidates are compared with.

    Attributes:
        vector: ``[B, D]``.
        shift: ``[B, S]``, ``[1, S]`` for all, or None: what `Model.candidate` does to a candidate. In TransD the
            direction along which it moves; in models that are not fused, whatever else they need of the relation.
    """

    vector: Tensor
    shift: Tensor | None = None


class Positives(NamedTuple):
    """The positives of one step as the tables answer them: with reciprocal relations, all of them as tail queries.

    Attributes:
        triples: int64 ``[B, 3]``.
        side: the end that is replaced.
        weight: float32 ``[B]``.
        rows: what the tables hold of the triples, with gradients.
        sinks: where gradients of the tables are left.
    """

    triples: Tensor
    side: Side
    weight: Tensor
    rows: TripleRows
    sinks: TableSinks = AUTOGRAD


def with_bias(vector: Tensor) -> Tensor:
    """The query ``[B, D]`` of a model with an entity bias, from what the rest of an entity row is compared with.

    ``[B, D - 1]`` and a 1, which the bias at the end of the row is multiplied by.
    """
    return torch.cat((vector, vector.new_ones(len(vector), 1)), 1)


class MakesQueries(Protocol):
    """What `substitution_queries` needs of a model."""

    @property
    def comparison(self) -> Comparison: ...

    @property
    def tails_only(self) -> bool: ...

    @property
    def substitution_relation(self) -> int: ...

    def relation_rows(self, relations: Tensor, sinks: TableSinks = AUTOGRAD) -> Tensor: ...

    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Query: ...


def substitution_queries(
    model: MakesQueries, positive: Tensor, substitution: Substitution, sinks: TableSinks = AUTOGRAD
) -> list[Query]:
    """Queries whose scores average to the substitution score of the positive rows ``[B, F]``.

    One-way: "(positive, substitution, candidate)". Symmetric: also with the ends exchanged. A dot product is
    linear in the query, so there the two fold into their mean. Models with tail queries alone have one way.
    """
    ids = torch.full((1,), model.substitution_relation, device=positive.device)
    relation = model.relation_rows(ids, sinks)
    forward = model.query(positive, relation, "tail")
    if substitution == "one-way" or model.tails_only:
        return [forward]
    backward = model.query(positive, relation, "head")
    if model.comparison == "dot":
        return [Query((forward.vector + backward.vector) / 2)]
    return [forward, backward]
