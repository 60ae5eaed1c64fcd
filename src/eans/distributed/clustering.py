"""K-means of rows that lie on several ranks."""

from __future__ import annotations

import torch
from torch import Tensor

from eans import kernels
from eans.distributed.table import Placement
from eans.distributed.world import World
from eans.ordering import kmeans

SAMPLE = 1 << 18  # rows at most that the centroids are fitted to


def clustered(
    points: Tensor, k: int, generator: torch.Generator, centroids: Tensor | None, placement: Placement, world: World
) -> tuple[Tensor, Tensor]:
    """`eans.ordering.kmeans` of the rows of all ranks: labels int64 ``[E]`` and centroids ``[k, F]``, the same on all.

    One rank fits the centroids, to a sample of rows where there are more than `SAMPLE`; then each labels its own.

    Args:
        points: ``[L, F]``, the rows of the entities that this rank owns, in the order of `placement.owned`.
        k, generator, centroids: see `eans.ordering.kmeans`.
        placement, world: who owns which rows.
    """
    if world.size == 1:
        return kmeans(points, k, generator, centroids)
    size = len(placement.places)
    sample = torch.arange(size, device=points.device)
    if size > SAMPLE:
        sample = torch.randperm(size, generator=generator, device=points.device)[:SAMPLE]
    # The sample by place, and so rank by rank; the centroids are fitted to it in its own order.
    order = torch.argsort(placement.places[sample])
    mine = sample[order][placement.owner(sample[order]) == world.rank]
    rows = points[placement.places[mine] - placement.starts[world.rank]]
    counts = [len(rows) if rank == 0 else 0 for rank in range(world.size)]
    gathered, _ = world.exchange(rows, counts)
    found = points.new_empty(k, points.shape[1])
    if world.first:
        fitted = torch.empty_like(gathered)
        fitted[order] = gathered
        found = kmeans(fitted, k, generator, centroids)[1]
    world.share(found)
    labels = torch.empty(size, dtype=torch.int64, device=points.device)
    labels[placement.entities] = world.gather(kernels.nearest(points, found)[0])
    return labels, found
