"""No negatives: for losses of positives alone, with a penalty that keeps the other scores down."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from eans.errors import UsageError
from eans.graph import KnowledgeGraph
from eans.samplers.base import NO_CONTEXT, Sampler
from eans.types import Negatives, Side


class NoNegatives(Sampler):
    """Draws nothing: entities ``[B, 0]``.

    The loss then has a positive term only, which alone is solved by scoring everything high; `loss.penalty`
    ``"stay-positive"`` is what keeps the rest of the graph down.
    """

    draws = False
    rows_free = True

    def __init__(self, graph: KnowledgeGraph, negatives: int = 0, **options: Any) -> None:
        if negatives:
            raise UsageError(f"sampler 'none' draws no negatives, but sampler.negatives is {negatives}; set it to 0")
        super().__init__(graph, negatives, **options)

    def draw(self, triples: Tensor, side: Side, generator: torch.Generator) -> Tensor:
        del side, generator
        return triples.new_empty(len(triples), 0)

    def settle(
        self,
        entities: Tensor,
        triples: Tensor,
        side: Side,
        generator: torch.Generator,
        stream: AbstractContextManager[Any] = NO_CONTEXT,
    ) -> Negatives:
        del triples, side, generator, stream  # nothing to label, whatever the rule
        return Negatives(entities, torch.empty_like(entities, dtype=torch.bool))
