"""The Triton kernels of a whole step equal the reference: on a GPU if there is one, else in Triton's interpreter."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel is decorated: before the imports below

pytest.importorskip("triton")

from kernel_cases import poison
from test_triton import _readable_loop_bounds, _small_tiles  # noqa: F401  (fixtures)

from eans.kernels import (
    COMPARISONS,
    Comparison,
    reference,
    reference_step,
    triton_compare,
    triton_loss,
    triton_sampling,
    triton_sort,
    triton_tables,
    triton_update,
    triton_vectors,
)
from eans.kernels.pending import collect, pending_of
from eans.kernels.triton_tiles import Tile

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles along every axis already for small shapes; buffers that are not written hold NaN."""
    monkeypatch.setattr(triton_vectors, "COLUMNS", 8)
    monkeypatch.setattr(triton_tables, "PRODUCT_COLUMNS", 8)
    monkeypatch.setattr(triton_tables, "CUBE_BLOCK", 16)
    monkeypatch.setattr(triton_tables, "CUBE_PROGRAMS", 3)
    monkeypatch.setattr(triton_sampling, "CANDIDATES", 4)
    monkeypatch.setattr(triton_sampling, "OTHERS", 4)
    monkeypatch.setattr(triton_update, "PLAIN_TILE", Tile(2, 8, 1))
    monkeypatch.setattr(triton_update, "FEW_USES", 0)
    poison(monkeypatch)


