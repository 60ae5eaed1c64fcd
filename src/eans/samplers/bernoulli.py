"""Bernoulli negatives (Wang et al., AAAI 2014): uniform entities, and the relation says which side is corrupted."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from eans.graph import HEAD, RELATION, SIDES, TAIL, KnowledgeGraph
from eans.samplers.base import NO_CONTEXT
from eans.samplers.uniform import Uniform
from eans.types import Negatives, Side


def head_probabilities(triples: Tensor, num_relations: int) -> Tensor:
    """``P(head | r) = tph / (tph + hpt)`` over triples ``[n, 3]``: float64 ``[R]``; 1/2 for a relation without any.

    ``tph`` is the mean number of tails per (head, r) and ``hpt`` that of heads per (r, tail). Both are the number of
    distinct triples of r, divided by that of its distinct heads or tails, so ``P(head | r) = tails / (tails + heads)``.
    """

    def distinct(end: int) -> Tensor:
        pairs = torch.unique(triples[:, [RELATION, end]], dim=0)
        return torch.bincount(pairs[:, 0], minlength=num_relations).double()

    heads, tails = distinct(HEAD), distinct(TAIL)
    used = heads + tails
    return torch.where(used > 0, tails / used.clamp(min=1), 0.5)


class Bernoulli(Uniform):
    """Every entity is equally likely; a triple counts more on the side that its relation makes safe to corrupt.

    Of a relation that leads from one head to many tails, a random tail is more often true by accident than a random
    head. Bernoulli sampling therefore corrupts the head with probability ``P(head | r) = tph / (tph + hpt)``.

    A step here corrupts one side of the whole batch, and the sides take turns. So the choice is not drawn: a positive
    is weighted by ``2 P(side | r)``. Over one step of each side a triple then has the weights that drawing its side
    gives it on average, ``2 P(head | r)`` and ``2 P(tail | r)``, without the variance of the draw.
    """

    side_weights: Tensor

    def __init__(self, graph: KnowledgeGraph, negatives: int, **options: Any) -> None:
        super().__init__(graph, negatives, **options)
        head = head_probabilities(graph.train, graph.num_relations)
        self.register_buffer("side_weights", torch.stack([2.0 * head, 2.0 - 2.0 * head]).float())  # [2, R], as SIDES

    def settle(
        self,
        entities: Tensor,
        triples: Tensor,
        side: Side,
        generator: torch.Generator,
        stream: AbstractContextManager[Any] = NO_CONTEXT,
    ) -> Negatives:
        weight = self.side_weights[SIDES.index(side)][triples[:, RELATION]]
        return super().settle(entities, triples, side, generator, stream)._replace(weight=weight)
