"""The Triton kernels equal the reference: on a GPU if there is one, else in Triton's interpreter on the CPU."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel is decorated: before the imports below

pytest.importorskip("triton")

import kernel_cases
from kernel_cases import TOLERANCE, Case, Shape, assert_equal_to_reference, poison, results, widened

from eans.kernels import (
    COMPARISONS,
    Comparison,
    reference,
    triton_compare,
    triton_entity,
    triton_query,
    triton_rank,
    triton_sort,
)
from eans.kernels.triton_tiles import Tile

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def _readable_loop_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 3.6's interpreter reads loop bounds by ``int(array of one number)``, which NumPy 2.4 refuses."""
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patched)


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles along every axis already for small shapes, with one row or several at a time."""
    for kind, rows in zip(COMPARISONS, (1, 2, 4), strict=True):
        monkeypatch.setitem(triton_compare.FORWARD_TILES, kind, Tile(4, 8, 1))
        monkeypatch.setitem(triton_query.QUERY_TILES, kind, Tile(rows, 8, 1))
        monkeypatch.setitem(triton_entity.ENTITY_TILES, kind, Tile(rows, 8, 1))
    monkeypatch.setattr(triton_compare, "SHIFTED_TILE", Tile(2, 8, 1))
    monkeypatch.setattr(triton_query, "SHIFTED_QUERY_TILE", Tile(2, 8, 1))
    for kind in triton_rank.RANK_BLOCKS:
        monkeypatch.setitem(triton_rank.RANK_BLOCKS, kind, triton_rank.Block(2, 4, 8, 1))


@pytest.fixture
def _poisoned_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    poison(monkeypatch)


make_case = partial(kernel_cases.make_case, device=DEVICE)


@pytest.mark.usefixtures("_poisoned_buffers")
@pytest.mark.parametrize("shifted", [False, True], ids=["plain", "shifted"])
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("kind", COMPARISONS)
def test_scores_and_gradients(kind: Comparison, count: int, shifted: bool) -> None:
    dim = 18 if kind == "modulus" else 13
    assert_equal_to_reference(triton_compare, kind, make_case(Shape(count, 3, 7, dim, 9), shifted))


@pytest.mark.usefixtures("_poisoned_buffers")
@pytest.mark.parametrize("kind", COMPARISONS)
def test_float32(kind: Comparison) -> None:
    assert_equal_to_reference(triton_compare, kind, make_case(Shape(3, 2, 9, 22, 5), shifted=True, dtype=torch.float32))


@pytest.mark.usefixtures("_poisoned_buffers")
@pytest.mark.parametrize(
    "shape", [Shape(1, 1, 1, 2, 1), Shape(2, 5, 1, 2, 4), Shape(1, 1, 6, 34, 3), Shape(2, 3, 0, 4, 5)], ids=str
)
@pytest.mark.parametrize("kind", COMPARISONS)
def test_small_extents(kind: Comparison, shape: Shape) -> None:
    assert_equal_to_reference(triton_compare, kind, make_case(shape, shifted=False))


@pytest.mark.usefixtures("_poisoned_buffers")
@pytest.mark.parametrize("kind", COMPARISONS)
def test_more_candidates_than_one_warp_takes(kind: Comparison) -> None:
    shape = Shape(3, 2, triton_query.MANY + 5, 6, 40)
    assert_equal_to_reference(triton_compare, kind, make_case(shape, shifted=False))


@pytest.mark.usefixtures("_poisoned_buffers")
@pytest.mark.parametrize("kind", COMPARISONS)
def test_one_entity_drawn_everywhere(kind: Comparison) -> None:
    case = make_case(Shape(2, 4, 5, 10, 6), shifted=True)
    assert_equal_to_reference(triton_compare, kind, case._replace(entities=torch.full_like(case.entities, 3)))


@pytest.mark.parametrize("kind", COMPARISONS)
def test_more_queries_than_one_launch_takes(kind: Comparison) -> None:
    assert_equal_to_reference(triton_compare, kind, make_case(Shape(5, 2, 3, 6, 5), shifted=True))


@pytest.mark.parametrize("kind", COMPARISONS)
def test_arguments_need_not_be_contiguous(kind: Comparison) -> None:
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
    assert_equal_to_reference(triton_compare, kind, scattered)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", ["l1", "modulus"])
def test_query_on_its_candidate_has_no_slope(kind: Comparison, dtype: torch.dtype) -> None:
    case = make_case(Shape(1, 2, 3, 12, 5), shifted=False, dtype=dtype)
    case.queries[0, 0] = case.table[case.entities[0, 1]]
    case.queries[0, 1, :6] = case.table[case.entities[1, 0], :6]  # one plane agrees, the other does not
    assert_equal_to_reference(triton_compare, kind, case)
    alone = case._replace(queries=case.table[case.entities[:, :1]].mT.contiguous().mT.transpose(0, 1))
    found = results(triton_compare, kind, alone._replace(entities=case.entities[:, :1], outer=case.outer[..., :1]))
    for value in found.values():
        assert not value.any()  # all exactly 0, none NaN


@pytest.mark.usefixtures("_poisoned_buffers")
@pytest.mark.parametrize("shifted", [False, True], ids=["plain", "shifted"])
@pytest.mark.parametrize("negatives", [1, 7, 8])
@pytest.mark.parametrize("kind", COMPARISONS)
def test_scores_do_not_depend_on_the_order_of_the_work(kind: Comparison, negatives: int, shifted: bool) -> None:
    case = make_case(Shape(3, 5, negatives, 18, 9), shifted)
    arguments = (kind, case.queries, case.table, case.entities, case.shifts, case.scalars, True)
    along, across = (triton_compare.forward_scores(*arguments, across=across) for across in (False, True))
    assert torch.equal(along, across)
    torch.testing.assert_close(across, reference.compare(*arguments))


@pytest.mark.parametrize("kind", ["l1", "modulus"])
def test_same_bits_every_time(kind: Comparison) -> None:
    case = make_case(Shape(2, 4, 6, 10, 5), shifted=True, dtype=torch.float32)
    first, second = results(triton_compare, kind, case), results(triton_compare, kind, case)
    for name, value in first.items():
        assert torch.equal(value, second[name])


@pytest.mark.usefixtures("_poisoned_buffers")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shifted", [False, True], ids=["plain", "shifted"])
@pytest.mark.parametrize("kind", COMPARISONS)
def test_compare_all(kind: Comparison, shifted: bool, dtype: torch.dtype) -> None:
    case = make_case(Shape(1, 5, 1, 18 if kind == "modulus" else 13, 7), shifted, dtype)
    shifts = None if case.shifts is None else case.shifts[0]
    scores = triton_rank.compare_all(kind, case.queries[0], case.table, shifts, case.scalars)
    wide = widened(case)
    wide_shifts = None if wide.shifts is None else wide.shifts[0]
    expected = reference.compare_all(kind, wide.queries[0], wide.table, wide_shifts, wide.scalars)
    assert scores.shape == expected.shape
    assert scores.dtype == dtype
    error = torch.linalg.vector_norm(scores.double() - expected)
    assert error <= TOLERANCE[dtype] * torch.linalg.vector_norm(expected)


@pytest.mark.parametrize(("num_entities", "few"), [(6, 0), (2**15 - 1, 0), (2**15, 0), (6, 10), (50, 10)])
def test_sorted_ids(num_entities: int, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorted, and counted where there are few."""
    monkeypatch.setattr(triton_sort, "FEW", few)
    monkeypatch.setattr(triton_sort, "BLOCK", 4)
    monkeypatch.setattr(triton_sort, "OTHERS", 4)
    entities = torch.tensor([[5, 0, num_entities - 1], [0, 5, 2]], device=DEVICE)
    order, starts = triton_sort.sorted_ids(entities.reshape(-1), num_entities)
    assert starts[0] == 0
    assert starts[-1] == entities.numel()
    for entity in (0, 1, 2, 5, num_entities - 1):
        segment = order[starts[entity] : starts[entity + 1]]
        assert segment.tolist() == (entities.reshape(-1) == entity).nonzero()[:, 0].tolist()


def test_untouched_gradients_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case(Shape(1, 2, 3, 4, 5), shifted=False)
    monkeypatch.setattr(triton_compare, "entity_gradients", None)
    queries = case.queries.detach().requires_grad_()
    scores = triton_compare.compare("l1", queries, case.table, case.entities)
    scores.sum().backward()
    assert queries.grad is not None


@pytest.mark.parametrize(
    ("kind", "query_type", "table_type", "error"),
    [
        ("l1", torch.float16, torch.float16, TypeError),
        ("l1", torch.float64, torch.float32, TypeError),
        ("modulus", torch.float32, torch.float32, ValueError),
    ],
)
def test_what_would_go_wrong_is_refused(
    kind: Comparison, query_type: torch.dtype, table_type: torch.dtype, error: type[Exception]
) -> None:
    queries = torch.zeros(1, 2, 5, dtype=query_type, device=DEVICE)
    table = torch.zeros(4, 5, dtype=table_type, device=DEVICE)
    with pytest.raises(error):
        triton_compare.compare(kind, queries, table, torch.zeros(2, 3, dtype=torch.int64, device=DEVICE))
    with pytest.raises(error):
        triton_rank.compare_all(kind, queries[0], table)
