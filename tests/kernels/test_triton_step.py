"""The Triton kernels of a whole step equal the reference: on a GPU if there is one, else in Triton's interpreter."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel is decorated: before the imports below

pytest.importorskip("triton")

from kernel_cases import ENTITIES, poison
from test_triton import _readable_loop_bounds, _small_tiles  # noqa: F401  (fixtures)

from eans import kernels
from eans.kernels import (
    COMPARISONS,
    Comparison,
    reference,
    reference_step,
    tensor_cores,
    triton_compare,
    triton_cubes,
    triton_loss,
    triton_sampling,
    triton_softmax,
    triton_sort,
    triton_tables,
    triton_update,
    triton_vectors,
)
from eans.kernels.pending import collect
from eans.kernels.triton_tiles import Tile
from eans.optimizer import OPTIMIZERS, Optimizer
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve
from eans.training import Trainer
from helpers_runs import ring_graph

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles along every axis already for small shapes; buffers that are not written hold NaN."""
    monkeypatch.setattr(triton_vectors, "COLUMNS", 8)
    monkeypatch.setattr(triton_tables, "PRODUCT_COLUMNS", 8)
    monkeypatch.setattr(triton_cubes, "COLUMNS", 8)
    monkeypatch.setattr(triton_tables, "CUBE_BLOCK", 16)
    monkeypatch.setattr(triton_tables, "CUBE_PROGRAMS", 3)
    monkeypatch.setattr(triton_sampling, "CANDIDATES", 4)
    monkeypatch.setattr(triton_softmax, "COLUMNS", 4)
    monkeypatch.setattr(triton_sampling, "OTHERS", 4)
    monkeypatch.setattr(triton_update, "PLAIN_TILE", Tile(2, 8, 1))
    monkeypatch.setattr(triton_update, "FEW_USES", 0)
    poison(monkeypatch)


