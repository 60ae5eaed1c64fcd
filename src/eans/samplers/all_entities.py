"""Every entity is a candidate for every positive: nothing is drawn, and the scores are one matrix product."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from eans.errors import UsageError
from eans.graph import SIDES, KnowledgeGraph, column
from eans.samplers.base import NO_CONTEXT, Sampler, can_branch_on
from eans.types import Capability, Negatives, Side

ANSWERS = 512  # known answers of each row that are masked at a time: what bounds the memory for it


class AllEntities(Sampler):
    """All entities in their order, ``N = E``, for every positive.

    With the softmax loss this is the full cross-entropy over entities ("1vsAll"; Lacroix et al., 2018). The positive
    itself is always masked, because a loss adds it to its candidates; with `false_negatives` ``"mask"`` all known
    answers are, with ``"keep"`` they count as negatives, which is how 1vsAll is usually trained.

    Only for models that compare by a dot product, whose scores of all entities are a matrix product. Memory: five
    (softmax) to ten times (substitution loss) ``B E`` numbers, whatever the width.

    Args:
        graph, options: see `Sampler`.
        negatives: 0; how many there are is up to the graph.
    """

    draws = False
    all_entities = True
    knows_proposal = True
    needs = (Capability.DOT_PRODUCT,)
    entities: Tensor

    def __init__(self, graph: KnowledgeGraph, negatives: int = 0, **options: Any) -> None:
        if negatives:
            raise UsageError(f"sampler 'all' takes every entity, but sampler.negatives is {negatives}; set it to 0")
        super().__init__(graph, graph.num_entities, **options)
        if self.known_true != "exact" or self.false_negatives == "resample" or self.uniform_share:
            raise UsageError(
                "sampler 'all' draws nothing: set sampler.known_true=exact, sampler.false_negatives=mask or keep, and "
                "sampler.uniform_share=0"
            )
        self.register_buffer("entities", torch.arange(graph.num_entities), persistent=False)
        # The most answers that a training query has: how many places of a row are read.
        self.longest = {side: self._longest(side) for side in SIDES}

    def _longest(self, side: Side) -> int:
        queries = self.known.keys[side] // self.num_entities
        return int(torch.unique_consecutive(queries, return_counts=True)[1].max()) if len(queries) else 0

    def memory(self) -> int:
        """The list of entities, which is no part of the checkpoint."""
        return self.entities.nbytes

    def draw(self, triples: Tensor, side: Side, generator: torch.Generator) -> Tensor:
        del side, generator
        return self.entities.expand(len(triples), -1)

    def log_density(self, triples: Tensor, side: Side, entities: Tensor) -> Tensor:
        """``-log E``: as if each of E draws had been another entity."""
        del triples, side
        return torch.full(entities.shape, -math.log(self.num_entities), device=entities.device)

    def sample(
        self, triples: Tensor, side: Side, generator: torch.Generator, stream: AbstractContextManager[Any] = NO_CONTEXT
    ) -> Negatives:
        with stream:
            known = self.masked(triples, side)
        return Negatives(self.draw(triples, side, generator), known)

    def masked(self, triples: Tensor, side: Side) -> Tensor:
        """What losses leave out. The positive and, unless they are kept, all known answers: bool ``[B, E]``."""
        positive = triples[:, column(side), None]
        known = torch.zeros(len(triples), self.num_entities, dtype=torch.bool, device=triples.device)
        known.scatter_(1, positive, True)
        if self.false_negatives == "keep":
            return known
        if can_branch_on(triples):
            known[self.known.answers(triples, side)] = True
            return known
        start, stop = self.known.run(triples, side)
        keys = self.known.keys[side]
        for first in range(0, self.longest[side], ANSWERS):
            count = min(ANSWERS, self.longest[side] - first)
            place = start[:, None] + torch.arange(first, first + count, device=triples.device)
            answers = keys[place.clamp(max=len(keys) - 1)] % self.num_entities
            # Rows with fewer answers than the longest mark their positive again.
            known.scatter_(1, torch.where(place < stop[:, None], answers, positive), True)
        return known
