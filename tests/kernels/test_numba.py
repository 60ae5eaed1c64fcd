"""The compiled CPU loops equal the reference, with the same bits for any number of threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("numba")

from kernel_cases import (
    Case,
    Shape,
    assert_equal_to_reference,
    assert_near,
    make_case,
    poison,
    results,
    two_threads,
    widened,
)

from eans.kernels import COMPARISONS, Comparison, numba_compare, numba_pairs, numba_threads, reference

kinds = pytest.mark.parametrize("kind", COMPARISONS)
with_shift = pytest.mark.parametrize("shifted", [False, True], ids=["plain", "shifted"])
types = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Two threads already for small shapes."""
    monkeypatch.setattr(numba_pairs, "MAPPED_BYTES", 1000)
    with two_threads(monkeypatch):
        yield


@pytest.fixture
def _poisoned_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    poison(monkeypatch)


def same_bits(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, second[name]) for name, value in first.items())


# --- values ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_poisoned_buffers")
@kinds
@with_shift
@types
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_scores_and_gradients(kind: Comparison, shifted: bool, dtype: torch.dtype, count: int) -> None:
    dim = 38 if kind == "modulus" else 37
    assert_equal_to_reference(numba_compare, kind, make_case(Shape(count, 3, 7, dim, 9), shifted, dtype))


@pytest.mark.usefixtures("_poisoned_buffers")
@kinds
@with_shift
@pytest.mark.parametrize(
    "shape",
    [
        Shape(1, 1, 1, 2, 1),
        Shape(2, 5, 1, 2, 4),
        Shape(1, 1, 6, 34, 3),
        Shape(1, 4, 3, 270, 5),
        Shape(2, 3, 4, 586, 5),
        Shape(2, 17, 33, 6, 3),
        Shape(2, 2, 3, 6, 5000),  # few pairs among many entities: sorted another way
        Shape(2, 40, 50, 6, 5000),
    ],
    ids=str,
)
def test_extents(kind: Comparison, shape: Shape, shifted: bool) -> None:
    assert_equal_to_reference(numba_compare, kind, make_case(shape, shifted))


@kinds
@with_shift
@pytest.mark.parametrize("shape", [Shape(2, 0, 3, 4, 5), Shape(2, 3, 0, 4, 5), Shape(0, 3, 2, 4, 5)], ids=str)
def test_nothing_to_compare(kind: Comparison, shape: Shape, shifted: bool) -> None:
    case = make_case(shape, shifted)
    found = results(numba_compare, kind, case)
    assert found["scores"].shape == case.outer.shape
    assert found["table"].shape == case.table.shape
    for name, value in found.items():
        assert not value.any(), name


@pytest.mark.usefixtures("_poisoned_buffers")
@kinds
def test_one_entity_drawn_everywhere(kind: Comparison) -> None:
    case = make_case(Shape(2, 4, 5, 10, 6), shifted=True)
    case = case._replace(entities=torch.full_like(case.entities, 3))
    assert_equal_to_reference(numba_compare, kind, case)
    gradient = results(numba_compare, kind, case)["table"]
    assert gradient[3].any()
    gradient[3] = 0
    assert not gradient.any()


@kinds
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
    assert_equal_to_reference(numba_compare, kind, scattered)


@kinds
def test_columns_in_the_middle_of_a_wider_table(kind: Comparison) -> None:
    case = make_case(Shape(2, 3, 5, 10, 6), shifted=False)
    wide = torch.cat([case.table, case.table, case.table], 1).requires_grad_()
    scores = numba_compare.compare(kind, case.queries, wide[:, 10:20], case.entities)
    (gradient,) = torch.autograd.grad(scores, wide, case.outer)
    expected = results(reference, kind, case)
    assert_near(scores.detach(), expected["scores"])
    assert_near(gradient[:, 10:20], expected["table"])
    assert not gradient[:, :10].any()
    assert not gradient[:, 20:].any()


