"""What the compiled loops share on a CPU: sorted ids and pairs, fresh tables, threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

pytest.importorskip("numba")

from kernel_cases import Implementation, Shape, make_case, prepared, results, types

from eans import kernels
from eans.kernels import numba_arrays, numba_threads
from eans.kernels.comparison.numba_pairs import pairs_by_entity
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve
from helpers_runs import ring_graph


@pytest.fixture(autouse=True)
def loops(monkeypatch: pytest.MonkeyPatch) -> Iterator[Implementation]:
    """Two threads already for small shapes."""
    with prepared("numba", monkeypatch) as found:
        yield found


# --- arrays -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ids", "size"), [([], 3), ([0], 1), ([3, 0, 3, 5], 6), ([1, 1, 1], 4)], ids=str)
def test_segments(ids: list[int], size: int) -> None:
    order, starts = numba_arrays.segments(torch.tensor(ids, dtype=torch.int64), size)
    found = [order[starts[v] : starts[v + 1]].tolist() for v in range(size)]
    assert found == [[place for place, one in enumerate(ids) if one == v] for v in range(size)]


@pytest.mark.parametrize("num_entities", [6, 100, 2**15])
def test_pairs_by_entity(num_entities: int) -> None:
    entities = torch.tensor([[5, 0, num_entities - 1], [0, 5, 2]])
    pairs = pairs_by_entity(entities, num_entities)
    ids, places = torch.sort(entities.reshape(-1), stable=True)
    assert pairs.place.tolist() == places.tolist()
    assert pairs.entity.tolist() == ids.tolist()
    assert pairs.positive.tolist() == (places // 3).tolist()


@types
@pytest.mark.parametrize("shape", [(3, 5), (40, 50), (0, 4)])
def test_zeros(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    found = numba_arrays.zeros(shape, dtype)
    assert torch.equal(found, torch.zeros(shape, dtype=dtype))
    assert found.dtype == dtype
    assert found.data_ptr() % 64 == 0 or not found.numel()
    assert not found._is_view()  # autograd would not add further gradients to a view, but fill a new table


# --- threads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "parts", "step"), [(0, 3, 1), (1, 4, 16), (50, 2, 16), (1000, 3, 16), (7, 7, 1)])
def test_cuts(size: int, parts: int, step: int) -> None:
    found = numba_threads.cuts(size, parts, step)
    assert len(found) <= parts
    assert [i for first, last in found for i in range(first, last)] == list(range(size))
    assert all(first % step == 0 for first, _ in found)


def test_two_python_threads_at_once(loops: Implementation) -> None:
    case = make_case(Shape(2, 40, 30, 150, 50), shifted=True, dtype=torch.float32)
    expected = results(loops, "l1", case)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: results(loops, "l1", case), range(40)))
    assert all(torch.equal(value, expected[name]) for one in found for name, value in one.items())


FORK = """
import os, warnings
import torch
from eans import kernels
from eans.kernels import numba_threads
kernels.choose("numba")
numba_threads.SERIAL_BELOW = 1
torch.set_num_threads(2)
def work():
    queries = torch.ones(1, 8, 256)
    table = torch.zeros(5, 256, requires_grad=True)
    kernels.compare("l1", queries, table, torch.zeros(8, 3, dtype=torch.int64)).sum().backward()
    return table.grad.sum().item()
first = work()
warnings.simplefilter("ignore")  # of forking with threads
child = os.fork()
if child == 0:
    os._exit(0 if work() == first == 8 * 3 * 256 else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.skipif(torch.cuda.is_available(), reason="where there is a GPU, autograd does not run in a forked child")
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
        values = torch.zeros(3)
        held = weakref.ref(values)
        numba_threads.share(lambda index, values=values: values[index].add_(1), [(0,), (1,), (2,)], 2)
        assert values.tolist() == [1, 1, 1]
        del values
        assert held() is None
    finally:
        busy.set()
        blocking.result(60)


def test_nowhere_to_keep_what_was_compiled() -> None:
    """A function without a file has no place for a cache, like one in a folder that cannot be written."""
    space: dict[str, Any] = {}
    exec("def twice(x): return 2 * x", space)
    assert numba_threads.compiled(space["twice"])(3) == 6


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
    overrides, elements = STEPS[recipe]
    graph = ring_graph(20)
    settings = ["model.dim=8", "train.batch_size=64", *overrides]
    trainer = build_trainer(resolve(load(recipe, settings), graph), graph)
    assert trainer.execution.operation_size == 64 * elements
    monkeypatch.setattr(numba_threads, "SHARED_FROM", 64 * 10)
    seen: list[int] = []
    plain = trainer.loss.forward
    monkeypatch.setattr(trainer.loss, "forward", lambda *a: (seen.append(torch.get_num_threads()), plain(*a))[1])
    trainer.step()
    assert seen == [1 if elements < 10 else 2]
    assert torch.get_num_threads() == 2
