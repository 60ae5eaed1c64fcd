"""What DistMult and SimplE share: a score that is linear in head, relation and tail, and may be bounded by tanh.

Because the score is linear in each of the three, the sum over all triples that could be written down is the score of
three sums of rows. That is what "Stay Positive" (Hajimoradlou & Kazemi, 2022) trains on instead of negatives.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any

import torch
from torch import Tensor

from eans.models.base import ALL, Model
from eans.models.query import Query
from eans.options import Option
from eans.types import Side


class Multilinear(Model):
    """Base of models with ``score = <product(h, r), t>`` for a `product` that is linear in both rows.

    Bounded, the score is ``(scale / d) <product(tanh h, tanh r), tanh t> + shift``, which lies within
    ``shift +- scale``. The shift is the same for every triple, so that it moves no rank; without negatives it is what
    an unknown triple scores.

    Args:
        args, kwargs: see `Model`.
        bounded: pass every row through tanh.
        score_scale, score_shift: of the bounded score; the plain score has neither.
    """

    comparison = "dot"
    linear_in_relation = True
    closed_form_sum = True

    def __init__(
        self,
        *args: Any,
        bounded: Annotated[bool, Option("score = scale / d * sum of products of tanh + shift")] = False,
        score_scale: Annotated[float, Option("bounded scores: the largest, less the shift", gt=0)] = 1.0,
        score_shift: Annotated[float, Option("bounded scores: added to every one")] = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.bounded = bounded
        self.factor = score_scale / self.dim if bounded else 1.0
        self.offset = score_shift if bounded else 0.0

    @abstractmethod
    def product(self, anchor: Tensor, relation: Tensor, side: Side) -> Tensor:
        """What candidates for `side` are multiplied by: rows ``[B, F]`` and ``[B, G]`` -> ``[B, D]``, linear in both.

        One relation may stand for all: ``[1, G]``.
        """

    def bound(self, rows: Tensor) -> Tensor:
        """The rows as the score uses them."""
        return torch.tanh(rows) if self.bounded else rows

    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Query:
        product = self.product(self.bound(anchor), self.bound(relation), side)
        return Query(product * self.factor if self.bounded else product)

    def candidate_table(self, entities: slice = ALL) -> Tensor:
        """``[E, D]``; bounded, a table of its own whose gradient goes the ordinary way."""
        return self.bound(super().candidate_table(entities))

    def candidate(self, rows: Tensor, shift: Tensor | None) -> Tensor:
        return self.bound(super().candidate(rows, shift))

    def total_score(self) -> Tensor:
        """``(scale / d) <product(sum_e h, sum_r r), sum_e t>``, with rows after tanh where the score is bounded.

        Costs one pass over the tables, and no more memory than they have.
        """
        entities = self.bound(self.entity).sum(0, keepdim=True)
        relations = self.bound(self.relation[: self.num_relations]).sum(0, keepdim=True)
        return (self.product(entities, relations, "tail") * self.factor * entities).sum()
