"""Rows with rows, complex products, projections on a CPU, against the reference in float64: values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("numba")

from kernel_cases import assert_near, poison, two_threads

from eans import kernels
from eans.kernels import COMPARISONS, Comparison, numba_threads, numba_vectors, reference, reference_step
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve
from helpers_runs import ring_graph

Function = Callable[..., Tensor]
types = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
# Rows and columns: one of each, fewer and more than a vector register has, odd ones, none.
SHAPES = [(1, 2), (3, 10), (5, 38), (40, 66), (0, 4)]


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two threads already for small shapes, and buffers that hold NaN."""
    poison(monkeypatch)
    with two_threads(monkeypatch):
        yield


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def results(function: Function, *inputs: Tensor) -> list[Tensor]:
    """The result and the gradient of every input."""
    leaves = [value.detach().requires_grad_() for value in inputs]
    result = function(*leaves)
    outer = normal(*result.shape, seed=9, dtype=result.dtype)
    return [result.detach(), *torch.autograd.grad(result, leaves, outer)]


def assert_equal(function: Function, definition: Function, *inputs: Tensor) -> None:
    expected = results(definition, *(value.double() for value in inputs))
    for found, exact in zip(results(function, *inputs), expected, strict=True):
        assert found.dtype == inputs[0].dtype
        assert_near(found, exact)


def strided(rows: Tensor) -> Tensor:
    """The same rows, a few numbers apart."""
    return torch.cat([rows, torch.full((len(rows), 3), float("nan"), dtype=rows.dtype)], 1)[:, : rows.shape[1]]


OPERATIONS: dict[str, tuple[Function, Function]] = {
    **{
        f"compare {kind}": (
            lambda q, r, kind=kind: numba_vectors.compare_rows(kind, q, r),
            lambda q, r, kind=kind: reference.compare_rows(kind, q, r),
        )
        for kind in COMPARISONS
    },
    "product": (numba_vectors.complex_product, reference_step.complex_product),
    "conjugate product": (
        lambda a, b: numba_vectors.complex_product(a, b, True),
        lambda a, b: reference_step.complex_product(a, b, True),
    ),
    "project": (numba_vectors.project, reference_step.project),
}
operations = pytest.mark.parametrize("operation", OPERATIONS)


def inputs_of(operation: str, rows: int, columns: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    second = columns // 2 if operation == "project" else columns
    return normal(rows, columns, seed=1, dtype=dtype), normal(rows, second, seed=2, dtype=dtype)


@operations
@types
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_equals_the_reference(operation: str, dtype: torch.dtype, rows: int, columns: int) -> None:
    assert_equal(*OPERATIONS[operation], *inputs_of(operation, rows, columns, dtype))


@operations
def test_strided_rows(operation: str) -> None:
    first, second = inputs_of(operation, 7, 26)
    assert_equal(*OPERATIONS[operation], strided(first), strided(second))


@pytest.mark.parametrize("operation", ["product", "conjugate product", "project"])
def test_one_row_for_all(operation: str) -> None:
    first, second = inputs_of(operation, 7, 26)
    assert_equal(*OPERATIONS[operation], first, second[:1])
    if operation != "project":
        assert_equal(*OPERATIONS[operation], first[:1], second)


@pytest.mark.parametrize(
    ("operation", "columns"),
    [("product", (5, 5)), ("product", (6, 4)), ("project", (4, 6)), ("compare l1", (6, 4))],
)
def test_what_does_not_fit_is_refused(operation: str, columns: tuple[int, int]) -> None:
    """As the definition does: the loops, which check nothing, would read beyond the end of a row."""
    given = normal(3, columns[0]), normal(3, columns[1], seed=1)
    for function in OPERATIONS[operation]:
        with pytest.raises(RuntimeError, match=r"must match|non-singleton"):
            function(*given)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 12),
    half=st.integers(1, 40),
    operation=st.sampled_from(sorted(OPERATIONS)),
    seed=st.integers(0, 1000),
)
def test_any_size(rows: int, half: int, operation: str, seed: int) -> None:
    second = half if operation == "project" else 2 * half
    assert_equal(*OPERATIONS[operation], normal(rows, 2 * half, seed=seed), normal(rows, second, seed=seed + 1))


