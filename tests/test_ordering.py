"""K-means, the greedy chain and the order: against brute force, on degenerate inputs, and by property."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from eans import kernels, ordering
from eans.kernels import blocks
from eans.kernels.blocks import all_finite
from eans.kernels.kmeans import reference
from eans.ordering import can_be_ordered, chain, kmeans, order, seed_centroids
from helpers_graphs import Meter


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(rows: int, width: int = 3, seed: int = 0) -> Tensor:
    return torch.randn(rows, width, generator=seeded(seed), dtype=torch.float64)


def inertia(points: Tensor, labels: Tensor, centroids: Tensor) -> float:
    return (points - centroids[labels]).square().sum().item()


def gap_to_nearest(points: Tensor, labels: Tensor, centroids: Tensor) -> float:
    """By how much any point's squared distance exceeds that of its nearest centroid."""
    squared = (points[:, None] - centroids[None]).square().sum(2)
    return (squared.gather(1, labels[:, None])[:, 0] - squared.min(1).values).max().item()


# --- order --------------------------------------------------------------------------------------------------------


@st.composite
def labellings(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    k = draw(st.integers(1, 8))
    labels = draw(st.lists(st.integers(0, k - 1), min_size=1, max_size=40))
    return torch.tensor(labels), torch.tensor(draw(st.permutations(range(k))))


@given(labellings())
def test_order_is_a_bijection_with_contiguous_clusters(case):
    labels, walk = case
    line = order(labels, walk).tolist()
    assert sorted(line) == list(range(len(labels)))
    rank = {cluster: place for place, cluster in enumerate(walk.tolist())}
    keys = [(rank[int(labels[entity])], entity) for entity in line]
    assert keys == sorted(keys)  # cluster by cluster along the walk, by id inside one


def test_order_by_hand():
    assert order(torch.tensor([0, 2, 1, 2, 0]), torch.tensor([2, 0, 1])).tolist() == [1, 3, 0, 4, 2]


def test_order_inside_clusters_by_hand():
    """Clusters as in the walk; inside, as in the line before: 4, 2, 0 of the first and 3, 1 of the second."""
    labels, walk = torch.tensor([0, 1, 0, 1, 0]), torch.tensor([1, 0])
    assert order(labels, walk).tolist() == [1, 3, 0, 2, 4]
    assert order(labels, walk, torch.tensor([4, 3, 2, 1, 0])).tolist() == [3, 1, 4, 2, 0]


# --- chain --------------------------------------------------------------------------------------------------------


def assert_greedy(centroids: Tensor, walk: list[int], start: int) -> None:
    assert walk[0] == start
    assert sorted(walk) == list(range(len(centroids)))
    unused = set(walk) - {start}
    for here, there in pairwise(walk):
        distance = {other: (centroids[here] - centroids[other]).norm().item() for other in unused}
        assert distance[there] <= min(distance.values()) + 1e-9
        unused.remove(there)


@pytest.mark.parametrize("k", [1, 2, 3, 10, 40])
@pytest.mark.parametrize("start", [0, -1])
def test_chain_goes_on_to_the_nearest_unused(k, start):
    centroids = normal(k, seed=k)
    assert_greedy(centroids, chain(centroids, start % k).tolist(), start % k)


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=12))
def test_chain_with_ties_and_coincident_points(points):
    centroids = torch.tensor(points, dtype=torch.float64)
    assert_greedy(centroids, chain(centroids).tolist(), 0)


def test_chain_by_hand():
    """From 0: nearest is 1 (at 2), then 3 (at 3.5), then back over everything to 2 (at -4)."""
    assert chain(torch.tensor([[0.0], [2.0], [-4.0], [3.5]])).tolist() == [0, 1, 3, 2]


def test_chain_does_not_change_its_input():
    centroids = normal(6)
    before = centroids.clone()
    chain(centroids)
    assert torch.equal(centroids, before)


# --- k-means ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "k"), [(1, 1), (5, 1), (60, 7), (200, 20), (30, 29), (30, 30)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_labels_are_nearest_and_every_cluster_is_used(rows, k, dtype):
    points = normal(rows).to(dtype)
    before = points.clone()
    labels, centroids = kmeans(points, k, seeded())
    assert labels.shape == (rows,)
    assert centroids.shape == (k, 3)
    assert gap_to_nearest(points, labels, centroids) <= 1e-5
    assert len(labels.unique()) == k
    assert torch.equal(points, before)


def test_converged_centroids_are_means():
    points = normal(100)
    labels, centroids = kmeans(points, 5, seeded(), iterations=200)
    for cluster in range(5):
        torch.testing.assert_close(centroids[cluster], points[labels == cluster].mean(0))


def test_means_are_taken_over_blocks(monkeypatch):
    points = normal(100)
    whole = kmeans(points, 5, seeded())
    monkeypatch.setattr(reference, "GROUP_ROWS", 7)
    blocked = kmeans(points, 5, seeded())
    assert torch.equal(whole[0], blocked[0])
    torch.testing.assert_close(whole[1], blocked[1])


