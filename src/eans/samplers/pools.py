"""Neighbourhoods of every entity in the training graph, as compressed rows: plain functions on tensors.

The graph is undirected and blind to relations: an edge joins the two ends of a training triple. Pools are made on the
CPU, a block of entities at a time, from a seed of their own; the same graph, options and seed give the same pools.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from eans.errors import UsageError
from eans.graph import HEAD, TAIL, KnowledgeGraph
from eans.samplers.lists import Lists, offsets

MEGABYTE = 2**20
# Numbers of one block's [E, entities] frontier, or of the ends of its walks that start anew: small enough for a cache.
BLOCK_NUMBERS = 1 << 20
# One path of a sparse expansion (gathers, a sort) costs about as much as so many products of a dense one.
PATH_COST = 64


class Edges(NamedTuple):
    """Distinct neighbours of each entity, ascending: those of e are ``ids[starts[e] : starts[e + 1]]``.

    Attributes:
        ids: int64 ``[M]``.
        starts: int64 ``[E + 1]``.
    """

    ids: Tensor
    starts: Tensor

    @property
    def degrees(self) -> Tensor:
        """int64 ``[E]``."""
        return self.starts.diff()


def edges(graph: KnowledgeGraph) -> Edges:
    """The undirected training graph; a loop makes an entity its own neighbour."""
    size = graph.num_entities
    head, tail = graph.train[:, HEAD], graph.train[:, TAIL]
    keys = torch.unique(torch.cat([head * size + tail, tail * size + head]))
    return Edges(keys % size, offsets(torch.bincount(keys // size, minlength=size)))


def _blocks(sources: Tensor, numbers_per_source: int, one_step_at_a_time: bool) -> Iterator[Tensor]:
    # A long walk takes its steps one after the other: only many walks side by side keep a step from being all overhead.
    numbers, most = (4 * BLOCK_NUMBERS, 4096) if one_step_at_a_time else (BLOCK_NUMBERS, 256)
    yield from torch.split(sources, max(1, min(most, numbers // numbers_per_source)))


# --- hops ---------------------------------------------------------------------------------------------------------


def _matrix(graph: Edges) -> Tensor:
    size = len(graph.starts) - 1
    ones = torch.ones(len(graph.ids))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
        return torch.sparse_csr_tensor(graph.starts, graph.ids, ones, (size, size), check_invariants=True)


def _expand(graph: Edges, keys: Tensor) -> Tensor:
    """One step from each of the keys ``row * E + entity``: sorted distinct keys."""
    size = len(graph.starts) - 1
    rows, entities = keys // size, keys % size
    degrees = graph.degrees[entities]
    ends = degrees.cumsum(0)
    # Position of each path among the neighbours of the entity that it leaves.
    place = torch.arange(int(ends[-1]) if len(ends) else 0) - torch.repeat_interleave(ends - degrees, degrees)
    reached = graph.ids[torch.repeat_interleave(graph.starts[entities], degrees) + place]
    found: Tensor = torch.unique(torch.repeat_interleave(rows * size, degrees) + reached)
    return found


def _dense(keys: Tensor, size: int, block: int) -> Tensor:
    """Keys as ones in a matrix ``[E, block]``."""
    frontier = torch.zeros(size, block)
    frontier[keys % size, keys // size] = 1.0
    return frontier


def hop_keys(graph: Edges, matrix: Tensor, sources: Tensor, hops: int) -> Tensor:
    """Where walks of exactly `hops` or ``hops - 1`` steps from each source ``[b]`` may end.

    These are the non-zeros of rows of ``A^k + A^(k-1)``. While a frontier is small its paths are listed; once listing
    them costs more than a product with the whole matrix, products go on from there.

    Returns:
        Sorted keys int64 ``[K]``: ``row * E + entity``, rows counted within the block.
    """
    size, block = len(graph.starts) - 1, len(sources)
    keys = torch.arange(block) * size + sources
    before = keys
    dense: list[Tensor] = []  # the last two frontiers, once they are dense
    for _ in range(hops):
        if not dense and PATH_COST * int(graph.degrees[keys % size].sum()) > len(graph.ids) * block:
            dense = [_dense(keys, size, block)]
        if dense:
            dense = [dense[-1], (matrix @ dense[-1]).clamp_(max=1.0)]
        else:
            before, keys = keys, _expand(graph, keys)
    if not dense:
        both: Tensor = torch.unique(torch.cat([before, keys]))
        return both
    rows, entities = (dense[0] + dense[1]).T.contiguous().nonzero(as_tuple=True)
    return rows * size + entities


# --- walks --------------------------------------------------------------------------------------------------------


def walk_ends(
    graph: Edges, sources: Tensor, walks: int, hops: int, restart: bool, generator: torch.Generator
) -> Tensor:
    """Ends of random walks of `hops` steps from each source ``[b]``: int64 ``[b, walks]``.

    With `restart` each walk starts at its source anew. Without, it goes on where the one before ended: a single long
    walk, of which every `hops`-th place counts. Every source must have a neighbour.
    """
    if restart:
        return _walk(graph, sources[:, None].expand(-1, walks), hops, generator)
    ends = torch.empty(walks, len(sources), dtype=torch.int64)
    places = sources
    for end in ends:
        places = end.copy_(_walk(graph, places, hops, generator))
    return ends.T


def _walk(graph: Edges, places: Tensor, steps: int, generator: torch.Generator) -> Tensor:
    """Where `steps` steps from each of the places lead, each to a neighbour, all as likely as each other."""
    for _ in range(steps):
        choice = torch.rand(places.shape, generator=generator)
        first, end = graph.starts[places], graph.starts[places + 1]
        # A product close to the degree may round up to it.
        places = graph.ids[torch.minimum(first + (choice * (end - first)).long(), end - 1)]
    return places


# --- pools --------------------------------------------------------------------------------------------------------


def _kept(counts: Tensor, limit: int, generator: torch.Generator) -> Tensor:
    """Which of the candidates, ``counts[row]`` of each row, stay: at most `limit` a row, uniformly chosen: bool."""
    over = counts > limit
    kept = torch.repeat_interleave(~over, counts)
    if bool(over.any()):
        sizes, starts = counts[over], (counts.cumsum(0) - counts)[over]
        uniforms = torch.rand(len(sizes), int(sizes.max()), generator=generator)
        uniforms.masked_fill_(torch.arange(uniforms.shape[1]) >= sizes[:, None], 2.0)
        kept[(uniforms.topk(limit, largest=False, sorted=False).indices + starts[:, None]).reshape(-1)] = True
    return kept


def build_pools(
    graph: KnowledgeGraph,
    hops: int,
    walks: int,
    restart: bool,
    weighted: bool,
    limit: int,
    memory_mb: int,
    seed: int,
) -> Lists:
    """The pool of every entity; none of those that have no neighbours.

    Args:
        graph: its training triples are the edges.
        hops: k.
        walks: random walks per entity; 0 for everything within reach (`hop_keys`).
        restart: each walk starts at its entity, and not where the one before ended.
        weighted: keep how often walks ended at a candidate.
        limit: candidates per pool; larger pools are sampled down uniformly.
        memory_mb: bound on the size of all pools together. While they are put together, twice that is in use, and up
            to 300 MB for the block in work.
        seed: of walks and of sampling down.
    """
    size, around = graph.num_entities, edges(graph)
    matrix = _matrix(around) if not walks else None
    generator = torch.Generator().manual_seed(seed)
    counts = torch.zeros(size, dtype=torch.int64)
    parts: list[Tensor] = []
    weights: list[Tensor] = []
    used = 8 * (size + 1)
    # An entity without a neighbour has no pool, not even one with itself in it.
    for sources in _blocks(around.degrees.nonzero()[:, 0], walks or size, bool(walks) and not restart):
        visits = torch.ones(0, dtype=torch.int64)
        if matrix is not None:
            keys = hop_keys(around, matrix, sources, hops)
        else:
            rows = torch.arange(len(sources))[:, None] * size
            ends = rows + walk_ends(around, sources, walks, hops, restart, generator)
            keys, visits = torch.unique(ends, return_counts=True)
        kept = _kept(torch.bincount(keys // size, minlength=len(sources)), limit, generator)
        keys = keys[kept]
        counts[sources] = torch.bincount(keys // size, minlength=len(sources))
        parts.append((keys % size).to(torch.int32))
        if weighted:
            weights.append(visits[kept])
        used += (12 if weighted else 4) * len(keys)
        if used > memory_mb * MEGABYTE:
            raise UsageError(
                f"the pools of sampler 'sans' take more than sampler.memory_limit_mb = {memory_mb}; lower "
                f"sampler.limit or sampler.{'walks' if walks else 'hops'}, or allow more"
            )
    return Lists(torch.cat(parts), offsets(counts), offsets(torch.cat(weights)) if weighted else None)