def normal(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


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
    for inputs in ((normal(5, 38), normal(rows, 38, seed=1)), (normal(rows, 38), normal(5, 38, seed=1))):
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


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("negatives", [1, 9, 300])
def test_pick(negatives: int, dtype: torch.dtype) -> None:
    """Pools of several sizes, empty ones among them, the last one too; lots that round up to the size."""
    starts = torch.tensor([0, 3, 3, 4, 11, 11], device=DEVICE)
    ids = torch.arange(11, device=DEVICE, dtype=dtype).flip(0) % 5
    kept = torch.tensor([0, 1, 2, 3, 4, 4], device=DEVICE)
    lots = torch.rand(6, negatives, generator=torch.Generator().manual_seed(negatives)).to(DEVICE)
    lots[:, 0] = 1.0 - 2.0**-24
    found = triton_sampling.pick(ids, starts, kept, lots, 5)
    assert found.dtype == torch.int64
    assert torch.equal(found, reference_step.pick(ids, starts, kept, lots, 5))


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


@pytest.mark.parametrize(
    "shape", [(0, 4, 9), (1, 4, 9), (5, 4, 9), (1, 1, 9), (3, 1, 1), (2, 3, 40), (2, 0, 3)], ids=str
)
@pytest.mark.parametrize("known", [0, 1, 40, 42])  # of 42: in the end every entity answers every query
def test_redraw(shape: tuple[int, int, int], known: int) -> None:
    generator = torch.Generator().manual_seed(known)
    size, queries = 7, 6
    keys = torch.randperm(size * queries, generator=generator)[:known].sort().values.to(DEVICE)
    prefix = torch.tensor([0, 5, 3, 3], device=DEVICE)[: shape[1]]
    entities = torch.randint(size, shape[1:], generator=generator).to(DEVICE)
    others = torch.randint(size, shape, generator=generator).to(DEVICE)
    found = triton_sampling.redraw(keys, prefix, entities, others, size)
    for one, two in zip(found, reference_step.redraw(keys, prefix, entities, others, size), strict=True):
        assert one.dtype == two.dtype
        assert torch.equal(one, two)


# --- loss -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 0.75])  # a kernel gets its scalars in float32
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
            return function(positive, negative, other, known, weight, 2.0, temperature, 0.5, 0.125)

        return call

    assert_same(
        with_gradients(terms(triton_loss.loss_terms), *inputs),
        with_gradients(terms(reference_step.loss_terms), *inputs),
    )


def test_loss_of_slices() -> None:
    """Scores as `compare` leaves them: rows of one tensor, which is not contiguous here."""
    scores = normal(2, 4, 9)[:, :, 1:7]
    known = torch.zeros(4, 6, dtype=torch.bool, device=DEVICE)
    arguments = normal(4), scores[0], scores[1], known, torch.ones(4, device=DEVICE).double(), 1.0, 1.0, 1.0, 0.125
    assert_same([triton_loss.loss_terms(*arguments)], [reference_step.loss_terms(*arguments)])


def test_a_loss_that_is_not_finite_shows() -> None:
    negative = normal(4, 6)
    negative[2, 3] = float("nan")
    known = torch.zeros(4, 6, dtype=torch.bool, device=DEVICE)
    weight = torch.ones(4, device=DEVICE).double()
    assert triton_loss.loss_terms(normal(4), negative, None, known, weight, 1.0, 1.0, 0.0, 0.0)[1].isnan()


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("negatives", [1, 4, 11, 17])
def test_surprise(corrected: bool, negatives: int) -> None:
    batch = 6
    known = (normal(batch, negatives, seed=5) > 0.5).to(DEVICE)
    known[1] = True  # the positive alone
    known[2] = False
    proposal = normal(batch, negatives, seed=6) - 3.0 if corrected else None
    inputs = [normal(batch) * 5, normal(batch, negatives, seed=1) * 5]
    inputs[1][2, 0] = 800.0  # exp of it is not finite
    assert_same(
        with_gradients(lambda one, two: triton_softmax.surprise(one, two, known, proposal), *inputs),
        with_gradients(lambda one, two: reference_step.surprise(one, two, known, proposal), *inputs),
    )


@pytest.mark.parametrize("lead", [1.0, 6.0, 20.0, 40.0])
def test_surprise_of_positives_that_lead(lead: float) -> None:
    """The gradient of a positive whose loss is small keeps its digits: a difference of two near 1 would not."""
    known = torch.zeros(3, 6, dtype=torch.bool, device=DEVICE)
    inputs = [normal(3) + lead, normal(3, 6, seed=1)]
    single = [part.float() for part in inputs]
    found = with_gradients(lambda one, two: triton_softmax.surprise(one, two, known, None), *single)
    exact = with_gradients(
        lambda one, two: reference_step.surprise(one, two, known, None), *(part.double() for part in single)
    )
    torch.testing.assert_close(found[0].double(), exact[0], rtol=1e-5, atol=1e-6)
    pull = torch.softmax(torch.cat([single[0][:, None], single[1]], 1).double(), 1)[:, 1:].sum(1)
    outer = normal(3, seed=9).float().double()
    torch.testing.assert_close(found[1].double(), -outer * pull, rtol=1e-5, atol=0)


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 1, 11), (3, 2, 8), (4, 2, 21), (0, 2, 3), (2, 3, 4), (2, 2, 3, 2)])
def test_cubed_sizes(shape: tuple[int, ...]) -> None:
    inputs = normal(*shape)
    if inputs.numel():
        inputs.view(-1)[0] = 0.0
    assert_same(*(with_gradients(ops.cubed_sizes, inputs) for ops in (triton_cubes, reference_step)))
    turned = inputs.transpose(1, -1).contiguous().transpose(1, -1)  # other strides
    assert_same(*(with_gradients(ops.cubed_sizes, turned) for ops in (triton_cubes, reference_step)))


def test_surprise_of_padded_scores() -> None:
    """Scores as `products` leaves them, and a gradient as it wants it; a score that is not finite shows."""
    known = torch.zeros(4, 6, dtype=torch.bool, device=DEVICE)
    padded = normal(4, 9)
    scores = padded[:, :6].detach().requires_grad_()
    found = triton_softmax.surprise(normal(4, seed=1), scores, known, None)
    assert_same([found.detach()], [reference_step.surprise(normal(4, seed=1), padded[:, :6], known, None)])
    (gradient,) = torch.autograd.grad(found.sum(), scores)
    assert gradient.stride(0) % tensor_cores.ALIGNMENT == 0
    padded[2, 3] = float("nan")
    assert triton_softmax.surprise(normal(4), padded[:, :6], known, None).isnan().tolist() == [
        False,
        False,
        True,
        False,
    ]