@types
@pytest.mark.parametrize("kind", ["l1", "modulus"])
@with_shift
def test_query_on_its_candidate_has_no_slope(kind: Comparison, dtype: torch.dtype, shifted: bool) -> None:
    case = make_case(Shape(1, 2, 3, 12, 5), shifted, dtype)
    if case.scalars is not None:
        case.scalars.zero_()
    case.queries[0, 0] = case.table[case.entities[0, 1]]
    case.queries[0, 1, :6] = case.table[case.entities[1, 0], :6]  # one plane agrees, the other does not
    assert_equal_to_reference(numba_compare, kind, case)
    alone = case._replace(queries=case.table[case.entities[:, 0]][None])
    for name, value in results(
        numba_compare, kind, alone._replace(entities=case.entities[:, :1], outer=case.outer[..., :1])
    ).items():
        assert not value.any(), name  # all exactly 0, none NaN


@types
@pytest.mark.parametrize("size", [1e-18, 1e-19, 1e-21, 1e-30])
def test_slopes_of_tiny_moduli_are_finite(dtype: torch.dtype, size: float) -> None:
    """Squares of such float32 differences are subnormal or 0; a slope is at most 1."""
    case = make_case(Shape(1, 1, 1, 64, 3), shifted=False, dtype=dtype)
    case.table.zero_()
    case.queries.mul_(size)
    found = results(numba_compare, "modulus", case._replace(outer=torch.ones_like(case.outer)))
    for value in found.values():
        assert torch.isfinite(value).all()
        assert value.abs().max() <= 1.0001


@kinds
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_shows(kind: Comparison, bad: float) -> None:
    case = make_case(Shape(1, 3, 4, 40, 6), shifted=False, dtype=torch.float32)
    case.queries[0, 1, 7] = bad
    scores = numba_compare.compare(kind, case.queries, case.table, case.entities)
    assert not torch.isfinite(scores[0, 1]).any()
    assert torch.isfinite(scores[0, [0, 2]]).all()


# --- compare_all ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_poisoned_buffers")
@kinds
@with_shift
@types
@pytest.mark.parametrize("shape", [Shape(1, 5, 1, 38, 7), Shape(1, 1, 1, 2, 1), Shape(1, 9, 1, 70, 1001)], ids=str)
def test_compare_all(
    kind: Comparison, shifted: bool, dtype: torch.dtype, shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numba_compare, "TILE_BYTES", 2000)
    case = make_case(shape, shifted, dtype)
    shifts = None if case.shifts is None else case.shifts[0]
    scores = numba_compare.compare_all(kind, case.queries[0], case.table, shifts, case.scalars)
    wide = widened(case)
    wide_shifts = None if wide.shifts is None else wide.shifts[0]
    assert scores.dtype == dtype
    assert_near(scores, reference.compare_all(kind, wide.queries[0], wide.table, wide_shifts, wide.scalars))


# --- sorting, threads -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_entities", [6, 100, 2**15])
def test_pairs_by_entity(num_entities: int) -> None:
    entities = torch.tensor([[5, 0, num_entities - 1], [0, 5, 2]])
    pairs = numba_pairs.pairs_by_entity(entities, num_entities)
    ids, places = torch.sort(entities.reshape(-1), stable=True)
    assert pairs.place.tolist() == places.tolist()
    assert pairs.entity.tolist() == ids.tolist()
    assert pairs.positive.tolist() == (places // 3).tolist()


@types
@pytest.mark.parametrize("shape", [(3, 5), (40, 50), (0, 4)])
def test_zeros(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    found = numba_pairs.zeros(shape, dtype)
    assert torch.equal(found, torch.zeros(shape, dtype=dtype))
    assert found.dtype == dtype
    assert found.data_ptr() % 64 == 0 or not found.numel()
    assert not found._is_view()  # autograd would not add further gradients to a view, but fill a new table


@pytest.mark.parametrize(("size", "parts", "step"), [(0, 3, 1), (1, 4, 16), (50, 2, 16), (1000, 3, 16), (7, 7, 1)])
def test_cuts(size: int, parts: int, step: int) -> None:
    found = numba_threads.cuts(size, parts, step)
    assert len(found) <= parts
    assert [i for first, last in found for i in range(first, last)] == list(range(size))
    assert all(first % step == 0 for first, _ in found)


@kinds
@with_shift
@types
@pytest.mark.parametrize("dim", [90, 398, 770])
def test_same_bits_for_any_number_of_threads(kind: Comparison, shifted: bool, dtype: torch.dtype, dim: int) -> None:
    case = make_case(Shape(3, 20, 30, dim, 50), shifted, dtype)
    torch.set_num_threads(1)
    alone = results(numba_compare, kind, case)
    for threads in (1, 2, 3, 7):
        torch.set_num_threads(threads)
        assert same_bits(alone, results(numba_compare, kind, case)), threads


def test_two_python_threads_at_once() -> None:
    case = make_case(Shape(2, 40, 30, 150, 50), shifted=True, dtype=torch.float32)
    expected = results(numba_compare, "l1", case)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: results(numba_compare, "l1", case), range(40)))
    assert all(same_bits(expected, one) for one in found)