def plain_lloyd(points: Tensor, centroids: Tensor, iterations: int) -> tuple[list[int], Tensor]:
    """Lloyd's algorithm cluster by cluster; the i-th empty one goes to the i-th farthest point."""
    k = len(centroids)

    def assign() -> tuple[Tensor, Tensor]:
        squared = (points[:, None] - centroids[None]).square().sum(2)
        return squared.argmin(1), squared.min(1).values

    labels, distances = assign()
    for _ in range(iterations):
        empty = [c for c in range(k) if not bool((labels == c).any())]
        farthest = distances.argsort(descending=True).tolist()
        centroids = torch.stack(
            [points[farthest[empty.index(c)]] if c in empty else points[labels == c].mean(0) for c in range(k)]
        )
        labels, distances = assign()
    return labels.tolist(), centroids


@pytest.mark.parametrize("away", [0, 1, 5])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("iterations", [0, 1, 2, 5, 25])
def test_against_a_plain_loop(iterations, seed, away):
    """`away` centroids start so far out that no point is theirs."""
    points, start = normal(90, seed=seed), normal(12, seed=seed + 100)
    start[:away] += 1e3
    labels, centroids = kmeans(points, 12, seeded(), start, iterations)
    expected, means = plain_lloyd(points, start, iterations)
    assert labels.tolist() == expected
    torch.testing.assert_close(centroids, means)


@pytest.mark.parametrize("look_every", [2, 3, 8, 100])
@pytest.mark.parametrize("iterations", [1, 7, 60])
def test_when_the_end_is_noticed_does_not_matter(look_every, iterations, monkeypatch):
    points = normal(150).float()
    start = normal(9, seed=5).float()
    start[3] += 1e3
    first = kmeans(points, 9, seeded(), start, iterations)
    monkeypatch.setitem(ordering.LOOK_EVERY, "cpu", look_every)
    later = kmeans(points, 9, seeded(), start, iterations)
    assert torch.equal(first[0], later[0])
    assert torch.equal(first[1], later[1])


def test_the_end_is_noticed(monkeypatch):
    calls = []
    plain = kernels.nearest
    monkeypatch.setattr(kernels, "nearest", lambda *args: calls.append(0) or plain(*args))
    kmeans(normal(40), 3, seeded(), iterations=1000)
    assert 0 < len(calls) < 50


def test_seed_decides():
    points = normal(300)
    first, again, other = kmeans(points, 12, seeded(1)), kmeans(points, 12, seeded(1)), kmeans(points, 12, seeded(2))
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])


def test_more_iterations_never_hurt():
    points = normal(400, 5)
    for seed in range(3):
        inertias = [inertia(points, *kmeans(points, 25, seeded(seed), iterations=n)) for n in range(9)]
        assert all(b <= a + 1e-9 for a, b in pairwise(inertias))
        assert inertias[-1] < 0.95 * inertias[0]


def test_separated_blobs_are_found():
    corners = 100.0 * torch.eye(6, dtype=torch.float64)
    truth = torch.arange(120) % 6
    labels, _ = kmeans(corners[truth] + normal(120, 6), 6, seeded())
    assert len({(a, b) for a, b in zip(truth.tolist(), labels.tolist(), strict=True)}) == 6


def test_warm_start_uses_the_given_centroids():
    points = normal(200)
    _, centroids = kmeans(points, 10, seeded(1), iterations=100)
    kept = centroids.clone()
    labels, again = kmeans(points, 10, seeded(2), centroids, iterations=1)
    assert torch.equal(centroids, kept)
    torch.testing.assert_close(again, centroids)
    assert gap_to_nearest(points, labels, again) <= 1e-12
    swapped, _ = kmeans(points, 10, seeded(2), centroids.flip(0), iterations=1)
    assert torch.equal(swapped, 9 - labels)  # names of clusters are inherited


@pytest.mark.parametrize("k", [0, 4, -1])
def test_k_must_fit(k):
    with pytest.raises(ValueError, match=r"1\.\.3"):
        kmeans(normal(3), k, seeded())


def test_an_empty_cluster_is_restarted_at_the_farthest_point():
    """The second centroid serves no point at first; 11 is the farthest from 5, so the right pair becomes its own."""
    points = torch.tensor([[0.0], [1.0], [10.0], [11.0]])
    labels, centroids = kmeans(points, 2, seeded(), torch.tensor([[5.0], [1e4]]))
    assert labels.tolist() == [0, 0, 1, 1]
    assert centroids[:, 0].tolist() == [0.5, 10.5]


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("value", [0.0, 7.25, 1e3])
def test_identical_points(k, value):
    points = torch.full((8, 2), value)
    labels, centroids = kmeans(points, k, seeded())
    torch.testing.assert_close(centroids[labels], points)
    line = order(labels, chain(centroids))
    assert sorted(line.tolist()) == list(range(8))


