"""`distances_to`, `nearest` and `group_means` in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from eans.kernels.blocks import blocks

# Points of one block of `group_means`.
GROUP_ROWS = 1 << 14


def distances_to(points: Tensor, norms: Tensor, place: Tensor) -> Tensor:
    """See `eans.kernels.distances_to`."""
    return (norms - 2.0 * (points @ points[place].squeeze(0)) + norms[place]).clamp_(min=0.0)


def nearest(points: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """See `eans.kernels.nearest`; blocked over the points."""
    labels = torch.empty(len(points), dtype=torch.int64, device=points.device)
    distances = points.new_empty(len(points))
    norms = centroids.square().sum(1)
    for block in blocks(len(points), len(centroids), points.device):
        partial, labels[block] = torch.addmm(norms, points[block], centroids.T, alpha=-2.0).min(1)
        distances[block] = partial + points[block].square().sum(1)
    return labels, distances.clamp_(min=0.0)


def group_means(points: Tensor, groups: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """See `eans.kernels.group_means`. Products with one-hot rows need no atomics, so the bits repeat."""
    sums = points.new_zeros(k, points.shape[1])
    sizes = torch.zeros(k, dtype=torch.int64, device=points.device)
    for start in range(0, len(points), GROUP_ROWS):
        block = slice(start, start + GROUP_ROWS)
        member = one_hot(groups[block], k).to(points.dtype)
        sums.addmm_(member.T, points[block])
        sizes += member.sum(0).long()
    return sums / sizes.clamp(min=1).to(points.dtype)[:, None], sizes
