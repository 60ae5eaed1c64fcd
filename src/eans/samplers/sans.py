"""Structure-aware negatives (Ahrabian et al., EMNLP 2020): entities from the neighbourhood of the one that is kept.

Someone who lives near an answer is harder to tell from it than a stranger. The candidates for the tail of (h, r, ?)
are entities that a few steps through the training graph lead to from h; for the head of (?, r, t), from t.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from eans import kernels
from eans.errors import UsageError
from eans.graph import KnowledgeGraph, Side, column, opposite
from eans.samplers.base import Draw, Sampler
from eans.samplers.pools import build_pools

PoolKind = Literal["hops", "walks"]
# Rounds of uniform draws for what resampling leaves; six are enough unless most of all entities are known answers.
UNIFORM_ROUNDS = 6


class SANS(Sampler):
    """Uniform, or by visits, over a pool of entities around the kept one, with replacement.

    With A the undirected, relation-blind adjacency matrix of the training graph, the pool of entity e is

    ``hops``: the non-zeros of row e of ``A^k + A^(k-1)``, which for k = 1 are its neighbours and itself;
    ``walks``: the distinct ends of random walks of k steps, each from e; without `walk_restart` from the end of the
    walk before, which makes the pool a sample of all that can be reached.

    Pools are made once, and again when a run is resumed: they follow from the graph and the options, so the checkpoint
    does not hold them. Memory: 4 bytes per candidate, 12 with weights, and 8 per entity. An entity without neighbours
    has no pool; all entities are candidates there. In training that does not occur.

    A pool may hold little but known answers. With `false_negatives` "resample", what is still one after the usual
    rounds is replaced by uniform draws; what is one even then is labelled.

    Args:
        graph, negatives, options: see `Sampler`.
        pool_kind: ``"hops"`` or ``"walks"``.
        hops: k.
        walks: random walks per entity.
        walk_restart: each walk starts at its entity; if not, the first one alone, as in the authors' code.
        walk_weights: draw candidates by how many walks ended there, instead of uniformly.
        pool_limit: candidates per pool at most; of a larger pool so many are kept, chosen uniformly.
        pool_seed: of the walks and of that choice.
        pool_memory_mb: bound on all pools together; beyond it the sampler refuses.
    """

    resample_rounds = 4  # a pool that has little else is not searched for long: uniform draws follow

    ids: Tensor
    starts: Tensor
    sums: Tensor | None

    def __init__(
        self,
        graph: KnowledgeGraph,
        negatives: int,
        pool_kind: PoolKind = "hops",
        hops: int = 2,
        walks: int = 1000,
        walk_restart: bool = True,
        walk_weights: bool = False,
        pool_limit: int = 4096,
        pool_seed: int = 0,
        pool_memory_mb: int = 2048,
        **options: Any,
    ) -> None:
        super().__init__(graph, negatives, **options)
        if walk_weights and pool_kind != "walks":
            raise UsageError("sampler.walk_weights counts visits of walks: set sampler.pool_kind=walks")
        if not walk_restart and pool_kind != "walks":
            raise UsageError("sampler.walk_restart says where walks start: set sampler.pool_kind=walks")
        ends = walks if pool_kind == "walks" else 0
        pools = build_pools(graph, hops, ends, walk_restart, walk_weights, pool_limit, pool_memory_mb, pool_seed)
        self.register_buffer("ids", pools.ids, persistent=False)
        self.register_buffer("starts", pools.starts, persistent=False)
        self.register_buffer("sums", pools.sums, persistent=False)
        # Rounds of a binary search through the largest pool.
        self.rounds = int(pools.starts.diff().max()).bit_length()

    def memory(self) -> int:
        """The pools, which are no part of the checkpoint."""
        return sum(buffer.nbytes for buffer in self.buffers())

    def _bounds(self, triples: Tensor, side: Side) -> tuple[Tensor, Tensor]:
        """Where the pools of the kept entities begin and end: int64 ``[B, 1]`` each."""
        kept = triples[:, column(opposite(side)), None]
        return self.starts[kept], self.starts[kept + 1]

    def draw(self, triples: Tensor, side: Side, generator: torch.Generator) -> Tensor:
        lots = torch.rand(len(triples), self.negatives, generator=generator, device=triples.device)
        if self.sums is None:
            kept = triples[:, column(opposite(side))]
            return kernels.pick(self.ids, self.starts, kept, lots, self.num_entities)
        start, stop = self._bounds(triples, side)
        empty = start == stop
        low = self.sums[start]
        size = torch.where(empty, self.num_entities, self.sums[stop] - low)
        # A product close to the size may round up to it.
        chosen = torch.minimum((lots * size).long(), size - 1)
        place = torch.searchsorted(self.sums, low + chosen, right=True) - 1
        # Where there is no pool, the number that was chosen is an entity; the place that is read then means nothing.
        return torch.where(empty, chosen, self.ids[place.clamp(max=len(self.ids) - 1)].long())

    def redraws(self, side: Side, generator: torch.Generator) -> list[tuple[int, Draw]]:
        return [*super().redraws(side, generator), (UNIFORM_ROUNDS, lambda triples: self.uniform(triples, generator))]

    def log_density(self, triples: Tensor, side: Side, entities: Tensor) -> Tensor:
        """``-log |pool|`` (or the log share of visits) inside the pool, ``-inf`` outside: ``[B, N]``."""
        start, stop = self._bounds(triples, side)
        last = len(self.ids) - 1
        low, high = start.expand_as(entities), stop.expand_as(entities)
        for _ in range(self.rounds):  # pools are sorted
            middle = (low + high) // 2
            below = (middle < high) & (self.ids[middle.clamp(max=last)] < entities)
            low, high = torch.where(below, middle + 1, low), torch.where(below, high, middle)
        inside = (low < stop) & (self.ids[low.clamp(max=last)] == entities)
        if self.sums is None:
            weight, total = torch.ones_like(entities), stop - start
        else:
            at = low.clamp(max=last)
            weight, total = self.sums[at + 1] - self.sums[at], self.sums[stop] - self.sums[start]
        share = torch.where(inside, weight, 0) / total
        return torch.where(start == stop, 1.0 / self.num_entities, share).log()
