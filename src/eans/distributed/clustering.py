"""K-means of rows that lie on several ranks."""

from __future__ import annotations

import torch
from torch import Tensor

from eans import kernels
from eans.distributed.table import Placement
from eans.distributed.world import World
from eans.ordering import fitted, kmeans


def clustered(
    points: Tensor,
    k: int,
    generator: torch.Generator,
    centroids: Tensor | None,
    fit_points: int,
    placement: Placement,
    world: World,
) -> tuple[Tensor, Tensor]:
    """`eans.ordering.kmeans` of the rows of all ranks: labels int64 ``[E]`` and centroids ``[k, F]``, the same on all.

    The first rank finds the centroids, for the rows that are sent to it; then each labels its own.

    Args:
        points: ``[L, F]``, the rows of the entities that this rank owns, in the order of `placement.owned`.
        k, generator, centroids, fit_points: see `eans.ordering.kmeans`.
        placement, world: who owns which rows.
    """
    if world.size == 1:
        return kmeans(points, k, generator, centroids, fit_points=fit_points)
    size = len(placement.places)
    sample = fitted(size, k, fit_points, generator)
    sample = torch.arange(size, device=points.device) if sample is None else sample
    # By place, and so rank by rank; the centroids are found for the sample in its own order.
    order = torch.argsort(placement.places[sample])
    mine = sample[order][placement.owner(sample[order]) == world.rank]
    rows = points[placement.places[mine] - placement.starts[world.rank]]
    received, _ = world.exchange(rows, [len(rows) if rank == 0 else 0 for rank in range(world.size)])
    found = points.new_empty(k, points.shape[1])
    if world.first:
        chosen = torch.empty_like(received)
        chosen[order] = received
        found = kmeans(chosen, k, generator, centroids)[1]
    world.share(found)
    labels = torch.empty(size, dtype=torch.int64, device=points.device)
    labels[placement.entities] = world.gather(kernels.nearest(points, found)[0])
    return labels, found
