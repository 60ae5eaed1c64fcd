"""The reference kernels: values and every gradient against the naive ``[B, N, D]`` computation, whatever the block."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from eans import kernels
from eans.errors import UsageError
from eans.kernels import reference
from eans.kernels.reference import COMPARISONS, compare, compare_all, compare_rows, group_means, modulus, nearest

# B, N, D, E. With few entities candidates repeat within and across rows.
SHAPES = [(1, 1, 2, 1), (3, 5, 4, 7), (7, 3, 6, 2), (5, 1, 10, 11), (2, 9, 8, 4), (0, 3, 4, 5), (3, 0, 4, 5)]
ONE_ROW, HUGE = 1, 1 << 30
kinds = pytest.mark.parametrize("kind", COMPARISONS)
shapes = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
with_shift = pytest.mark.parametrize("shifted", [False, True], ids=["plain", "shifted"])


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def naive_rows(kind: str, query: Tensor, candidate: Tensor) -> Tensor:
    if kind == "dot":
        return torch.einsum("...d,...d->...", query, candidate)
    if kind == "l1":
        return -torch.where(query > candidate, query - candidate, candidate - query).sum(-1)
    half = query.shape[-1] // 2
    real = query[..., :half] - candidate[..., :half]
    imaginary = query[..., half:] - candidate[..., half:]
    return -(real**2 + imaginary**2).sqrt().sum(-1)


def naive(
    kind: str, queries: Tensor, table: Tensor, entities: Tensor, shifts: Tensor | None, scalars: Tensor | None
) -> Tensor:
    scores = []
    for index in range(len(queries)):
        candidate = table[entities]
        if shifts is not None and scalars is not None:
            candidate = candidate + scalars[entities].unsqueeze(2) * shifts[index].unsqueeze(1)
        query = queries[index].unsqueeze(1).expand_as(candidate)
        scores.append(naive_rows(kind, query, candidate))
    return torch.stack(scores)


def inputs(
    kind: str, shape: tuple[int, ...], count: int, shifted: bool
) -> tuple[list[Tensor], Tensor, Tensor | None, Tensor | None]:
    """(leaves that need gradients), entities, and the optional pair; the width is odd where the kind allows it."""
    batch, negatives, dim, num_entities = shape
    dim += kind != "modulus"
    queries, table = normal(count, batch, dim, seed=1), normal(num_entities, dim, seed=2)
    entities = torch.randint(num_entities, (batch, negatives), generator=torch.Generator().manual_seed(3))
    leaves = [queries, table]
    if shifted:
        leaves += [normal(count, batch, dim, seed=4), normal(num_entities, seed=5)]
    return [leaf.requires_grad_() for leaf in leaves], entities, *(leaves[2:] if shifted else (None, None))


# --- compare ------------------------------------------------------------------------------------------------------


@kinds
@shapes
@with_shift
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("rows", [1, 2, 1000])
def test_values_and_gradients(kind, shape, shifted, count, rows, monkeypatch):
    leaves, entities, shifts, scalars = inputs(kind, shape, count, shifted)
    queries, table = leaves[:2]
    per_row = shape[1] * queries.shape[2]
    monkeypatch.setitem(reference.BLOCK_ELEMENTS, "cpu", rows * per_row if rows > 1 else ONE_ROW)
    expected = naive(kind, queries, table, entities, shifts, scalars)
    actual = compare(kind, queries, table, entities, shifts, scalars)
    torch.testing.assert_close(actual, expected)
    upstream = normal(*expected.shape, seed=6)
    want = torch.autograd.grad(expected, leaves, upstream, allow_unused=True, materialize_grads=True)
    got = torch.autograd.grad(actual, leaves, upstream)
    for name, a, b in zip(("queries", "table", "shifts", "scalars"), got, want, strict=False):
        torch.testing.assert_close(a, b, msg=lambda text, name=name: f"gradient of {name}: {text}")


@kinds
@with_shift
def test_strided_table(kind, shifted):
    leaves, entities, shifts, scalars = inputs(kind, (4, 6, 6, 5), 2, shifted)
    queries, narrow = leaves[:2]
    dim = narrow.shape[1]
    wide = torch.cat([narrow.detach(), normal(5, 3, seed=8)], 1).requires_grad_()
    upstream = normal(2, 4, 6, seed=6)
    actual = compare(kind, queries, wide[:, :dim], entities, shifts, scalars)
    expected = naive(kind, queries, narrow, entities, shifts, scalars)
    torch.testing.assert_close(actual, expected)
    (got,), (want,) = torch.autograd.grad(actual, wide, upstream), torch.autograd.grad(expected, narrow, upstream)
    torch.testing.assert_close(got[:, :dim], want)
    assert not got[:, dim:].any()


@kinds
def test_repeated_entity_gathers_all_gradients(kind):
    """One entity in every place: its gradient is the sum over the batch."""
    leaves, _, _, _ = inputs(kind, (6, 4, 4, 3), 2, False)
    entities = torch.full((6, 4), 2)
    upstream = normal(2, 6, 4, seed=6)
    (got,) = torch.autograd.grad(compare(kind, *leaves, entities), leaves[1], upstream)
    (want,) = torch.autograd.grad(naive(kind, *leaves, entities, None, None), leaves[1], upstream)
    torch.testing.assert_close(got, want)
    assert not got[:2].any()


@pytest.mark.parametrize("kind", ["l1", "modulus"])
@pytest.mark.parametrize("value", [0.0, 1e-310, 5.0])
def test_zero_difference_has_zero_gradient(kind, value):
    """At the kink every slope between -1 and 1 is right; the kernels choose 0, never NaN."""
    table = torch.full((3, 4), value, dtype=torch.float64).requires_grad_()
    queries = torch.full((2, 2, 4), value, dtype=torch.float64).requires_grad_()
    scores = compare(kind, queries, table, torch.tensor([[0, 1], [2, 2]]))
    scores.sum().backward()
    assert not scores.any()
    assert not queries.grad.any()
    assert not table.grad.any()


def test_half_zero_difference_of_moduli():
    """One coordinate at the kink, the other (3, 4) away: its slope is (3/5, 4/5)."""
    table = torch.tensor([[0.0, 0.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    queries = torch.tensor([[[0.0, 3.0, 0.0, 4.0]]], dtype=torch.float64, requires_grad=True)
    scores = compare("modulus", queries, table, torch.tensor([[0]]))
    scores.sum().backward()
    assert scores.item() == -5.0
    torch.testing.assert_close(queries.grad[0, 0], torch.tensor([0.0, -0.6, 0.0, -0.8], dtype=torch.float64))
    torch.testing.assert_close(table.grad[0], torch.tensor([0.0, 0.6, 0.0, 0.8], dtype=torch.float64))


@kinds
def test_same_bits_every_time(kind):
    leaves, entities, shifts, scalars = inputs(kind, (16, 32, 8, 3), 3, True)
    single = [leaf.detach().float().requires_grad_() for leaf in leaves]
    shifts, scalars = single[2:]
    runs = []
    for _ in range(2):
        scores = compare(kind, single[0], single[1], entities, shifts, scalars)
        runs.append((scores, *torch.autograd.grad(scores.square().sum(), single)))
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


@kinds
@with_shift
def test_never_holds_the_whole_batch(kind, shifted, meter, monkeypatch):
    batch, negatives, dim, count = 64, 32, 64, 3
    rows = 2
    block = rows * negatives * dim
    monkeypatch.setitem(reference.BLOCK_ELEMENTS, "cpu", block)
    leaves, entities, shifts, scalars = inputs(kind, (batch, negatives, dim - (kind != "modulus"), 20), count, shifted)
    with meter:
        scores = compare(kind, leaves[0], leaves[1], entities, shifts, scalars)
        forward = meter.largest
        torch.autograd.grad(scores.sum(), leaves)
    results = count * batch * max(negatives, dim)
    assert block <= meter.largest <= max(block, results) < batch * negatives * dim / 8
    assert forward <= max(block, count * batch * negatives)
    # All blocks of a step together, plus the results and gradients that must exist.
    assert meter.peak < 8 * (8 * block + 4 * results)


def test_meter_sees_the_naive_way(meter):
    """The check above can fail."""
    leaves, entities, _, _ = inputs("l1", (8, 4, 6, 5), 1, False)
    with meter:
        naive("l1", *leaves, entities, None, None)
    assert meter.largest >= 8 * 4 * 6


# --- the rest -----------------------------------------------------------------------------------------------------


@kinds
def test_compare_rows_broadcasts(kind):
    query, candidate = normal(3, 1, 6), normal(4, 6, seed=1)
    scores = compare_rows(kind, query, candidate)
    assert scores.shape == (3, 4)
    for i in range(3):
        for j in range(4):
            torch.testing.assert_close(scores[i, j], naive_rows(kind, query[i, 0], candidate[j]))


@kinds
@with_shift
@pytest.mark.parametrize("elements", [ONE_ROW, 13, HUGE])
@pytest.mark.parametrize("strided", [False, True])
def test_compare_all(kind, shifted, elements, strided, monkeypatch):
    monkeypatch.setitem(reference.BLOCK_ELEMENTS, "cpu", elements)
    queries, table = normal(5, 6, seed=1), normal(9, 11, seed=2)
    table = table[:, :6] if strided else table[:, :6].contiguous()
    shifts, scalars = (normal(5, 6, seed=3), normal(9, seed=4)) if shifted else (None, None)
    everyone = torch.arange(9).expand(5, 9)
    expected = naive(kind, queries[None], table, everyone, None if shifts is None else shifts[None], scalars)[0]
    torch.testing.assert_close(compare_all(kind, queries, table, shifts, scalars), expected)


@kinds
@with_shift
def test_compare_all_needs_one_block_beyond_its_result(kind, shifted, meter, monkeypatch):
    monkeypatch.setitem(reference.BLOCK_ELEMENTS, "cpu", 1024)
    queries, table = normal(4, 64, seed=1), normal(3000, 64, seed=2)
    shifts, scalars = (normal(4, 64, seed=3), normal(3000, seed=4)) if shifted else (None, None)
    with meter:
        scores = compare_all(kind, queries, table, shifts, scalars)
    assert meter.largest == scores.numel()
    assert meter.peak <= 8 * (scores.numel() + 4 * 1024 + 64)


def test_modulus():
    vectors = torch.tensor([[3.0, 0.0, 1.0, 4.0, 0.0, 0.0]], requires_grad=True)
    norms = modulus(vectors)
    norms.sum().backward()
    assert norms.tolist() == [[5.0, 0.0, 1.0]]
    torch.testing.assert_close(vectors.grad, torch.tensor([[0.6, 0.0, 1.0, 0.8, 0.0, 0.0]]))
    assert modulus(normal(2, 3, 8)).shape == (2, 3, 4)


@pytest.mark.parametrize("elements", [ONE_ROW, 17, HUGE])
@pytest.mark.parametrize(("points", "centroids", "width"), [(1, 1, 1), (13, 4, 3), (40, 40, 2), (7, 30, 5)])
def test_nearest(points, centroids, width, elements, monkeypatch):
    monkeypatch.setitem(reference.BLOCK_ELEMENTS, "cpu", elements)
    x, c = normal(points, width, seed=1), normal(centroids, width, seed=2)
    labels, distances = nearest(x, c)
    exact = (x[:, None] - c[None]).square().sum(2)
    assert labels.dtype == torch.int64
    assert torch.equal(labels, torch.cdist(x, c).argmin(1))
    torch.testing.assert_close(distances, exact.min(1).values)


def test_nearest_of_a_centroid_is_itself_and_never_negative():
    points = normal(50, 8).float() + 100.0
    labels, distances = nearest(points, points)
    assert labels.tolist() == list(range(50))
    assert distances.min() >= 0.0


def test_nearest_makes_no_full_matrix(meter, monkeypatch):
    monkeypatch.setitem(reference.BLOCK_ELEMENTS, "cpu", 1000)
    points, centroids = normal(5000, 2), normal(50, 2)
    with meter:
        nearest(points, centroids)
    assert meter.largest <= 5000


@pytest.mark.parametrize("rows", [1, 7, HUGE])
@pytest.mark.parametrize(("points", "groups", "width"), [(1, 1, 1), (13, 4, 3), (40, 40, 2), (7, 30, 5), (0, 3, 2)])
def test_group_means(points, groups, width, rows, monkeypatch):
    monkeypatch.setattr(reference, "GROUP_ROWS", rows)
    x = normal(points, width)
    labels = torch.randint(groups, (points,), generator=torch.Generator().manual_seed(1))
    means, sizes = group_means(x, labels, groups)
    assert sizes.dtype == torch.int64
    assert sizes.tolist() == [int((labels == group).sum()) for group in range(groups)]
    for group in range(groups):
        members = x[labels == group]
        torch.testing.assert_close(means[group], members.mean(0) if len(members) else x.new_zeros(width))


def test_group_means_makes_no_full_matrix(meter, monkeypatch):
    monkeypatch.setattr(reference, "GROUP_ROWS", 50)
    points, labels = normal(5000, 2), torch.arange(5000) % 50
    with meter:
        group_means(points, labels, 50)
    assert meter.largest <= 50 * 50


# --- the switch ---------------------------------------------------------------------------------------------------


@pytest.fixture
def fresh_switch(monkeypatch):
    """No choice made yet, and no compiler installed."""
    monkeypatch.delenv("EANS_KERNELS", raising=False)
    monkeypatch.setattr(kernels, "_choice", None)
    monkeypatch.setattr(kernels, "_installed", lambda name: name == "reference")
    kernels._say_slow.cache_clear()


@pytest.mark.usefixtures("fresh_switch")
@pytest.mark.parametrize("name", ["auto", "reference"])
@pytest.mark.filterwarnings("ignore:numba is not installed")
def test_without_a_compiler_the_reference_runs(name):
    assert kernels.choose(name) == "auto"
    assert kernels.current() == name
    leaves, entities, _, _ = inputs("l1", (3, 4, 6, 5), 2, False)
    assert torch.equal(kernels.compare("l1", *leaves, entities), compare("l1", *leaves, entities))
    with torch.no_grad():
        queries, table = leaves[0][0], leaves[1]
        assert torch.equal(kernels.compare_all("l1", queries, table), compare_all("l1", queries, table))


@pytest.mark.usefixtures("fresh_switch")
def test_a_missing_compiler_is_told_once():
    arguments = "dot", normal(1, 1, 2), normal(1, 2), torch.zeros(1, 1, dtype=torch.int64)
    with pytest.warns(UserWarning, match="numba is not installed"):
        kernels.compare(*arguments)
    kernels.compare(*arguments)  # a second warning would be an error


def test_auto_takes_the_compiled_kernels(monkeypatch):
    monkeypatch.setattr(kernels, "_choice", "auto")
    assert kernels._implementation(torch.device("cpu")) == "numba"
    assert kernels._implementation(torch.device("meta")) == "reference"


@pytest.mark.parametrize("implementation", ["reference", "numba"])
def test_operations_are_where_the_switch_looks(implementation):
    for operation, home in kernels._HOMES[implementation].items():
        function = kernels._function(implementation, operation)
        assert function.__module__ == f"eans.kernels.{home}"
    assert set(kernels._HOMES[implementation]) <= set(kernels._HOMES["reference"]) >= set(kernels._HOMES["triton"])


@pytest.mark.usefixtures("fresh_switch")
def test_the_environment_chooses_until_the_program_does(monkeypatch):
    monkeypatch.setenv("EANS_KERNELS", "reference")
    assert kernels.current() == "reference"
    assert kernels.choose("auto") == "reference"
    assert kernels.current() == "auto"


@pytest.mark.usefixtures("fresh_switch")
def test_wrong_choices():
    with pytest.raises(UsageError, match=r"unknown kernels 'tritan'; did you mean 'triton'\?"):
        kernels.choose("tritan")
    assert kernels.current() == "auto"
    kernels.choose("triton")
    with pytest.raises(UsageError, match="triton is not installed"):
        kernels.compare("dot", normal(1, 1, 2), normal(1, 2), torch.zeros(1, 1, dtype=torch.int64))


def test_chosen_kernels_are_given_back_whatever_happens():
    def use():
        with kernels.chosen("reference"):
            assert kernels.current() == "reference"
            raise ZeroDivisionError

    before = kernels.current()
    with pytest.raises(ZeroDivisionError):
        use()
    assert kernels.current() == before
