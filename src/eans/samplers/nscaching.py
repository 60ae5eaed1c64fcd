"""Cached negatives (NSCaching, Zhang et al., ICDE 2019): for every query, a few entities that the model finds likely.

Hard negatives are rare and they change slowly. Each (head, relation) pair keeps a small cache of hard tails and each
(relation, tail) pair one of hard heads; a negative is a slot of the cache. After a step the caches of its batch are
renewed from themselves and a few uniform entities, by the scores of the model as it is then.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from eans import kernels
from eans.errors import UsageError
from eans.graph import SIDES, KnowledgeGraph
from eans.options import Option
from eans.samplers.base import Sampler
from eans.types import Side, StepOutcome

CacheDraw = Literal["uniform", "importance", "top"]
CacheUpdate = Literal["importance", "top"]
INITIAL_SEED = 0  # of the first content of the caches


def first_of_each(keys: Tensor) -> Tensor:
    """For every key int64 ``[B]``, the first place that holds the same key: int64 ``[B]``.

    ``[7, 3, 7, 3, 9] -> [0, 1, 0, 1, 4]``; shapes do not depend on the values, so a GPU is not waited for.
    """
    ordered, place = keys.sort(stable=True)
    here = torch.arange(len(keys), device=keys.device)
    begins = torch.ones_like(keys, dtype=torch.bool)
    begins[1:] = ordered[1:] != ordered[:-1]
    # The sort is stable: where a run of equal keys begins, its first place stands.
    begin = torch.where(begins, here, 0).cummax(0).values
    return torch.empty_like(place).scatter_(0, place, place[begin])


def with_gumbel_noise(scores: Tensor, generator: torch.Generator) -> Tensor:
    """``scores + noise`` ``[...]``: its k largest are k draws without replacement in proportion to ``exp(score)``."""
    return scores - torch.empty_like(scores).exponential_(generator=generator).log_()


class NSCaching(Sampler):
    """Slots of a cache per query, which follows the model.

    Renewing the cache of a query ``(h, r, ?)``: its ``N1`` entities and ``N2`` uniform ones are scored; an entity
    counts once, and known answers in train not at all (unless `false_negatives` is ``"keep"``); ``N1`` of the rest
    stay. Where fewer than ``N1`` are left they are repeated, and where none is the cache stays as it is. Rows of a
    batch with the same query have the same cache: the renewal of the first one counts.

    Args:
        graph, negatives, options: see `Sampler`.
        size: entities per query, N1.
        candidates: uniform entities that compete for a place at each renewal, N2.
        draw: ``"uniform"``: every slot is equally likely, as the paper recommends. ``"importance"``: in
            proportion to ``exp(score)``, with the scores of the last renewal. ``"top"``: the N best, always.
        update: ``"importance"``: N1 stay by draws without replacement in proportion to ``exp(score)``, as the
            paper recommends. ``"top"``: the N1 best stay.
        lazy: steps of a side that pass without a renewal after each one with.
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        negatives: int,
        size: Annotated[int, Option("entities kept per query, N1", ge=1)] = 50,
        candidates: Annotated[int, Option("uniform entities that compete at a renewal, N2", ge=0)] = 50,
        draw: Annotated[CacheDraw, Option("negatives are slots at random, by exp(score), or the best")] = "uniform",
        update: Annotated[
            CacheUpdate, Option("who stays in the cache: draws by exp(score), or the best")
        ] = "importance",
        lazy: Annotated[int, Option("steps of a side without a renewal after each one with", ge=0)] = 0,
        **options: Any,
    ) -> None:
        super().__init__(graph, negatives, **options)
        if graph.num_entities >= 2**31:
            raise UsageError(f"sampler 'nscaching' keeps 32-bit ids, but the graph has {graph.num_entities} entities")
        self.size = size
        self.candidates = candidates
        self.drawn_by: CacheDraw = draw
        self.kept_by: CacheUpdate = update
        self.lazy = lazy
        self.steady = not lazy
        generator = torch.Generator().manual_seed(INITIAL_SEED)
        for side in SIDES:
            # They follow from the graph, so the checkpoint does not hold them.
            pairs = torch.unique(self.known.keys[side] // graph.num_entities)
            self.register_buffer(f"{side}_pairs", pairs, persistent=False)
            # The last row serves queries that train does not hold.
            shape = (len(pairs) + 1, size)
            entities = torch.randint(graph.num_entities, shape, generator=generator, dtype=torch.int32)
            self.register_buffer(f"{side}_cache", entities)
            if draw != "uniform":
                self.register_buffer(f"{side}_scores", torch.zeros(shape))

    def memory(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers())

    def rows(self, triples: Tensor, side: Side) -> Tensor:
        """The row of each triple's query ``[B, 3]`` in the cache of `side`: int64 ``[B]``."""
        pairs, wanted = self.get_buffer(f"{side}_pairs"), self.known.prefix(triples, side)
        row = torch.searchsorted(pairs, wanted)
        return torch.where(pairs[row.clamp(max=len(pairs) - 1)] == wanted, row, len(pairs))

    def draw(self, triples: Tensor, side: Side, generator: torch.Generator) -> Tensor:
        row = self.rows(triples, side)
        slots = self._slots(row, side, generator)
        return self.get_buffer(f"{side}_cache")[row[:, None], slots].long()

    def _slots(self, row: Tensor, side: Side, generator: torch.Generator) -> Tensor:
        """Which slots of the rows ``[B]`` are the negatives: int64 ``[B, N]``."""
        shape = (len(row), self.negatives)
        if self.drawn_by == "uniform":
            return torch.randint(self.size, shape, generator=generator, device=row.device)
        scores = self.get_buffer(f"{side}_scores")[row]
        if self.drawn_by == "importance":
            heaped = scores.softmax(1).cumsum(1)
            level = torch.rand(shape, generator=generator, device=row.device) * heaped[:, -1:]
            return torch.searchsorted(heaped, level, right=True).clamp_(max=self.size - 1)
        best = scores.sort(dim=1, descending=True, stable=True).indices
        # More negatives than slots: from the best one again.
        return best[:, torch.arange(self.negatives, device=row.device) % self.size]

    def observe(self, outcome: StepOutcome) -> None:
        # The sides take turns, so this is how often the side was seen before.
        if (outcome.step - 1) // 2 % (self.lazy + 1):
            return
        side, row = outcome.side, self.rows(outcome.triples, outcome.side)
        with torch.no_grad():
            entities, scores = self._renewed(outcome, row)
        # Rows with the same query write the same values, so it does not matter which of them writes last.
        first = first_of_each(row)
        self.get_buffer(f"{side}_cache")[row] = entities[first].int()
        if self.drawn_by != "uniform":
            self.get_buffer(f"{side}_scores")[row] = scores[first]

    def _renewed(self, outcome: StepOutcome, row: Tensor) -> tuple[Tensor, Tensor]:
        """The next content of the rows ``[B]``: entities int64 ``[B, N1]`` and their scores ``[B, N1]``."""
        triples, side, generator = outcome.triples, outcome.side, outcome.generator
        cached = self.get_buffer(f"{side}_cache")[row].long()
        shape = (len(row), self.candidates)
        fresh = torch.randint(self.num_entities, shape, generator=generator, device=row.device)
        candidates = torch.cat([cached, fresh], dim=1)
        scores = outcome.model.scores_of_candidates(triples, side, candidates).float()
        # An entity that is drawn while it is cached would take up two slots, and in time all of them.
        barred = kernels.repeats(candidates)
        if self.false_negatives != "keep":
            keys, prefix = self.known.keys[side], self.known.prefix(triples, side)
            barred |= kernels.label(keys, prefix, candidates, self.num_entities, None)
        rank = with_gumbel_noise(scores, generator) if self.kept_by == "importance" else scores
        best, chosen = torch.where(barred, -torch.inf, rank).topk(self.size, dim=1)
        left = (best > -torch.inf).sum(1, keepdim=True)
        slots = torch.arange(self.size, device=row.device)
        chosen = torch.where(left > 0, chosen.gather(1, slots % left.clamp(min=1)), slots)
        return candidates.gather(1, chosen), scores.gather(1, chosen)