@pytest.mark.parametrize(("copies", "distinct", "k"), [(5, 4, 4), (5, 4, 3), (10, 3, 6), (2, 10, 15), (2, 10, 20)])
def test_duplicate_points(copies, distinct, k):
    """Where k allows it every distinct point gets its own cluster; copies always share one."""
    points = (10.0 * normal(distinct)).repeat(copies, 1)
    labels, centroids = kmeans(points, k, seeded())
    assert torch.isfinite(centroids).all()
    assert (labels.reshape(copies, distinct) == labels[:distinct]).all()
    assert len(labels.unique()) == min(k, distinct)


def test_restarted_clusters_do_not_share_a_point():
    """Two clusters run empty at once, and the two farthest points coincide: documented, all k stay in use."""
    points = torch.tensor([[0.0], [1.0], [2.0], [50.0], [50.0], [30.0]])
    labels, _ = kmeans(points, 3, seeded(), torch.tensor([[0.0], [1e4], [2e4]]), iterations=25)
    assert len(labels.unique()) == 3


@given(
    st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=1, max_size=25),
    st.integers(1, 25),
    st.integers(0, 5),
)
def test_any_points(rows, k, seed):
    points = torch.tensor(rows, dtype=torch.float32)
    k = min(k, len(points))
    labels, centroids = kmeans(points, k, seeded(seed))
    assert torch.isfinite(centroids).all()
    assert gap_to_nearest(points, labels, centroids) <= 1e-4
    assert len(labels.unique()) == min(k, len(set(rows)))
    line = order(labels, chain(centroids))
    assert sorted(line.tolist()) == list(range(len(points)))
    clusters = labels[line].tolist()
    changes = sum(a != b for a, b in pairwise(clusters))
    assert changes == len(set(clusters)) - 1  # each cluster is one run


# --- seeds --------------------------------------------------------------------------------------------------------


def test_seeds_are_points_and_spread():
    points = normal(50)
    seeds = seed_centroids(points, 50, seeded())
    assert sorted(map(tuple, seeds.tolist())) == sorted(map(tuple, points.tolist()))  # each once: never the same twice


def test_seeding_prefers_far_points():
    """One point out of 300 is far away: if it is not the first seed, it is the second."""
    points = torch.cat([normal(299) * 0.01, torch.full((1, 3), 1e3, dtype=torch.float64)])
    for seed in range(20):
        assert seed_centroids(points, 2, seeded(seed)).max() == 1e3


def test_seeding_reads_a_sample_of_many_points(monkeypatch):
    monkeypatch.setattr(ordering, "SEEDING_POINTS", 4)
    points = normal(500)
    seeds = seed_centroids(points, 3, seeded())
    assert seeds.shape == (3, 3)
    assert all((points == seed).all(1).any() for seed in seeds)


# --- fitted on a sample -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [50, 400, 1999])
def test_every_point_gets_the_nearest_centroid_of_the_sample(size: int) -> None:
    points = normal(2000, 4)
    labels, centroids = kmeans(points, 9, seeded(), fit_points=size)
    assert gap_to_nearest(points, labels, centroids) <= 1e-12
    whole = inertia(points, *kmeans(points, 9, seeded()))
    assert inertia(points, labels, centroids) <= 1.4 * whole


@pytest.mark.parametrize("size", [0, 2000, 10**9])
def test_a_sample_that_is_none(size: int) -> None:
    points = normal(2000, 4)
    for found, expected in zip(kmeans(points, 9, seeded(), fit_points=size), kmeans(points, 9, seeded()), strict=True):
        assert torch.equal(found, expected)


def test_a_sample_has_a_point_for_every_cluster() -> None:
    points = normal(40)
    assert len(kmeans(points, 30, seeded(), fit_points=3)[0].unique()) == 30


@given(st.integers(1, 60), st.integers(0, 9))
def test_a_sample_spreads_over_the_points(size: int, seed: int) -> None:
    points = torch.arange(60.0)[:, None]
    chosen = ordering._sample(points, size, seeded(seed))[:, 0].tolist()
    assert all(place * 60 // size <= point < (place + 1) * 60 // size for place, point in enumerate(chosen))


def test_only_a_sample_is_iterated_over(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    nearest = kernels.nearest
    monkeypatch.setattr(
        kernels, "nearest", lambda points, centroids: seen.append(len(points)) or nearest(points, centroids)
    )
    kmeans(normal(3000), 5, seeded(), fit_points=100)
    assert seen.count(3000) == 1
    assert set(seen) == {100, 3000}


# --- soundness ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", [0, 499_999])
def test_what_is_not_finite_is_found_without_a_copy(bad: float, where: int) -> None:
    tensors = [torch.zeros(5000, 100), torch.empty(0, 3), torch.tensor(3), torch.tensor(1.0)]
    with Meter() as meter:
        assert all_finite(tensors)
        assert can_be_ordered(tensors[0])
    assert meter.largest <= blocks.BLOCK_ELEMENTS["cpu"]
    tensors[0].view(-1)[where] = bad
    assert not all_finite(tensors)
    assert not can_be_ordered(tensors[0])
    assert all_finite([])


def test_squares_that_overflow_cannot_be_ordered() -> None:
    points = torch.full((3, 2), 1e19)
    assert not can_be_ordered(points)
    assert all_finite([points])
