"""The parts of K-means in every implementation against exact sums, with the same bits every time."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch
from kernel_cases import (
    GPU,
    REFERENCE,
    Implementation,
    let_interpreter_read_bounds,
    normal,
    only_numba,
    only_reference,
    only_triton,
    same_bits,
    strided,
    types,
)

from eans import kernels, ordering
from eans.kernels import blocks

# --- nearest ----------------------------------------------------------------------------------------------------------


@types
@pytest.mark.parametrize("width", [1, 7, 16, 40])
@pytest.mark.parametrize(("size", "k"), [(1, 1), (15, 2), (16, 16), (33, 17), (50, 40), (7, 30)])
def test_nearest(ops: Implementation, size: int, k: int, width: int, dtype: torch.dtype) -> None:
    points, centroids = strided(normal(size, width, dtype=dtype)), strided(normal(k, width, seed=1, dtype=dtype))
    labels, distances = (found.cpu() for found in ops.nearest(ops.put(points), ops.put(centroids)))
    exact = (points.double()[:, None] - centroids.double()[None]).square().sum(2)
    assert labels.dtype == torch.int64
    assert distances.dtype == dtype
    chosen = exact.gather(1, labels[:, None])[:, 0]
    torch.testing.assert_close(chosen, exact.min(1).values, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(distances.double(), chosen, rtol=1e-5, atol=1e-5)


@only_triton
def test_nearest_takes_the_first_of_equals(ops: Implementation) -> None:
    centroids = ops.put(normal(3, 5, dtype=torch.float32)[[0, 0, 1, 1, 2, 0] * 5])  # over two blocks
    labels, _ = ops.nearest(centroids, centroids)
    assert labels.tolist() == [0, 0, 2, 2, 4, 0] * 5


def test_nearest_of_a_centroid_is_itself_and_never_negative(ops: Implementation) -> None:
    points = ops.put(normal(50, 8, dtype=torch.float32) + 100.0)
    labels, distances = ops.nearest(points, points)
    assert labels.tolist() == list(range(50))
    assert distances.min() >= 0.0


@only_reference
def test_nearest_makes_no_full_matrix(ops: Implementation, meter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(blocks.BLOCK_ELEMENTS, "cpu", 1000)
    points, centroids = normal(5000, 2), normal(50, 2)
    with meter:
        ops.nearest(points, centroids)
    assert meter.largest <= 5000


@only_triton
def test_blocks_of_the_gpu(ops: Implementation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    let_interpreter_read_bounds(monkeypatch)
    points, centroids = normal(150, 37, dtype=torch.float32), normal(130, 37, seed=1, dtype=torch.float32)
    labels, _ = ops.nearest(ops.put(points), ops.put(centroids))
    assert torch.equal(labels.cpu(), torch.cdist(points, centroids).argmin(1))
    groups = torch.arange(150) % 11
    means, sizes = ops.group_means(ops.put(points), ops.put(groups), 12)
    expected, counts = REFERENCE.group_means(points.double(), groups, 12)
    torch.testing.assert_close(means.cpu().double(), expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(sizes.cpu(), counts)


# --- group_means ------------------------------------------------------------------------------------------------------


@types
@pytest.mark.parametrize("width", [1, 8, 19])
@pytest.mark.parametrize(("size", "k"), [(1, 1), (1, 6), (4, 3), (37, 5), (50, 40), (64, 1), (0, 3)])
def test_group_means(ops: Implementation, size: int, k: int, width: int, dtype: torch.dtype) -> None:
    points = strided(normal(size, width, dtype=dtype))
    # The last group is empty where there are several.
    groups = torch.randint(max(1, k - 1), (size,), generator=torch.Generator().manual_seed(size))
    means, sizes = (found.cpu() for found in ops.group_means(ops.put(points), ops.put(groups), k))
    assert (means.dtype, sizes.dtype) == (dtype, torch.int64)
    assert sizes.tolist() == [int((groups == group).sum()) for group in range(k)]
    for group in range(k):
        members = points[groups == group].double()
        exact = members.mean(0) if len(members) else torch.zeros(width, dtype=torch.float64)
        torch.testing.assert_close(means[group].double(), exact, rtol=1e-5, atol=1e-6)


@only_triton
@pytest.mark.parametrize("intervals", [2, 4096])
@pytest.mark.parametrize(("size", "k"), [(4, 3), (37, 5), (50, 40)])
def test_any_number_of_intervals(
    ops: Implementation, size: int, k: int, intervals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("eans.kernels.kmeans.triton"), "INTERVALS", intervals)
    points, groups = normal(size, 19), torch.randint(k, (size,), generator=torch.Generator().manual_seed(size))
    means, sizes = ops.group_means(ops.put(points), ops.put(groups), k)
    expected, counts = REFERENCE.group_means(points, groups, k)
    assert torch.equal(sizes.cpu(), counts)
    torch.testing.assert_close(means.cpu(), expected)


def test_group_means_of_groups_far_apart(ops: Implementation) -> None:
    """Most groups are empty, at the ends and in between."""
    groups = torch.tensor([7] * 9 + [2] * 3 + [30] * 2 + [7])
    points = normal(15, 10)
    means, sizes = (found.cpu() for found in ops.group_means(ops.put(points), ops.put(groups), 40))
    expected, counts = REFERENCE.group_means(points, groups, 40)
    assert torch.equal(sizes, counts)
    torch.testing.assert_close(means, expected)
    assert not means[sizes == 0].any()


@only_reference
def test_group_means_makes_no_full_matrix(ops: Implementation, meter: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eans.kernels.kmeans.reference.GROUP_ROWS", 50)
    points, groups = normal(5000, 2), torch.arange(5000) % 50
    with meter:
        ops.group_means(points, groups, 50)
    assert meter.largest <= 50 * 50


@only_numba
@pytest.mark.parametrize("groups", [[0, 1], [0, 1, 3], [0, -1, 1]])
def test_groups_that_would_be_read_wrongly(ops: Implementation, groups: list[int]) -> None:
    with pytest.raises(ValueError, match="3 points need a group"):
        ops.group_means(normal(3, 2), torch.tensor(groups), 3)


# --- distances_to -----------------------------------------------------------------------------------------------------


@types
@pytest.mark.parametrize(("points", "width"), [(1, 1), (9, 7), (300, 133)])
def test_distances_to(ops: Implementation, points: int, width: int, dtype: torch.dtype) -> None:
    x, place = normal(points, width, dtype=dtype), torch.tensor([points // 2])
    found = ops.distances_to(ops.put(x), ops.put(x.square().sum(1)), ops.put(place)).cpu()
    exact = (x.double() - x.double()[place]).square().sum(1)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-3 if dtype == torch.float32 else 1e-12)
    assert (found >= 0).all()


@only_numba
def test_distances_that_would_be_read_wrongly(ops: Implementation) -> None:
    x = normal(3, 2)
    for norms, place in ((x[:, 0], 3), (x[:, 0], -1), (x[:2, 0], 0), (x[:, 0].float(), 0)):
        with pytest.raises(ValueError, match="no distances"):
            ops.distances_to(x, norms, torch.tensor([place]))


# --- all of them ------------------------------------------------------------------------------------------------------


def test_same_bits_every_time(ops: Implementation) -> None:
    points, centroids = ops.put(normal(60, 20, dtype=torch.float32)), ops.put(normal(7, 20, seed=1).float())
    first, second = (list(ops.nearest(points, centroids)) for _ in range(2))
    assert same_bits(first, second)
    first, second = (list(ops.group_means(points, first[0], 7)) for _ in range(2))
    assert same_bits(first, second)


@only_numba
def test_same_bits_for_any_number_of_threads(ops: Implementation) -> None:
    x, groups = normal(500, 77).float(), torch.randint(20, (500,), generator=torch.Generator().manual_seed(1))
    found = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        distances = ops.distances_to(x, x.square().sum(1), torch.tensor([250]))
        found.append([ops.group_means(x, groups, 20)[0], distances])
    assert all(same_bits(found[0], other) for other in found)


@pytest.mark.parametrize("away", [0, 3])
@types
def test_kmeans(ops: Implementation, away: int, dtype: torch.dtype) -> None:
    """Some clusters are empty at first; on a GPU float64 needs the reference for `nearest`."""
    points, start = normal(70, 6, dtype=dtype), normal(9, 6, seed=1, dtype=dtype)
    start[:away] += 1e3
    with kernels.chosen("reference"):
        expected = ordering.kmeans(points.double(), 9, torch.Generator(), start.double(), 6)
    with kernels.chosen(ops.name):
        labels, centroids = ordering.kmeans(ops.put(points), 9, torch.Generator(ops.device), ops.put(start), 6)
    assert torch.equal(labels.cpu(), expected[0])
    torch.testing.assert_close(centroids.cpu().double(), expected[1], rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not GPU, reason="needs a CUDA GPU")
def test_lloyd_does_not_synchronise(monkeypatch: pytest.MonkeyPatch, gpu_must_not_wait: Any) -> None:
    points = torch.randn(300, 20, device="cuda")
    start = points[:10].clone()
    monkeypatch.setitem(ordering.LOOK_EVERY, "cuda", 1000)
    with gpu_must_not_wait():
        ordering.kmeans(points, 10, torch.Generator("cuda"), start)
