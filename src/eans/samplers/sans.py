"""Structure-aware negatives (Ahrabian et al., EMNLP 2020): entities from the neighbourhood of the one that is kept.

Someone who lives near an answer is harder to tell from it than a stranger. The candidates for the tail of (h, r, ?)
are entities that a few steps through the training graph lead to from h; for the head of (?, r, t), from t.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from torch import Tensor

from eans.errors import UsageError
from eans.graph import KnowledgeGraph, Side, column, opposite
from eans.options import Option
from eans.samplers.lists import ListSampler
from eans.samplers.pools import build_pools

PoolKind = Literal["hops", "walks"]


class SANS(ListSampler):
    """Uniform, or by visits, over a pool of entities around the kept one, with replacement.

    With A the undirected, relation-blind adjacency matrix of the training graph, the pool of entity e is

    ``hops``: the non-zeros of row e of ``A^k + A^(k-1)``, which for k = 1 are its neighbours and itself;
    ``walks``: the distinct ends of random walks of k steps, each from e; without `restart` from the end of the
    walk before, which makes the pool a sample of all that can be reached.

    Pools are lists that stay (`ListSampler`). An entity without neighbours has none; in training that does not occur.

    Args:
        graph, negatives, options: see `Sampler`.
        kind: ``"hops"`` or ``"walks"``.
        hops: k.
        walks: random walks per entity.
        restart: each walk starts at its entity; if not, the first one alone, as in the authors' code.
        by_visits: draw candidates by how many walks ended there, instead of uniformly.
        limit: candidates per pool at most; of a larger pool so many are kept, chosen uniformly.
        memory_limit_mb: bound on all pools together; beyond it there is an error.
        seed: of the walks and of that choice.
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        negatives: int,
        kind: Annotated[PoolKind, Option("all entities within reach, or the ends of random walks")] = "hops",
        hops: Annotated[int, Option("steps from the kept entity, k", ge=1)] = 2,
        walks: Annotated[int, Option("random walks per entity", ge=1)] = 1000,
        restart: Annotated[bool, Option("each walk starts at its entity, not where the last one ended")] = True,
        by_visits: Annotated[bool, Option("draw by how many walks ended there, instead of uniformly")] = False,
        limit: Annotated[int, Option("candidates per pool at most; larger ones are sampled down", ge=1)] = 4096,
        memory_limit_mb: Annotated[int, Option("bound on the memory of all pools", ge=1)] = 2048,
        seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(graph, negatives, **options)
        if by_visits and kind != "walks":
            raise UsageError("sampler.by_visits counts visits of walks: set sampler.kind=walks")
        if not restart and kind != "walks":
            raise UsageError("sampler.restart=false is for walks: set sampler.kind=walks, or sampler.restart=true")
        ends = walks if kind == "walks" else 0
        self.hold(build_pools(graph, hops, ends, restart, by_visits, limit, memory_limit_mb, seed))

    def list_of(self, triples: Tensor, side: Side) -> Tensor:
        return triples[:, column(opposite(side))]