@pytest.mark.parametrize("kind", ["l1", "modulus"])
@types
def test_no_gradient_where_rows_are_equal(kind: Comparison, dtype: torch.dtype) -> None:
    rows = normal(4, 10, dtype=dtype)
    scores, *gradients = results(lambda q, r: numba_vectors.compare_rows(kind, q, r), rows, rows.clone())
    assert not scores.any()
    assert not any(gradient.any() for gradient in gradients)


@pytest.mark.parametrize("kind", COMPARISONS)
def test_not_a_number_is_told(kind: Comparison) -> None:
    """A run that diverged must not look sound."""
    query, row = normal(3, 8), normal(3, 8, seed=1)
    row[1, 5] = float("nan")
    assert numba_vectors.compare_rows(kind, query, row).isnan().tolist() == [False, True, False]


@operations
def test_other_shapes_and_types_are_left_to_pytorch(operation: str) -> None:
    function, definition = OPERATIONS[operation]
    first, second = inputs_of(operation, 6, 8)
    for shape in ((2, 3, -1), (6, 1, -1)):
        assert_equal(function, definition, first.reshape(*shape), second.reshape(*shape))
    assert torch.equal(function(first.half(), second.half()), definition(first.half(), second.half()))
    turned = first.T.contiguous().T
    assert_equal(function, definition, turned, second)


@operations
def test_same_bits_for_any_number_of_threads(operation: str) -> None:
    given = inputs_of(operation, 500, 770, torch.float32)
    several = results(OPERATIONS[operation][0], *given)
    torch.set_num_threads(1)
    assert all(map(torch.equal, several, results(OPERATIONS[operation][0], *given)))


# --- small operations -------------------------------------------------------------------------------------------------


def test_loops_keep_their_threads_where_pytorch_has_one() -> None:
    with numba_threads.small_operations(100):
        assert torch.get_num_threads() == 1
        assert numba_threads.threads_for(1000) == 2
        with numba_threads.small_operations(100):  # once more is the same
            assert numba_threads.threads_for(1000) == 2
        assert numba_threads.threads_for(1000) == 2
    assert torch.get_num_threads() == numba_threads.threads_for(1000) == 2


def test_large_operations_keep_their_threads() -> None:
    with numba_threads.small_operations(numba_threads.SHARED_FROM):
        assert torch.get_num_threads() == 2


def test_threads_come_back_after_an_error() -> None:
    def fail() -> None:
        with numba_threads.small_operations(100):
            raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        fail()
    assert torch.get_num_threads() == 2
    assert numba_threads._loop_threads.get() is None


def test_other_kernels_leave_threads_alone() -> None:
    before = kernels.choose("reference")
    try:
        with kernels.small_operations(torch.device("cpu"), 100):
            assert torch.get_num_threads() == 2
    finally:
        kernels.choose(before)


STEPS: dict[str, tuple[list[str], int]] = {
    "distmult/uniform": (["sampler.negatives=5"], 8),
    "distmult/all": ([], 20 * 8),
    "distmult/igan": (["sampler.pretrain_steps=0", "sampler.negatives=1"], 20),
    "distmult/stay-positive": ([], 20 * 8),
    "distmult/adv": (["loss.relation_weight=1", "sampler.negatives=5"], 4 * 8),
    "rescal/uniform": (["sampler.negatives=5"], 8 * 8),
}


@pytest.mark.parametrize("recipe", STEPS)
def test_steps_with_large_operations_keep_their_threads(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    overrides, numbers = STEPS[recipe]
    graph = ring_graph(20)
    settings = ["model.dim=8", "train.batch_size=64", *overrides]
    trainer = build_trainer(resolve(load(recipe, settings), graph), graph)
    assert trainer.operation_size == 64 * numbers
    monkeypatch.setattr(numba_threads, "SHARED_FROM", 64 * 10)
    seen: list[int] = []
    plain = trainer.loss.forward
    monkeypatch.setattr(trainer.loss, "forward", lambda *a: (seen.append(torch.get_num_threads()), plain(*a))[1])
    trainer.step()
    assert seen == [1 if numbers < 10 else 2]
    assert torch.get_num_threads() == 2