def small_trainer(recipe: str, *overrides: str) -> Trainer:
    graph = ring_graph(13)
    small = ["model.dim=6", "train.steps=4", "train.batch_size=5", *overrides]
    return build_trainer(resolve(load(recipe, small), graph), graph, DEVICE)


@pytest.mark.parametrize("recipe", ["complex/all+n3", "distmult/all", "simple/all"])
def test_steps_with_all_entities(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Padded products, the softmax kernel and an update that finds the product's gradient waiting.

    Without rounded factors: a first step of Adagrad has the length of the learning rate, whatever the gradient's, and
    goes the other way where rounding turns the sign of a small one.
    """
    monkeypatch.setattr(tensor_cores, "rounded_factors", nullcontext)
    tables = []
    before = kernels.current()
    for name in ("reference", "triton"):
        kernels.choose(name)
        try:
            trainer = small_trainer(recipe)
            for _ in range(4):
                trainer.step()
        finally:
            kernels.choose(before)
        tables.append(trainer.model.state_dict())
    for name, table in tables[0].items():
        torch.testing.assert_close(tables[1][name], table, rtol=1e-4, atol=1e-4)


# --- rounded rows -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("kind", COMPARISONS)
def test_rounded_rows(kind: Comparison, rule: type[Optimizer]) -> None:
    """Scores and gradients of queries come from the rounded table, which follows each step; the rest does not."""
    table = nn.Parameter(normal(9, 22, seed=3).float())
    pending = collect(table)
    pending.rounded = table.detach().bfloat16()
    queries, outer = normal(3, 2, 22, seed=4).float(), normal(2, 2, 4, seed=5).float()

    def scores(ops: Any, rows: Tensor, wanted: Tensor) -> Tensor:
        found: Tensor = ops.compare(kind, wanted, rows, ENTITIES.to(DEVICE), None, None, True)
        return found

    found = with_gradients(lambda wanted: scores(triton_compare, table, wanted), queries)
    expected = with_gradients(lambda wanted: scores(reference, pending.rounded.float(), wanted), queries)
    assert_same(found, expected, 1e-5)
    pending.clear()

    (scores(triton_compare, table, queries) * outer).sum().backward()
    exact = nn.Parameter(table.detach().clone())
    (scores(reference, exact, queries) * outer).sum().backward()
    getattr(torch.optim, rule.__name__)([exact], lr=0.1).step()
    factors = table.new_empty(2)
    rate = torch.tensor(0.1, device=DEVICE)
    triton_update.advance(torch.zeros((), device=DEVICE), rate, rule.betas, factors)
    moments = None if rule.averages is None else torch.zeros_like(table), torch.zeros_like(table)
    with torch.no_grad():
        triton_update.update(table, *moments, factors, pending, None, rule.betas, rule.epsilon)
    torch.testing.assert_close(table.detach(), exact.detach(), rtol=1e-5, atol=1e-5)
    # The interpreter cuts off bits where a GPU rounds.
    torch.testing.assert_close(
        pending.rounded.float(), table.detach(), rtol=2**-7 if DEVICE == "cpu" else 2**-8, atol=0
    )


def test_steps_with_all_entities_and_rounded_factors() -> None:
    """The rounded copy follows the table, with zeros behind it, and a state that is loaded goes on to the same bits."""
    before = kernels.choose("triton")
    try:
        first, second = (small_trainer("complex/all+n3", "train.rows=bfloat16") for _ in range(2))
        for _ in range(2):
            first.step()
        second.load_state(*first.state())
        for trainer in (first, second):
            trainer.step()
            pending = trainer.optimizer.pending[0]
            assert pending is not None
            assert pending.rounded is not None
            assert len(pending.rounded) == 16
            assert not pending.rounded[13:].any()
            torch.testing.assert_close(pending.rounded[:13].float(), trainer.model.entity.detach(), rtol=2**-7, atol=0)
    finally:
        kernels.choose(before)
    if DEVICE == "cuda":  # the interpreter cuts off bits where a GPU, and PyTorch, round
        expected, _ = first.state()
        found, _ = second.state()
        assert [name for name in expected if not torch.equal(found[name], expected[name])] == []
