"""Structure-aware negatives (Ahrabian et al., EMNLP 2020): entities from the neighbourhood of the one that is kept.

Someone who lives near an answer is harder to tell from it than a stranger. The candidates for the tail of (h, r, ?)
are entities that a few steps through the training graph lead to from h; for the head of (?, r, t), from t.
"""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor

from eans.errors import UsageError
from eans.graph import KnowledgeGraph, Side, column, opposite
from eans.samplers.lists import ListSampler
from eans.samplers.pools import build_pools

PoolKind = Literal["hops", "walks"]


class SANS(ListSampler):
    """Uniform, or by visits, over a pool of entities around the kept one, with replacement.

    With A the undirected, relation-blind adjacency matrix of the training graph, the pool of entity e is

    ``hops``: the non-zeros of row e of ``A^k + A^(k-1)``, which for k = 1 are its neighbours and itself;
    ``walks``: the distinct ends of random walks of k steps, each from e; without `walk_restart` from the end of the
    walk before, which makes the pool a sample of all that can be reached.

    Pools are lists that stay (`ListSampler`). An entity without neighbours has none; in training that does not occur.

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
            raise UsageError(
                "sampler.walk_restart=false is for walks: set sampler.pool_kind=walks, or sampler.walk_restart=true"
            )
        ends = walks if pool_kind == "walks" else 0
        self.hold(build_pools(graph, hops, ends, walk_restart, walk_weights, pool_limit, pool_memory_mb, pool_seed))

    def list_of(self, triples: Tensor, side: Side) -> Tensor:
        return triples[:, column(opposite(side))]