FORK = """
import os, warnings
import torch
from eans.kernels import numba_compare, numba_threads
numba_threads.SERIAL_BELOW = 1
torch.set_num_threads(2)
def work():
    queries = torch.ones(1, 8, 256)
    table = torch.zeros(5, 256, requires_grad=True)
    numba_compare.compare("l1", queries, table, torch.zeros(8, 3, dtype=torch.int64)).sum().backward()
    return table.grad.sum().item()
first = work()
warnings.simplefilter("ignore")  # of forking with threads
child = os.fork()
if child == 0:
    os._exit(0 if work() == first == 8 * 3 * 256 else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.skipif(torch.cuda.is_available(), reason="where there is a GPU, autograd refuses to run in a forked child")
def test_forked_child() -> None:
    assert subprocess.run([sys.executable, "-c", FORK], timeout=60, check=False).returncode == 0


def test_an_error_of_a_helper_is_raised() -> None:
    def fail(index: int) -> None:
        if index == 3:
            raise RuntimeError("third")

    with pytest.raises(RuntimeError, match="third"):
        numba_threads.share(fail, [(index,) for index in range(8)], 2)


def test_a_helper_that_comes_too_late_holds_nothing() -> None:
    """Otherwise a second block of scores would be made while the first one is still there."""
    pool, busy, begun = numba_threads._pool(1), threading.Event(), threading.Event()
    blocking = pool.submit(lambda: (begun.set(), busy.wait(60)))
    try:
        assert begun.wait(60)
        numbers = torch.zeros(3)
        held = weakref.ref(numbers)
        numba_threads.share(lambda index, numbers=numbers: numbers[index].add_(1), [(0,), (1,), (2,)], 2)
        assert numbers.tolist() == [1, 1, 1]
        del numbers
        assert held() is None
    finally:
        busy.set()
        blocking.result(60)


def test_nowhere_to_keep_what_was_compiled() -> None:
    """A function without a file has no place for a cache, like one in a folder that cannot be written."""
    space: dict[str, Any] = {}
    exec("def twice(x): return 2 * x", space)
    assert numba_threads.compiled(space["twice"])(3) == 6


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"queries": torch.zeros(1, 2, 6, dtype=torch.float16)}, TypeError),
        ({"table": torch.zeros(4, 6, dtype=torch.float64)}, TypeError),
        ({"entities": torch.zeros(2, 3, dtype=torch.int32)}, TypeError),
        ({"table": torch.zeros(4, 8)}, ValueError),
        ({"entities": torch.zeros(3, 3, dtype=torch.int64)}, ValueError),
        ({"scalars": torch.zeros(3), "shifts": torch.zeros(1, 2, 6)}, ValueError),
        ({"scalars": torch.zeros(4), "shifts": torch.zeros(1, 1, 6)}, ValueError),
        ({"entities": torch.full((2, 3), 4)}, IndexError),
        ({"entities": torch.full((2, 3), -1)}, IndexError),
    ],
)
def test_what_would_be_read_wrongly_is_refused(change: dict[str, Tensor], error: type[Exception]) -> None:
    arguments = {
        "queries": torch.zeros(1, 2, 6),
        "table": torch.zeros(4, 6),
        "entities": torch.zeros(2, 3, dtype=torch.int64),
    }
    numba_compare.compare("l1", **arguments)
    with pytest.raises(error):
        numba_compare.compare("l1", **(arguments | change))


def test_odd_complex_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="even number"):
        numba_compare.compare("modulus", torch.zeros(1, 2, 5), torch.zeros(4, 5), torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match="even number"):
        numba_compare.compare_all("modulus", torch.zeros(2, 5), torch.zeros(4, 5))
