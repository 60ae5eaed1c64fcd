"""`compare` of every implementation against the naive ``[B, N, D]`` computation, and what each promises besides."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch
from kernel_cases import (
    REFERENCE,
    Case,
    Implementation,
    Shape,
    assert_equal_to_reference,
    assert_near,
    compiled,
    kinds,
    make_case,
    normal,
    only_numba,
    only_reference,
    only_triton,
    results,
    types,
    with_shift,
)
from torch import Tensor

from eans.kernels import Comparison, blocks


def naive_rows(kind: str, query: Tensor, candidate: Tensor) -> Tensor:
    if kind == "dot":
        return torch.einsum("...d,...d->...", query, candidate)
    if kind == "l1":
        return -torch.where(query > candidate, query - candidate, candidate - query).sum(-1)
    half = query.shape[-1] // 2
    real = query[..., :half] - candidate[..., :half]
    imaginary = query[..., half:] - candidate[..., half:]
    return -(real**2 + imaginary**2).sqrt().sum(-1)


class Naive:
    """The definition without blocks or a backward pass of its own."""

    @staticmethod
    def compare(
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


def dims(kind: Comparison, dim: int) -> int:
    """An odd width where the kind allows it."""
    return dim if kind == "modulus" else dim - 1


# --- values and gradients ---------------------------------------------------------------------------------------------


@only_reference
@kinds
@with_shift
@pytest.mark.parametrize("shape", [Shape(1, 1, 1, 2, 3), Shape(2, 3, 5, 4, 7), Shape(3, 7, 3, 6, 4)], ids=str)
@pytest.mark.parametrize("elements", [1, 50, 1 << 30])
def test_the_definition(
    ops: Implementation, kind: Comparison, shape: Shape, shifted: bool, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(blocks.BLOCK_ELEMENTS, "cpu", elements)
    case = make_case(shape._replace(dim=dims(kind, shape.dim + 2)), shifted)
    expected = results(Naive, kind, case)
    for name, value in results(ops, kind, case).items():
        assert_near(value, expected[name], name)


@kinds
@with_shift
@types
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_scores_and_gradients(
    ops: Implementation, kind: Comparison, shifted: bool, dtype: torch.dtype, count: int
) -> None:
    assert_equal_to_reference(ops, kind, make_case(Shape(count, 3, 7, dims(kind, 18), 9), shifted, dtype))


@kinds
@with_shift
@pytest.mark.parametrize("shape", [Shape(1, 1, 1, 2, 1), Shape(2, 5, 1, 2, 4), Shape(1, 1, 6, 34, 3)], ids=str)
def test_small_extents(ops: Implementation, kind: Comparison, shape: Shape, shifted: bool) -> None:
    assert_equal_to_reference(ops, kind, make_case(shape, shifted))


@only_numba
@kinds
@with_shift
@pytest.mark.parametrize(
    "shape",
    [
        Shape(1, 4, 3, 270, 5),
        Shape(2, 3, 4, 586, 5),
        Shape(2, 17, 33, 6, 3),
        Shape(2, 2, 3, 6, 5000),  # few pairs among many entities: sorted another way
        Shape(2, 40, 50, 6, 5000),
    ],
    ids=str,
)
def test_large_extents(ops: Implementation, kind: Comparison, shape: Shape, shifted: bool) -> None:
    assert_equal_to_reference(ops, kind, make_case(shape, shifted))


@only_triton
@kinds
def test_more_candidates_than_one_warp_takes(ops: Implementation, kind: Comparison) -> None:
    many = import_module("eans.kernels.comparison.triton_queries").MANY
    assert_equal_to_reference(ops, kind, make_case(Shape(3, 2, many + 5, 6, 40), shifted=False))


@kinds
@with_shift
@pytest.mark.parametrize("shape", [Shape(2, 0, 3, 4, 5), Shape(2, 3, 0, 4, 5)], ids=str)
def test_nothing_to_compare(ops: Implementation, kind: Comparison, shape: Shape, shifted: bool) -> None:
    case = make_case(shape, shifted)
    found = results(ops, kind, case)
    assert found["scores"].shape == case.outer.shape
    assert found["table"].shape == case.table.shape
    for name, value in found.items():
        assert not value.any(), name


@only_numba
@kinds
def test_no_queries(ops: Implementation, kind: Comparison) -> None:
    found = results(ops, kind, make_case(Shape(0, 3, 2, 4, 5), shifted=False))
    assert found["scores"].shape == (0, 3, 2)
    assert not found["table"].any()


@kinds
def test_one_entity_drawn_everywhere(ops: Implementation, kind: Comparison) -> None:
    case = make_case(Shape(2, 4, 5, 10, 6), shifted=True)
    case = case._replace(entities=torch.full_like(case.entities, 3))
    assert_equal_to_reference(ops, kind, case)
    gradient = results(ops, kind, case)["table"]
    assert gradient[3].any()
    gradient[3] = 0
    assert not gradient.any()


@kinds
def test_arguments_need_not_be_contiguous(ops: Implementation, kind: Comparison) -> None:
    case = make_case(Shape(2, 3, 5, 10, 6), shifted=True)
    assert case.shifts is not None
    assert case.scalars is not None
    scattered = Case(
        case.queries.transpose(0, 2).contiguous().transpose(0, 2),
        case.table.T.contiguous().T,
        case.entities.T.contiguous().T,
        case.shifts.transpose(0, 1).contiguous().transpose(0, 1),
        torch.stack([case.scalars, case.scalars], dim=1)[:, 0],
        case.outer[:, :1, :1].expand_as(case.outer),
    )
    assert_equal_to_reference(ops, kind, scattered)


@kinds
def test_columns_in_the_middle_of_a_wider_table(ops: Implementation, kind: Comparison) -> None:
    case = make_case(Shape(2, 3, 5, 10, 6), shifted=False).to(ops.device)
    wide = torch.cat([case.table, case.table, case.table], 1).requires_grad_()
    scores = ops.compare(kind, case.queries, wide[:, 10:20], case.entities)
    (gradient,) = torch.autograd.grad(scores, wide, case.outer)
    expected = results(REFERENCE, kind, case.to("cpu"))
    assert_near(scores.detach(), expected["scores"])
    assert_near(gradient[:, 10:20], expected["table"])
    assert not gradient[:, :10].any()
    assert not gradient[:, 20:].any()


# --- special values -------------------------------------------------------------------------------------------------


@types
@pytest.mark.parametrize("kind", ["l1", "modulus"])
@with_shift
def test_query_on_its_candidate_has_no_slope(
    ops: Implementation, kind: Comparison, dtype: torch.dtype, shifted: bool
) -> None:
    """At the kink every slope between -1 and 1 is right; the kernels choose 0, never NaN."""
    case = make_case(Shape(1, 2, 3, 12, 5), shifted, dtype)
    if case.scalars is not None:
        case.scalars.zero_()
    case.queries[0, 0] = case.table[case.entities[0, 1]]
    case.queries[0, 1, :6] = case.table[case.entities[1, 0], :6]  # one plane agrees, the other does not
    assert_equal_to_reference(ops, kind, case)
    alone = case._replace(queries=case.table[case.entities[:, 0]][None])
    alone = alone._replace(entities=case.entities[:, :1], outer=case.outer[..., :1])
    for name, value in results(ops, kind, alone).items():
        assert not value.any(), name  # all exactly 0, none NaN


@only_reference
@pytest.mark.parametrize("kind", ["l1", "modulus"])
@pytest.mark.parametrize("value", [0.0, 1e-310, 5.0])
def test_zero_difference_has_zero_gradient(ops: Implementation, kind: Comparison, value: float) -> None:
    """Also between subnormal numbers."""
    table = torch.full((3, 4), value, dtype=torch.float64)
    queries = torch.full((1, 2, 4), value, dtype=torch.float64)
    case = Case(queries, table, torch.tensor([[0, 1], [2, 2]]), None, None, normal(1, 2, 2))
    for name, found in results(ops, kind, case).items():
        assert not found.any(), name


def test_half_zero_difference_of_moduli(ops: Implementation) -> None:
    """One coordinate at the kink, the other (3, 4) away: its slope is (3/5, 4/5)."""
    queries, table = torch.tensor([[[0.0, 3.0, 0.0, 4.0]]]).double(), torch.zeros(1, 4).double()
    case = Case(queries, table, torch.tensor([[0]]), None, None, torch.ones(1, 1, 1).double())
    found = results(ops, "modulus", case)
    assert found["scores"].item() == -5.0
    assert_near(found["queries"][0, 0], torch.tensor([0.0, -0.6, 0.0, -0.8], dtype=torch.float64))
    assert_near(found["table"][0], torch.tensor([0.0, 0.6, 0.0, 0.8], dtype=torch.float64))


@only_numba
@types
@pytest.mark.parametrize("size", [1e-18, 1e-19, 1e-21, 1e-30])
def test_slopes_of_tiny_moduli_are_finite(ops: Implementation, dtype: torch.dtype, size: float) -> None:
    """Squares of such float32 differences are subnormal or 0; a slope is at most 1."""
    case = make_case(Shape(1, 1, 1, 64, 3), shifted=False, dtype=dtype)
    case.table.zero_()
    case.queries.mul_(size)
    found = results(ops, "modulus", case._replace(outer=torch.ones_like(case.outer)))
    for value in found.values():
        assert torch.isfinite(value).all()
        assert value.abs().max() <= 1.0001


@kinds
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_shows(ops: Implementation, kind: Comparison, bad: float) -> None:
    case = make_case(Shape(1, 3, 4, 40, 6), shifted=False, dtype=torch.float32).to(ops.device)
    case.queries[0, 1, 7] = bad
    scores = ops.compare(kind, case.queries, case.table, case.entities)
    assert not torch.isfinite(scores[0, 1]).any()
    assert torch.isfinite(scores[0, [0, 2]]).all()


# --- repeatable, and small --------------------------------------------------------------------------------------------


@kinds
def test_same_bits_every_time(ops: Implementation, kind: Comparison) -> None:
    case = make_case(Shape(2, 4, 6, 10, 5), shifted=True, dtype=torch.float32)
    first, second = results(ops, kind, case), results(ops, kind, case)
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


@only_numba
@kinds
@with_shift
@types
@pytest.mark.parametrize("dim", [90, 398, 770])
def test_same_bits_for_any_number_of_threads(
    ops: Implementation, kind: Comparison, shifted: bool, dtype: torch.dtype, dim: int
) -> None:
    case = make_case(Shape(3, 20, 30, dim, 50), shifted, dtype)
    torch.set_num_threads(1)
    alone = results(ops, kind, case)
    for threads in (1, 2, 3, 7):
        torch.set_num_threads(threads)
        for name, value in results(ops, kind, case).items():
            assert torch.equal(value, alone[name]), (name, threads)


@only_triton
@with_shift
@pytest.mark.parametrize("negatives", [1, 7, 8])
@kinds
def test_scores_do_not_depend_on_the_order_of_the_work(
    ops: Implementation, kind: Comparison, negatives: int, shifted: bool
) -> None:
    case = make_case(Shape(3, 5, negatives, 18, 9), shifted).to(ops.device)
    forward = import_module("eans.kernels.comparison.triton").forward_scores
    given = import_module("eans.kernels.comparison.triton_arguments").Arguments(kind, *case[:-1], True)
    along, across = (forward(given, across=across) for across in (False, True))
    assert torch.equal(along, across)
    torch.testing.assert_close(across, REFERENCE.compare(*given))


@only_triton
def test_gradients_that_nobody_needs_are_skipped(ops: Implementation, monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case(Shape(1, 2, 3, 4, 5), shifted=False).to(ops.device)
    monkeypatch.setattr("eans.kernels.comparison.triton.candidate_gradients", None)
    queries = case.queries.detach().requires_grad_()
    ops.compare("l1", queries, case.table, case.entities).sum().backward()
    assert queries.grad is not None


@only_reference
@kinds
@with_shift
def test_never_holds_the_whole_batch(
    ops: Implementation, kind: Comparison, shifted: bool, meter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    shape = Shape(3, 64, 32, 64, 20)
    count, batch, negatives, dim, _ = shape
    block = 2 * negatives * dim
    monkeypatch.setitem(blocks.BLOCK_ELEMENTS, "cpu", block)
    case = make_case(shape, shifted)
    leaves = [value.requires_grad_() for value in (*case[:2], *case[3:5]) if value is not None]
    with meter:
        scores = ops.compare(kind, *case[:-1])
        forward = meter.largest
        torch.autograd.grad(scores.sum(), leaves)
    found = count * batch * max(negatives, dim)
    assert block <= meter.largest <= max(block, found) < batch * negatives * dim / 8
    assert forward <= max(block, count * batch * negatives)
    # All blocks of a step together, plus the results and gradients that must exist.
    assert meter.peak < 8 * (8 * block + 4 * found)


def test_meter_sees_the_naive_way(meter: Any) -> None:
    """The check above can fail."""
    case = make_case(Shape(1, 8, 4, 6, 5), shifted=False)
    with meter:
        Naive.compare("l1", *case[:-1])
    assert meter.largest >= 8 * 4 * 6


# --- errors ---------------------------------------------------------------------------------------------------------


@compiled
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"queries": torch.zeros(1, 2, 6, dtype=torch.float16), "table": torch.zeros(4, 6).half()}, TypeError),
        ({"table": torch.zeros(4, 6, dtype=torch.float64)}, TypeError),
    ],
)
def test_types_that_would_go_wrong(ops: Implementation, change: dict[str, Tensor], error: type[Exception]) -> None:
    raises(ops, change, error)


@only_numba
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"entities": torch.zeros(2, 3, dtype=torch.int32)}, TypeError),
        ({"table": torch.zeros(4, 8)}, ValueError),
        ({"entities": torch.zeros(3, 3, dtype=torch.int64)}, ValueError),
        ({"scalars": torch.zeros(3), "shifts": torch.zeros(1, 2, 6)}, ValueError),
        ({"scalars": torch.zeros(4), "shifts": torch.zeros(1, 1, 6)}, ValueError),
        ({"entities": torch.full((2, 3), 4)}, IndexError),
        ({"entities": torch.full((2, 3), -1)}, IndexError),
    ],
)
def test_what_would_be_read_wrongly(ops: Implementation, change: dict[str, Tensor], error: type[Exception]) -> None:
    raises(ops, change, error)


def raises(ops: Implementation, change: dict[str, Tensor], error: type[Exception]) -> None:
    plain = {
        "queries": torch.zeros(1, 2, 6),
        "table": torch.zeros(4, 6),
        "entities": torch.zeros(2, 3, dtype=torch.int64),
    }
    ops.compare("l1", **{name: ops.put(value) for name, value in plain.items()})
    with pytest.raises(error):
        ops.compare("l1", **{name: ops.put(value) for name, value in (plain | change).items()})


@compiled
def test_complex_rows_have_an_even_number_of_columns(ops: Implementation) -> None:
    queries, table = ops.put(torch.zeros(1, 2, 5)), ops.put(torch.zeros(4, 5))
    with pytest.raises(ValueError, match="even number"):
        ops.compare("modulus", queries, table, ops.put(torch.zeros(2, 3, dtype=torch.int64)))
    with pytest.raises(ValueError, match="even number"):
        ops.compare_all("modulus", queries[0], table)
