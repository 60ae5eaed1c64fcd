"""Sums over tables and over groups of points on a CPU equal the reference, with the same bits for any threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

pytest.importorskip("numba")

from kernel_cases import assert_near, normal, poison, two_threads

from eans.kernels import numba_pairs, numba_tables, reference, reference_step
from eans.kernels.pending import collect

types = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


@pytest.fixture(autouse=True)
def _several_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two threads and several blocks already for small shapes; buffers that are not written hold NaN."""
    monkeypatch.setattr(numba_tables, "CUBE_BLOCK", 16)
    poison(monkeypatch)
    with two_threads(monkeypatch):
        yield


@pytest.mark.parametrize(("ids", "size"), [([], 3), ([0], 1), ([3, 0, 3, 5], 6), ([1, 1, 1], 4)], ids=str)
def test_segments(ids: list[int], size: int) -> None:
    order, starts = numba_pairs.segments(torch.tensor(ids, dtype=torch.int64), size)
    found = [order[starts[v] : starts[v + 1]].tolist() for v in range(size)]
    assert found == [[place for place, number in enumerate(ids) if number == v] for v in range(size)]


@types
@pytest.mark.parametrize(("rows", "columns"), [(1, 2), (7, 10), (50, 134)])
def test_sums_of_a_table_that_collects(rows: int, columns: int, dtype: torch.dtype) -> None:
    table = nn.Parameter(normal(rows, columns).to(dtype))
    wide = table.detach().double()
    for _ in range(2):  # not collecting yet, then collecting
        assert_near(numba_tables.cubes(table).detach(), reference_step.cubes(wide))
        assert_near(numba_tables.half_products(table).detach(), reference_step.half_products(wide))
        pending = collect(table)
    (numba_tables.cubes(table) + numba_tables.half_products(table).sum()).backward()  # type: ignore[no-untyped-call]
    assert table.grad is None
    assert [len(part) for part in (pending.cubes, pending.products)] == [1, 1]


def test_what_is_not_finite_shows() -> None:
    table = nn.Parameter(normal(5, 6).float())
    collect(table)
    table.data[3, 2] = float("nan")
    assert numba_tables.cubes(table).isnan()
    assert numba_tables.half_products(table).isnan().nonzero().tolist() == [[3]]


@types
@pytest.mark.parametrize(("points", "width", "k"), [(1, 1, 1), (9, 7, 4), (300, 33, 12), (5, 3, 9), (0, 3, 2)])
def test_group_means(points: int, width: int, k: int, dtype: torch.dtype) -> None:
    x = normal(points, width + 2).to(dtype)[:, :width]  # strided rows
    # The last group is empty where there are several.
    groups = torch.randint(max(1, k - 1), (points,), generator=torch.Generator().manual_seed(0))
    means, sizes = numba_tables.group_means(x, groups, k)
    expected, counts = reference.group_means(x.double(), groups, k)
    assert (means.dtype, sizes.dtype) == (dtype, torch.int64)
    assert_near(means, expected)
    assert torch.equal(sizes, counts)


def test_group_means_have_the_same_bits_for_any_number_of_threads() -> None:
    x, groups = normal(500, 77).float(), torch.randint(20, (500,), generator=torch.Generator().manual_seed(1))
    found = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        found.append(numba_tables.group_means(x, groups, 20)[0])
    assert all(torch.equal(found[0], other) for other in found)


@types
@pytest.mark.parametrize(("points", "width"), [(1, 1), (9, 7), (300, 133)])
def test_distances_to(points: int, width: int, dtype: torch.dtype) -> None:
    x, place = normal(points, width).to(dtype), torch.tensor([points // 2])
    norms = x.square().sum(1)
    found = numba_tables.distances_to(x, norms, place)
    expected = (x.double() - x.double()[place]).square().sum(1)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-3 if dtype == torch.float32 else 1e-12)
    assert (found >= 0).all()
    torch.testing.assert_close(reference.distances_to(x, norms, place), found, rtol=1e-5, atol=1e-3)
    torch.set_num_threads(5)
    assert torch.equal(numba_tables.distances_to(x, norms, place), found)


def test_distances_that_would_be_read_wrongly_are_refused() -> None:
    x = normal(3, 2)
    for norms, place in ((x[:, 0], 3), (x[:, 0], -1), (x[:2, 0], 0), (x[:, 0].float(), 0)):
        with pytest.raises(ValueError, match="no distances"):
            numba_tables.distances_to(x, norms, torch.tensor([place]))


@pytest.mark.parametrize("groups", [[0, 1], [0, 1, 3], [0, -1, 1]])
def test_groups_that_would_be_read_wrongly_are_refused(groups: list[int]) -> None:
    with pytest.raises(ValueError, match="3 points need a group"):
        numba_tables.group_means(normal(3, 2), torch.tensor(groups), 3)
