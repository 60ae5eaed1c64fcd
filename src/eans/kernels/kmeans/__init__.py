"""The parts of K-means: distances to one point, the nearest centroid of each point, the means of groups."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from torch import Tensor

from eans.kernels.switch import operation


@operation("numba")
def distances_to(points: Tensor, norms: Tensor, place: Tensor) -> Tensor:
    """Squared distances of points ``[E, F]`` to the one at `place`, int64 ``[1]``: ``[E]``.

    ``|p - s|^2 = |p|^2 - 2 p s + |s|^2`` with the squared norms ``[E]`` reads the points once and writes no table of
    differences. Little cancels if the points lie around 0.
    """


@operation("triton")
def nearest(points: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest centroid of each point: ``[E, F]``, ``[k, F]`` -> labels int64 ``[E]``, squared distances ``[E]``.

    No ``[E, k]`` matrix exists.
    """


@operation("triton", "numba")
def group_means(points: Tensor, groups: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Mean and size of each group: ``[E, F]``, int64 ``[E]`` in ``0..k-1`` -> ``[k, F]``, int64 ``[k]``.

    The mean of an empty group is 0. The same bits every time.
    """
