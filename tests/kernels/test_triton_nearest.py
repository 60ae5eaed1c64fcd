"""K-means in Triton equals the reference and exact sums; on a GPU, else in the interpreter."""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel is decorated: before the imports below

pytest.importorskip("triton")

from kernel_cases import let_interpreter_read_bounds, poison

from eans import kernels, ordering
from eans.kernels import reference, triton_nearest
from eans.kernels.triton_nearest import Block

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks along every axis already for small shapes, in buffers that hold NaN at first."""
    let_interpreter_read_bounds(monkeypatch)
    poison(monkeypatch)
    monkeypatch.setattr(triton_nearest, "NEAREST_BLOCK", Block(16, 16, 16, 4))
    monkeypatch.setattr(triton_nearest, "COLUMNS", 8)
    monkeypatch.setattr(triton_nearest, "LEAST_INTERVAL", 4)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).to(DEVICE, dtype)


def strided(tensor: Tensor) -> Tensor:
    """The same numbers, in rows with a gap that holds NaN."""
    wide = torch.full((len(tensor), tensor.shape[1] + 3), float("nan"), dtype=tensor.dtype, device=tensor.device)
    wide[:, : tensor.shape[1]] = tensor
    return wide[:, : tensor.shape[1]]


@pytest.mark.parametrize("width", [1, 7, 16, 40])
@pytest.mark.parametrize(("size", "k"), [(1, 1), (15, 2), (16, 16), (33, 17), (50, 40)])
def test_nearest(size: int, k: int, width: int) -> None:
    points, centroids = strided(normal(size, width)), strided(normal(k, width, seed=1))
    labels, distances = triton_nearest.nearest(points, centroids)
    exact = (points.double()[:, None] - centroids.double()[None]).square().sum(2)
    assert labels.dtype == torch.int64
    assert distances.dtype == torch.float32
    chosen = exact.gather(1, labels[:, None])[:, 0]
    torch.testing.assert_close(chosen, exact.min(1).values, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(distances.double(), chosen, rtol=1e-5, atol=1e-5)


def test_nearest_takes_the_first_of_equals() -> None:
    centroids = normal(3, 5)[[0, 0, 1, 1, 2, 0] * 5]  # over two blocks
    labels, _ = triton_nearest.nearest(centroids, centroids)
    assert labels.tolist() == [0, 0, 2, 2, 4, 0] * 5


def test_nearest_of_a_centroid_is_itself_and_never_negative() -> None:
    points = normal(50, 8) + 100.0
    labels, distances = triton_nearest.nearest(points, points)
    assert labels.tolist() == list(range(50))
    assert distances.min() >= 0.0


def test_blocks_of_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    let_interpreter_read_bounds(monkeypatch)
    points, centroids = normal(150, 37), normal(130, 37, seed=1)
    assert torch.equal(triton_nearest.nearest(points, centroids)[0], torch.cdist(points, centroids).argmin(1))
    labels = torch.arange(150, device=DEVICE) % 11
    means, sizes = triton_nearest.group_means(points, labels, 12)
    expected, counts = reference.group_means(points.double(), labels, 12)
    torch.testing.assert_close(means.double(), expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(sizes, counts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("intervals", [2, 4096])
@pytest.mark.parametrize("width", [1, 8, 19])
@pytest.mark.parametrize(("size", "k"), [(1, 1), (1, 6), (4, 3), (37, 5), (50, 40), (64, 1)])
def test_group_means(
    size: int, k: int, width: int, intervals: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_nearest, "INTERVALS", intervals)
    points = strided(normal(size, width, dtype=dtype))
    labels = torch.randint(k, (size,), generator=torch.Generator().manual_seed(size)).to(DEVICE)
    means, sizes = triton_nearest.group_means(points, labels, k)
    expected, counts = reference.group_means(points.double(), labels, k)
    assert means.dtype == dtype
    assert torch.equal(sizes, counts)
    torch.testing.assert_close(means.double(), expected, rtol=1e-5, atol=1e-6)


def test_group_means_of_groups_far_apart() -> None:
    """Most groups are empty, at the ends and in between."""
    labels = torch.tensor([7] * 9 + [2] * 3 + [30] * 2 + [7], device=DEVICE)
    points = normal(15, 10)
    means, sizes = triton_nearest.group_means(points, labels, 40)
    expected, counts = reference.group_means(points, labels, 40)
    assert torch.equal(sizes, counts)
    torch.testing.assert_close(means, expected)
    assert not means[sizes == 0].any()


def test_same_bits_every_time() -> None:
    points, centroids = normal(60, 20), normal(7, 20, seed=1)
    first, second = (triton_nearest.nearest(points, centroids) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    first, second = (triton_nearest.group_means(points, first[0], 7) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("away", [0, 3])
def test_kmeans(away: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some clusters are empty at first; float64 needs the reference for `nearest`."""
    for dtype in (torch.float32, torch.float64):
        points, start = normal(70, 6, dtype=dtype), normal(9, 6, seed=1, dtype=dtype)
        start[:away] += 1e3
        generator = torch.Generator(DEVICE)
        expected = ordering.kmeans(points.double(), 9, generator, start.double(), 6)
        monkeypatch.setattr(kernels, "_choice", "triton")
        labels, centroids = ordering.kmeans(points, 9, generator, start, 6)
        monkeypatch.setattr(kernels, "_choice", "reference")
        assert torch.equal(labels, expected[0])
        torch.testing.assert_close(centroids.double(), expected[1], rtol=1e-4, atol=1e-4)
