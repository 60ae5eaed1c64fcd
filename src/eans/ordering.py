"""The ordering of entities, similar ones side by side: K-means, then a greedy walk over the centroids.

Plain functions on tensors; they run where their input lies and give the same bits for the same generator state.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from eans import kernels
from eans.kernels.blocks import blocks

# Seeding looks at a sample of this many points per centroid: enough for good seeds, and constant in |E|.
SEEDING_POINTS = 256
# Iterations between two looks at whether any label still changes; each look waits for a GPU. Beyond the end nothing
# changes, so the result does not depend on when it is noticed.
LOOK_EVERY = {"cpu": 1, "cuda": 8}


def seed_centroids(points: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """k-means++ seeds: each next one is drawn with probability proportional to the squared distance to the nearest.

    Args:
        points: ``[E, F]``.
        k: number of seeds, at most E.
        generator: on the device of `points`.

    Returns:
        ``[k, F]``.
    """
    if len(points) > SEEDING_POINTS * k:
        chosen = torch.randint(len(points), (SEEDING_POINTS * k,), generator=generator, device=points.device)
        points = points[chosen]
    centred = points - points.mean(0)
    norms = centred.square().sum(1)
    seeds = [torch.randint(len(points), (1,), generator=generator, device=points.device)]
    distance = kernels.distances_to(centred, norms, seeds[0])
    for _ in range(k - 1):
        # Where all remaining points coincide with a seed, every weight is zero: any point will do.
        weights = distance + torch.finfo(points.dtype).tiny
        seeds.append(torch.multinomial(weights / weights.sum(), 1, generator=generator))
        distance = torch.minimum(distance, kernels.distances_to(centred, norms, seeds[-1]))
    return points[torch.cat(seeds)]


def _restart_empty(centroids: Tensor, sizes: Tensor, points: Tensor, distances: Tensor) -> Tensor:
    """Move the i-th empty cluster to the i-th farthest point, without asking whether there is one: ``[k, F]``."""
    empty = sizes == 0
    farthest = torch.topk(distances, len(centroids)).indices
    turn = (empty.cumsum(0) - 1).clamp_(min=0)
    return torch.where(empty[:, None], points[farthest[turn]], centroids)


def can_be_ordered(points: Tensor) -> bool:
    """Is the sum of all squares finite, as distances then are? No copy of the points ``[E, F]`` is made."""
    total = points.new_zeros(())
    for block in blocks(len(points), points.shape[1], points.device):
        total += points[block].square().sum()
    return bool(torch.isfinite(total))


def _sample(points: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """A random one of each of `size` stretches of the points ``[E, F]``, which are equally long: ``[size, F]``."""
    bounds = torch.arange(size + 1, device=points.device) * len(points) // size
    shares = torch.rand(size, generator=generator, device=points.device, dtype=torch.float64)
    return points[bounds[:-1] + (shares * bounds.diff()).long()]


def kmeans(
    points: Tensor,
    k: int,
    generator: torch.Generator,
    centroids: Tensor | None = None,
    iterations: int = 25,
    fit_points: int = 0,
) -> tuple[Tensor, Tensor]:
    """Lloyd's algorithm.

    A cluster that runs empty is restarted at the point farthest from its own centroid, so all k stay in use (unless
    there are fewer than k distinct points).

    Args:
        points: ``[E, F]`` float.
        k: number of clusters, at most E.
        generator: for the seeds; on the device of `points`.
        centroids: ``[k, F]`` to start from (warm start) instead of fresh seeds.
        iterations: at most this many; it stops earlier once no label changes.
        fit_points: find the centroids for a sample of so many points, and at least k; 0 for all.

    Returns:
        labels int64 ``[E]`` and centroids ``[k, F]``.
    """
    if not 1 <= k <= len(points):
        raise ValueError(f"k must lie in 1..{len(points)}, got {k}")
    if fit_points and max(fit_points, k) < len(points):
        sample = _sample(points, max(fit_points, k), generator)
        _, centroids = kmeans(sample, k, generator, centroids, iterations)
        return kernels.nearest(points, centroids)[0], centroids
    if centroids is None:
        centroids = seed_centroids(points, k, generator)
    look_every = LOOK_EVERY.get(points.device.type, 1)
    labels, distances = kernels.nearest(points, centroids)
    for iteration in range(1, iterations + 1):
        means, sizes = kernels.group_means(points, labels, k)
        centroids = _restart_empty(means, sizes, points, distances)
        previous = labels
        labels, distances = kernels.nearest(points, centroids)
        if iteration % look_every == 0 and bool((labels == previous).all() & (sizes > 0).all()):
            break
    return labels, centroids


def chain(centroids: Tensor, start: int = 0) -> Tensor:
    """A greedy walk: from `start`, always on to the nearest centroid not yet visited.

    Args:
        centroids: ``[k, F]``.
        start: the first cluster.

    Returns:
        int64 ``[k]``: the clusters in the order of the walk.
    """
    distances = torch.cdist(centroids.double(), centroids.double()).cpu().numpy()
    current, walk = start, [start]
    for _ in range(len(centroids) - 1):
        distances[:, current] = np.inf
        current = int(distances[current].argmin())
        walk.append(current)
    return torch.tensor(walk, device=centroids.device)


def order(labels: Tensor, walk: Tensor, ordering: Tensor | None = None) -> Tensor:
    """All entities, cluster by cluster along the walk: int64 ``[E]``, a permutation.

    Position v of the result holds the real id of the entity with virtual index v. Inside a cluster entities stand as
    they do in an earlier `ordering` ``[E]``, or without one by id.
    """
    position = torch.empty_like(walk)
    position[walk] = torch.arange(len(walk), device=walk.device)
    place = position[labels]
    return (
        torch.argsort(place, stable=True) if ordering is None else ordering[torch.argsort(place[ordering], stable=True)]
    )