def normal(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def with_gradients(function: Callable[..., Tensor], *inputs: Tensor, seed: int = 9) -> list[Tensor]:
    """The result and the gradient of every input."""
    leaves = [value.detach().clone().requires_grad_() for value in inputs]
    result = function(*leaves)
    outer = normal(*result.shape, seed=seed).to(result.dtype)
    return [result.detach(), *torch.autograd.grad(result, leaves, outer)]


def assert_same(found: list[Tensor], expected: list[Tensor], tolerance: float = 1e-12) -> None:
    for one, two in zip(found, expected, strict=True):
        torch.testing.assert_close(one, two, rtol=tolerance, atol=tolerance)


# --- vectors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", COMPARISONS)
@pytest.mark.parametrize(("batch", "dim"), [(1, 2), (3, 10), (5, 38)])
def test_compare_rows(kind: Comparison, batch: int, dim: int) -> None:
    inputs = normal(batch, dim), normal(batch, dim, seed=1)
    assert_same(
        with_gradients(lambda q, r: triton_vectors.compare_rows(kind, q, r), *inputs),
        with_gradients(lambda q, r: reference.compare_rows(kind, q, r), *inputs),
    )


@pytest.mark.parametrize("conjugate", [False, True])
@pytest.mark.parametrize("rows", [5, 1])
def test_complex_product(conjugate: bool, rows: int) -> None:
    inputs = normal(5, 38), normal(rows, 38, seed=1)
    assert_same(
        with_gradients(lambda a, b: triton_vectors.complex_product(a, b, conjugate), *inputs),
        with_gradients(lambda a, b: reference_step.complex_product(a, b, conjugate), *inputs),
    )


@pytest.mark.parametrize("rows", [5, 1])
def test_project(rows: int) -> None:
    inputs = normal(5, 38), normal(rows, 19, seed=1)
    assert_same(
        with_gradients(triton_vectors.project, *inputs),
        with_gradients(reference_step.project, *inputs),
    )


# --- batches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize("column", [0, 2])
def test_take(rows: int, column: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same triples as the reference; along a line if one is given, equal ones in their order."""
    monkeypatch.setattr(triton_sort, "BLOCK", 4)
    monkeypatch.setattr(triton_sort, "OTHERS", 4)
    generator = torch.Generator().manual_seed(rows)
    triples = torch.randint(5, (20, 3), generator=generator).to(DEVICE)
    weights = normal(20)
    chosen = torch.randint(20, (rows,), generator=generator).to(DEVICE)
    plain = triton_sort.take(triples, weights, chosen, None, column)
    assert_same(list(plain), list(reference_step.take(triples, weights, chosen, None, column)))
    places = torch.tensor([3, 0, 4, 1, 2], device=DEVICE)
    ordered = triton_sort.take(triples, weights, chosen, places, column)
    order = torch.argsort(places[plain[0][:, column]], stable=True)
    assert_same(list(ordered), [plain[0][order], plain[1][order]])
    monkeypatch.setattr(triton_sort, "FEW", 0)
    assert_same(list(triton_sort.take(triples, weights, chosen, places, column)), list(plain))


# --- negatives ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reflect", [False, True])
@pytest.mark.parametrize("sigma", [0.4, 3.0, 500.0])
def test_step_along(reflect: bool, sigma: float) -> None:
    line = torch.randperm(11, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    start = torch.tensor([0, 10, 4], device=DEVICE)
    noise = normal(3, 9).float()
    found = triton_sampling.step_along(line, start, noise, sigma, reflect)
    assert torch.equal(found, reference_step.step_along(line, start, noise, sigma, reflect))


@pytest.mark.parametrize("repeats_from", [None, 0.0, 2.5, 100.0])
@pytest.mark.parametrize("known", [0, 1, 40])
def test_label(repeats_from: float | None, known: int) -> None:
    generator = torch.Generator().manual_seed(known)
    size, queries = 7, 6
    keys = torch.unique(torch.randint(size * queries, (known,), generator=generator)).to(DEVICE)
    prefix = torch.tensor([0, 5, 3, 3], device=DEVICE)
    entities = torch.randint(size, (4, 9), generator=generator).to(DEVICE)
    found = triton_sampling.label(keys, prefix, entities, size, repeats_from)
    expected = reference_step.label(keys, prefix, entities, size, repeats_from)
    assert torch.equal(found, expected)


# --- loss -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("substitution", [False, True])
@pytest.mark.parametrize("negatives", [1, 5, 8])
def test_loss_terms(temperature: float, substitution: bool, negatives: int) -> None:
    batch = 6
    known = (normal(batch, negatives, seed=5) > 0.5).to(DEVICE)
    known[1] = True  # nothing left to push down
    known[2] = False
    weight = normal(batch, seed=6).abs()
    inputs = [normal(batch) * 5, normal(batch, negatives, seed=1) * 5]
    if substitution:
        inputs.append(normal(batch, negatives, seed=2) * 5)

    def terms(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def call(positive: Tensor, negative: Tensor, other: Tensor | None = None) -> Tensor:
            return function(positive, negative, other, known, weight, 2.0, temperature, 0.5, 0.1)

        return call

    assert_same(
        with_gradients(terms(triton_loss.loss_terms), *inputs),
        with_gradients(terms(reference_step.loss_terms), *inputs),
    )


def test_loss_of_slices() -> None:
    """Scores as `compare` leaves them: rows of one tensor, which is not contiguous here."""
    scores = normal(2, 4, 9)[:, :, 1:7]
    known = torch.zeros(4, 6, dtype=torch.bool, device=DEVICE)
    arguments = normal(4), scores[0], scores[1], known, torch.ones(4, device=DEVICE).double(), 1.0, 1.0, 1.0, 0.1
    assert_same([triton_loss.loss_terms(*arguments)], [reference_step.loss_terms(*arguments)])


def test_a_loss_that_is_not_finite_shows() -> None:
    negative = normal(4, 6)
    negative[2, 3] = float("nan")
    known = torch.zeros(4, 6, dtype=torch.bool, device=DEVICE)
    weight = torch.ones(4, device=DEVICE).double()
    assert triton_loss.loss_terms(normal(4), negative, None, known, weight, 1.0, 1.0, 0.0, 0.0)[1].isnan()


# --- tables and optimizer -------------------------------------------------------------------------------------------


class Twins:
    """The same table twice: one collects parts and is updated by the kernel, the other is left to PyTorch."""

    def __init__(self, rows: int, columns: int, line: tuple[Tensor, Tensor] | None = None) -> None:
        start = normal(rows, columns, seed=3)
        self.fast, self.plain = nn.Parameter(start.clone()), nn.Parameter(start.clone())
        self.pending = collect(self.fast, line)
        self.rate = torch.tensor(0.1, dtype=torch.float64, device=DEVICE)
        self.adam = torch.optim.Adam([self.plain], lr=0.1)
        self.state = [torch.zeros_like(start), torch.zeros_like(start)]
        self.count = torch.zeros((), device=DEVICE)

    def step(self, loss: Callable[[Any, Tensor], Tensor]) -> None:
        """`loss` is called with the fast module of operations and its table, then with the reference."""
        self.fast.grad = self.plain.grad = None
        loss(FAST, self.fast).backward()
        loss(PLAIN, self.plain).backward()
        factors = self.fast.new_empty(2)
        triton_update.advance(self.count, self.rate, (0.9, 0.999), factors)
        with torch.no_grad():
            triton_update.update(self.fast, *self.state, factors, self.pending, self.fast.grad, (0.9, 0.999), 1e-8)
        self.pending.clear()
        self.adam.step()
        torch.testing.assert_close(self.fast.detach(), self.plain.detach(), rtol=1e-9, atol=1e-11)


class FAST:
    compare = staticmethod(triton_compare.compare)
    gather = staticmethod(triton_tables.gather)
    cubes = staticmethod(triton_tables.cubes)
    half_products = staticmethod(triton_tables.half_products)


class PLAIN:
    compare = staticmethod(reference.compare)
    gather = staticmethod(reference_step.gather)
    cubes = staticmethod(reference_step.cubes)
    half_products = staticmethod(reference_step.half_products)


IDS = torch.tensor([[3, 0, 3], [3, 8, 1]], device=DEVICE)
ENTITIES = torch.tensor([[3, 0, 2, 2], [8, 8, 3, 5]], device=DEVICE)
LINE = torch.tensor([4, 8, 0, 7, 3, 1, 6, 2, 5], device=DEVICE)


def line() -> tuple[Tensor, Tensor]:
    return LINE, torch.argsort(LINE)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("kind", COMPARISONS)
def test_update_with_candidates_and_rows(
    kind: Comparison, count: int, ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sorts: list[int] = []
    sort = triton_update.sorted_ids
    monkeypatch.setattr(triton_update, "sorted_ids", lambda ids, size: sorts.append(len(ids)) or sort(ids, size))
    twins = Twins(9, 22, line() if ordered else None)
    queries = normal(count, 2, 22, seed=4)
    for seed in range(2):
        outer, rows = normal(min(count, 2), 2, 4, seed=seed), normal(2, 3, 22, seed=seed + 7)

        def loss(ops: Any, table: Tensor, outer: Tensor = outer, rows: Tensor = rows, seed: int = seed) -> Tensor:
            early = seed == 0
            gathered = ops.gather(table, IDS) if early else None
            scores = ops.compare(kind, queries, table, ENTITIES, None, None, True)
            if gathered is None:  # too late for what was planned at the comparison
                gathered = ops.gather(table, IDS)
            total: Tensor = (scores * outer).sum() + (gathered * rows).sum()
            return total

        sorts.clear()
        twins.step(loss)
        assert twins.fast.grad is None
        assert len(sorts) == 1 + seed  # once ahead; again where the plan did not hold


@pytest.mark.parametrize("ordered", [False, True])
def test_update_with_everything_at_once(ordered: bool) -> None:
    twins = Twins(9, 22, line() if ordered else None)
    queries, shifts, outer = normal(2, 2, 11, seed=4), normal(2, 2, 11, seed=5), normal(2, 2, 4, seed=6)
    rows = normal(2, 3, 22, seed=7)

    def loss(ops: Any, table: Tensor) -> Tensor:
        gathered = ops.gather(table, IDS)
        scores = ops.compare("l1", queries, table[:, :11], ENTITIES, shifts, ops.half_products(table))
        total: Tensor = (scores * outer).sum() + (gathered * rows).sum() + 0.1 * ops.cubes(table)
        return total + table.square().sum()  # what no kernel knows of

    for _ in range(2):
        twins.step(loss)
        assert twins.fast.grad is not None


def test_update_with_two_gathers_and_two_comparisons() -> None:
    twins = Twins(9, 12)
    queries, outer = normal(1, 2, 12, seed=4), normal(1, 2, 4, seed=6)

    def loss(ops: Any, table: Tensor) -> Tensor:
        first, second = (ops.compare(kind, queries, table, ENTITIES, None, None) for kind in ("l1", "dot"))
        third = ops.compare("dot", queries, table, ENTITIES, None, None)
        total: Tensor = ((first + second + third) * outer).sum()
        return total + ops.gather(table, IDS).sum() + ops.gather(table, IDS[0, :1]).square().sum()

    twins.step(loss)


@pytest.mark.parametrize("kind", COMPARISONS)
def test_rounded_rows(kind: Comparison) -> None:
    """Scores and gradients of queries come from the rounded table, which follows each step; the rest does not."""
    table = nn.Parameter(normal(9, 22, seed=3).float())
    pending = collect(table)
    pending.rounded = table.detach().bfloat16()
    queries, outer = normal(3, 2, 22, seed=4).float(), normal(2, 2, 4, seed=5).float()

    def scores(ops: Any, rows: Tensor, wanted: Tensor) -> Tensor:
        found: Tensor = ops.compare(kind, wanted, rows, ENTITIES, None, None, True)
        return found

    found = with_gradients(lambda wanted: scores(FAST, table, wanted), queries)
    expected = with_gradients(lambda wanted: scores(PLAIN, pending.rounded.float(), wanted), queries)
    assert_same(found, expected, 1e-5)
    pending.clear()

    (scores(FAST, table, queries) * outer).sum().backward()
    exact = nn.Parameter(table.detach().clone())
    (scores(PLAIN, exact, queries) * outer).sum().backward()
    adam = torch.optim.Adam([exact], lr=0.1)
    adam.step()
    factors = table.new_empty(2)
    rate = torch.tensor(0.1, device=DEVICE)
    triton_update.advance(torch.zeros((), device=DEVICE), rate, (0.9, 0.999), factors)
    moments = torch.zeros_like(table), torch.zeros_like(table)
    with torch.no_grad():
        triton_update.update(table, *moments, factors, pending, None, (0.9, 0.999), 1e-8)
    torch.testing.assert_close(table.detach(), exact.detach(), rtol=1e-5, atol=1e-5)
    # The interpreter cuts off bits where a GPU rounds.
    torch.testing.assert_close(
        pending.rounded.float(), table.detach(), rtol=2**-7 if DEVICE == "cpu" else 2**-8, atol=0
    )


@pytest.mark.parametrize("used", [True, False])
def test_rows_without_a_gradient_move_by_their_momentum(used: bool) -> None:
    twins = Twins(9, 12)
    twins.step(lambda ops, table: ops.gather(table, IDS).square().sum())
    before = twins.fast.detach().clone()
    twins.step(lambda ops, table: ops.gather(table, IDS[:, 1]).square().sum() if used else ops.cubes(table) * 0)
    assert (twins.fast[3] != before[3]).all()
    assert torch.equal(twins.fast[4], before[4])


def test_views_that_do_not_lead_are_left_to_autograd() -> None:
    table = nn.Parameter(normal(4, 6))
    collect(table)
    assert pending_of(table) is pending_of(table[:, :3]) is not None
    assert pending_of(table[:, 3:]) is None
    assert pending_of(table[1:]) is None
    assert pending_of(table[::2, :3]) is None
    assert pending_of(normal(4, 6)) is None


def test_scores_without_gradients_leave_nothing_behind() -> None:
    """Between two steps a sampler or an inspection may score candidates; the next step must plan for its own."""
    twins = Twins(9, 12)
    pending = pending_of(twins.fast)
    assert pending is not None
    queries = normal(1, 2, 12, seed=4)
    with torch.no_grad():
        triton_compare.compare("dot", queries, twins.fast, ENTITIES)
        triton_tables.gather(twins.fast, IDS)
    assert pending.plan is None
    assert not pending.gathered
    triton_compare.compare("dot", queries, twins.fast, ENTITIES)
    assert pending.plan is not None
