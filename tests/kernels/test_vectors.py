"""Rows with rows, complex products and projections in every implementation: values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_cases import (
    REFERENCE,
    Implementation,
    assert_defined,
    kinds,
    normal,
    only_numba,
    only_reference,
    same_bits,
    strided,
    types,
    with_gradients,
)
from test_comparison import naive_rows
from torch import Tensor

from eans.kernels import COMPARISONS, Comparison
from eans.kernels.vectors.reference import modulus

Function = Callable[..., Tensor]
# Rows and columns: one of each, fewer and more than a vector register has, odd ones, none.
SHAPES = [(1, 2), (3, 10), (5, 38), (40, 66), (0, 4)]


def function_of(ops: object, operation: str) -> Function:
    """Of two matrices."""
    if operation in COMPARISONS:
        return partial(ops.compare_rows, operation)  # type: ignore[attr-defined]
    if operation == "conjugate product":
        return partial(ops.complex_product, conjugate_right=True)  # type: ignore[attr-defined]
    found: Function = getattr(ops, {"product": "complex_product"}.get(operation, operation))
    return found


OPERATIONS = [*COMPARISONS, "product", "conjugate product", "project"]
operations = pytest.mark.parametrize("operation", OPERATIONS)


def inputs_of(operation: str, rows: int, columns: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    second = columns // 2 if operation == "project" else columns
    return normal(rows, columns, seed=1, dtype=dtype), normal(rows, second, seed=2, dtype=dtype)


def assert_equal(ops: Implementation, operation: str, *inputs: Tensor) -> None:
    function, definition = function_of(ops, operation), function_of(REFERENCE, operation)
    assert_defined(function, definition, *inputs, device=ops.device)


# --- the definitions --------------------------------------------------------------------------------------------------


@only_reference
@kinds
def test_compare_rows_broadcasts(ops: Implementation, kind: Comparison) -> None:
    query, candidate = normal(3, 1, 6), normal(4, 6, seed=1)
    scores = ops.compare_rows(kind, query, candidate)
    assert scores.shape == (3, 4)
    for i in range(3):
        for j in range(4):
            torch.testing.assert_close(scores[i, j], naive_rows(kind, query[i, 0], candidate[j]))


def test_complex_products_are_those_of_pytorch(ops: Implementation) -> None:
    left, right = normal(3, 8), normal(3, 8, seed=1)
    a, b = (torch.complex(part[:, :4], part[:, 4:]) for part in (left, right))
    for conjugate, exact in ((False, a * b), (True, a * b.conj())):
        found = ops.complex_product(ops.put(left), ops.put(right), conjugate).cpu()
        torch.testing.assert_close(found, torch.cat([exact.real, exact.imag], 1))


def test_modulus() -> None:
    vectors = torch.tensor([[3.0, 0.0, 1.0, 4.0, 0.0, 0.0]], requires_grad=True)
    norms = modulus(vectors)
    norms.sum().backward()
    assert norms.tolist() == [[5.0, 0.0, 1.0]]
    torch.testing.assert_close(vectors.grad, torch.tensor([[0.6, 0.0, 1.0, 0.8, 0.0, 0.0]]))
    assert modulus(normal(2, 3, 8)).shape == (2, 3, 4)


# --- all implementations ----------------------------------------------------------------------------------------------


@operations
@types
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_equals_the_reference(ops: Implementation, operation: str, dtype: torch.dtype, rows: int, columns: int) -> None:
    if ops.name == "triton" and not rows:
        pytest.skip("a batch has rows")
    assert_equal(ops, operation, *inputs_of(operation, rows, columns, dtype))


@operations
def test_strided_rows(ops: Implementation, operation: str) -> None:
    first, second = inputs_of(operation, 7, 26)
    assert_equal(ops, operation, strided(first), strided(second))


@pytest.mark.parametrize("operation", ["product", "conjugate product", "project"])
def test_one_row_for_all(ops: Implementation, operation: str) -> None:
    first, second = inputs_of(operation, 7, 26)
    assert_equal(ops, operation, first, second[:1])
    if operation != "project":
        assert_equal(ops, operation, first[:1], second)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(1, 12),
    half=st.integers(1, 40),
    operation=st.sampled_from(sorted(OPERATIONS)),
    seed=st.integers(0, 1000),
)
def test_any_size(ops: Implementation, rows: int, half: int, operation: str, seed: int) -> None:
    second = half if operation == "project" else 2 * half
    assert_equal(ops, operation, normal(rows, 2 * half, seed=seed), normal(rows, second, seed=seed + 1))


@pytest.mark.parametrize("kind", ["l1", "modulus"])
@types
def test_no_gradient_where_rows_are_equal(ops: Implementation, kind: Comparison, dtype: torch.dtype) -> None:
    rows = ops.put(normal(4, 10, dtype=dtype))
    scores, *gradients = with_gradients(function_of(ops, kind), rows, rows.clone())
    assert not scores.any()
    assert not any(gradient.any() for gradient in gradients)


@kinds
def test_not_a_number_is_told(ops: Implementation, kind: Comparison) -> None:
    """A run that diverged must not seem sound."""
    query, row = normal(3, 8), normal(3, 8, seed=1)
    row[1, 5] = float("nan")
    assert ops.compare_rows(kind, ops.put(query), ops.put(row)).isnan().tolist() == [False, True, False]


@operations
def test_other_shapes_are_left_to_pytorch(ops: Implementation, operation: str) -> None:
    first, second = inputs_of(operation, 6, 8)
    for shape in ((2, 3, -1), (6, 1, -1)):
        assert_equal(ops, operation, first.reshape(*shape), second.reshape(*shape))
    assert_equal(ops, operation, first.T.contiguous().T, second)


# --- loops on a CPU ---------------------------------------------------------------------------------------------------


@only_numba
@operations
def test_other_types_are_left_to_pytorch(ops: Implementation, operation: str) -> None:
    halved = [part.half() for part in inputs_of(operation, 6, 8)]
    assert torch.equal(function_of(ops, operation)(*halved), function_of(REFERENCE, operation)(*halved))


@only_numba
@pytest.mark.parametrize(
    ("operation", "columns"),
    [("product", (5, 5)), ("product", (6, 4)), ("project", (4, 6)), ("l1", (6, 4))],
)
def test_what_does_not_fit(ops: Implementation, operation: str, columns: tuple[int, int]) -> None:
    """As for the definition: the loops, which check nothing, would read beyond the end of a row."""
    given = normal(3, columns[0]), normal(3, columns[1], seed=1)
    for one in (ops, REFERENCE):
        with pytest.raises(RuntimeError, match=r"must match|non-singleton"):
            function_of(one, operation)(*given)


@only_numba
@operations
def test_same_bits_for_any_number_of_threads(ops: Implementation, operation: str) -> None:
    given = inputs_of(operation, 500, 770, torch.float32)
    several = with_gradients(function_of(ops, operation), *given)
    torch.set_num_threads(1)
    assert same_bits(several, with_gradients(function_of(ops, operation), *given))
