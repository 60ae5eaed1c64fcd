"""Every implementation's update of a table equals PyTorch's optimizers, whatever parts the gradient comes in."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import pytest
import torch
from kernel_cases import ENTITIES, IDS, PLAIN, Operations, Twins, let_interpreter_read_bounds, normal, poison
from torch import Tensor, nn

from eans.kernels import COMPARISONS, Comparison, UpdateKernels, reference_update
from eans.kernels.pending import collect, pending_of
from eans.optimizer import OPTIMIZERS, Adagrad, Adam, Optimizer

HAS_TRITON = find_spec("triton") is not None
if HAS_TRITON and not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when a kernel is decorated


class Implementation(NamedTuple):
    operations: Operations
    kernels: UpdateKernels
    rule: type[Optimizer]

    def twins(self, *arguments: Any, **options: Any) -> Twins:
        return Twins(self.operations, self.kernels, *arguments, rule=self.rule, **options)


def operations(compare: str, tables: str, device: str = "cpu") -> Operations:
    sums: Any = import_module(f"eans.kernels.{tables}")
    gather = import_module("eans.kernels.pending_tables").gather
    return Operations(import_module(f"eans.kernels.{compare}").compare, gather, sums.cubes, sums.half_products, device)


@pytest.fixture(params=OPTIMIZERS.values(), ids=OPTIMIZERS)
def rule(request: pytest.FixtureRequest) -> type[Optimizer]:
    found: type[Optimizer] = request.param
    return found


@pytest.fixture(params=["reference", "numba", "numba, few rows", "triton"])
def fast(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, rule: type[Optimizer]
) -> Iterator[Implementation]:
    """With several tiles, blocks and threads already for small tables; buffers that are not written hold NaN."""
    threads = torch.get_num_threads()
    if request.param == "reference":
        found = Implementation(PLAIN, reference_update, rule)
    elif request.param.startswith("numba"):
        pytest.importorskip("numba")
        if "few rows" in request.param:  # as in large tables: none of the gradient but the rows that are used
            monkeypatch.setattr("eans.kernels.numba_compare.FEW_ROWS", 1.0)
        monkeypatch.setattr("eans.kernels.numba_threads.SERIAL_BELOW", 1)
        monkeypatch.setattr("eans.kernels.numba_tables.CUBE_BLOCK", 16)
        torch.set_num_threads(2)
        found = Implementation(
            operations("numba_compare", "numba_tables"), import_module("eans.kernels.numba_update"), rule
        )
    else:
        if not HAS_TRITON:
            pytest.skip("Triton is not installed")
        tile = import_module("eans.kernels.triton_tiles").Tile
        for name, value in {
            "triton_tables.PRODUCT_COLUMNS": 8,
            "triton_tables.CUBE_BLOCK": 16,
            "triton_tables.CUBE_PROGRAMS": 3,
            "triton_update.PLAIN_TILE": tile(2, 8, 1),
            "triton_update.FEW_USES": 0,
        }.items():
            monkeypatch.setattr(f"eans.kernels.{name}", value)
        let_interpreter_read_bounds(monkeypatch)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        found = Implementation(
            operations("triton_compare", "triton_tables", device), import_module("eans.kernels.triton_update"), rule
        )
    poison(monkeypatch)
    yield found
    torch.set_num_threads(threads)


types = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def everything(width: int) -> Callable[[Operations, Tensor], Tensor]:
    """A loss with every part that a gradient of a table ``[9, 2 * width]`` can have."""
    queries, shifts, outer = normal(2, 2, width, seed=4), normal(2, 2, width, seed=5), normal(2, 2, 4, seed=6)
    rows = normal(2, 3, 2 * width, seed=7)

    def loss(ops: Operations, table: Tensor) -> Tensor:
        def put(numbers: Tensor) -> Tensor:
            return ops.put(numbers).to(table.dtype)

        gathered = ops.gather(table, ops.put(IDS))
        scalars = ops.half_products(table)
        scores = ops.compare("l1", put(queries), table[:, :width], ops.put(ENTITIES), put(shifts), scalars)
        total: Tensor = (scores * put(outer)).sum() + (gathered * put(rows)).sum() + 0.1 * ops.cubes(table)
        return total + table.square().sum()  # what no kernel knows of

    return loss


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("kind", COMPARISONS)
def test_candidates_and_rows(fast: Implementation, kind: Comparison, count: int, ordered: bool) -> None:
    twins = fast.twins(9, 22, ordered=ordered)
    queries = normal(count, 2, 22, seed=4)
    for seed in range(2):
        outer, rows = normal(min(count, 2), 2, 4, seed=seed), normal(2, 3, 22, seed=seed + 7)

        def loss(
            ops: Operations, table: Tensor, outer: Tensor = outer, rows: Tensor = rows, early: bool = seed == 0
        ) -> Tensor:
            gathered = ops.gather(table, ops.put(IDS)) if early else None
            scores = ops.compare(kind, ops.put(queries), table, ops.put(ENTITIES), None, None, True)
            if gathered is None:  # too late for what was planned at the comparison
                gathered = ops.gather(table, ops.put(IDS))
            total: Tensor = (scores * ops.put(outer)).sum() + (gathered * ops.put(rows)).sum()
            return total

        twins.step(loss)
        assert (twins.fast.grad is None) == fast.kernels.COLLECTS


@pytest.mark.parametrize("ordered", [False, True])
def test_plans_hold_unless_something_is_gathered_later(ordered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton sorts the uses of a table while the scores are computed; again only where that was too early."""
    if not HAS_TRITON:
        pytest.skip("Triton is not installed")
    let_interpreter_read_bounds(monkeypatch)
    module: Any = import_module("eans.kernels.triton_update")
    sorts: list[int] = []
    sort = module.sorted_ids
    monkeypatch.setattr(module, "sorted_ids", lambda ids, size: sorts.append(len(ids)) or sort(ids, size))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    ops = operations("triton_compare", "triton_tables", device)
    twins = Twins(ops, module, 9, 22, ordered)

    def loss(ops: Operations, table: Tensor, early: bool) -> Tensor:
        first = [ops.gather(table, ops.put(IDS))] if early else []
        scores = ops.compare("l1", ops.put(normal(1, 2, 22)), table, ops.put(ENTITIES), None, None, True)
        total: Tensor = scores.sum() + (first[0] if early else ops.gather(table, ops.put(IDS))).sum()
        return total

    for early in (True, False):
        sorts.clear()
        twins.step(lambda ops, table, early=early: loss(ops, table, early))  # type: ignore[misc]
        assert len(sorts) == (1 if early else 2)


@types
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("width", [1, 11, 150])
def test_everything_at_once(fast: Implementation, ordered: bool, width: int, dtype: torch.dtype) -> None:
    twins = fast.twins(9, 2 * width, ordered=ordered, dtype=dtype)
    for _ in range(2):
        twins.step(everything(width))
        assert twins.fast.grad is not None


def test_two_gathers_and_three_comparisons(fast: Implementation) -> None:
    queries, outer = normal(1, 2, 12, seed=4), normal(1, 2, 4, seed=6)

    def loss(ops: Operations, table: Tensor) -> Tensor:
        wanted, entities, ids = ops.put(queries), ops.put(ENTITIES), ops.put(IDS)
        first, second, third = (ops.compare(k, wanted, table, entities, None, None) for k in ("l1", "dot", "dot"))
        total: Tensor = ((first + second + third) * ops.put(outer)).sum()
        return total + ops.gather(table, ids).sum() + ops.gather(table, ids[0, :1]).square().sum()

    fast.twins(9, 12).step(loss)


def test_ids_that_are_a_column(fast: Implementation) -> None:
    """As relations are: a column of the triples."""
    triples = torch.tensor([[0, 5, 1], [2, 8, 3], [4, 5, 6]])
    fast.twins(9, 7).step(lambda ops, table: ops.gather(table, ops.put(triples)[:, 1]).square().sum())


@pytest.mark.parametrize("used", [True, False])
def test_rows_without_a_gradient_move_by_their_momentum_only(fast: Implementation, used: bool) -> None:
    twins = fast.twins(9, 12)
    twins.step(lambda ops, table: ops.gather(table, ops.put(IDS)).square().sum())
    before = twins.fast.detach().clone()
    twins.step(
        lambda ops, table: ops.gather(table, ops.put(IDS)[:, 1]).square().sum() if used else ops.cubes(table) * 0
    )
    assert (twins.fast[3] != before[3]).all() == (fast.rule is Adam)
    assert torch.equal(twins.fast[3], before[3]) == (fast.rule is Adagrad)
    assert torch.equal(twins.fast[4], before[4])


@pytest.mark.parametrize("compared", [False, True])
@pytest.mark.parametrize("rule", [Adagrad], ids=["adagrad"], indirect=True)
@pytest.mark.parametrize("fast", ["numba", "numba, few rows", "triton"], indirect=True)
def test_adagrad_leaves_unused_rows_alone(fast: Implementation, compared: bool) -> None:
    """A large table is touched only where it is used. (Plain PyTorch, and Adam, update every row.)"""
    twins = fast.twins(60, 12)
    used = sorted({*IDS.flatten().tolist(), *(ENTITIES.flatten().tolist() if compared else [])})
    unused = torch.ones(60, dtype=torch.bool)
    unused[used] = False
    before = twins.fast.detach().cpu()[unused]
    twins.squares[unused.to(twins.squares.device)] = float("nan")  # would spread if it were read

    def loss(ops: Operations, table: Tensor) -> Tensor:
        total = ops.gather(table, ops.put(IDS)).square().sum()
        if compared:
            total = total + ops.compare("l1", ops.put(normal(2, 2, 12)), table, ops.put(ENTITIES), None, None).sum()
        return total

    for _ in range(2):
        twins.step(loss)
    assert twins.fast.grad is None
    assert torch.equal(twins.fast.detach().cpu()[unused], before)
    assert twins.squares[used].isfinite().all()


def test_many_steps_and_a_lower_rate(fast: Implementation) -> None:
    """Rows come and go; the rate is read from its scalar at each step; the state is that of PyTorch's optimizer."""
    twins = fast.twins(9, 12)
    for step in range(60):
        ids, outer = torch.randint(9, (4,), generator=torch.Generator().manual_seed(step)), normal(4, 12, seed=step)
        if step == 40:
            twins.rate.fill_(0.02)
            twins.exact.param_groups[0]["lr"] = 0.02

        def loss(ops: Operations, table: Tensor, ids: Tensor = ids, outer: Tensor = outer) -> Tensor:
            total: Tensor = (ops.gather(table, ops.put(ids)) - ops.put(outer)).square().sum()
            return total

        twins.step(loss)
    exact = twins.exact.state[twins.plain]
    assert set(exact) == set(fast.rule.names())
    assert twins.count == exact["step"] == 60
    torch.testing.assert_close(twins.squares.cpu(), exact[fast.rule.squares])


@types
def test_same_bits_for_any_number_of_threads(
    rule: type[Optimizer], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    monkeypatch.setattr("eans.kernels.numba_threads.SERIAL_BELOW", 1)
    monkeypatch.setattr("eans.kernels.numba_tables.CUBE_BLOCK", 16)
    before = torch.get_num_threads()
    found = []
    for threads in (1, 2, 3, 7):
        torch.set_num_threads(threads)
        kernels = Implementation(
            operations("numba_compare", "numba_tables"), import_module("eans.kernels.numba_update"), rule
        )
        twins = kernels.twins(9, 74, dtype=dtype)
        for _ in range(3):
            twins.step(everything(37))
        found.append([twins.fast.detach(), twins.squares, *([] if twins.averages is None else [twins.averages])])
    torch.set_num_threads(before)
    for others in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], others, strict=True))


# --- collecting -----------------------------------------------------------------------------------------------------


def test_views_that_do_not_lead_are_left_to_autograd() -> None:
    table = nn.Parameter(normal(4, 6))
    collect(table)
    assert pending_of(table) is pending_of(table[:, :3]) is not None
    assert pending_of(table[:, 3:]) is None
    assert pending_of(table[1:]) is None
    assert pending_of(table[::2, :3]) is None
    assert pending_of(normal(4, 6)) is None


def test_tables_collect_for_their_optimizer_only(rule: type[Optimizer]) -> None:
    """Whoever uses a trained model with an optimizer of their own finds every gradient where PyTorch puts it."""
    table = nn.Parameter(normal(4, 6))
    optimizer = rule([table], torch.tensor(0.1))
    pending_on = pending_of(table)
    assert pending_on is None
    with optimizer.collecting():
        assert (pending_of(table) is not None) == optimizer.kernels.COLLECTS
    with pytest.raises(KeyError), optimizer.collecting():
        raise KeyError
    assert pending_of(table) is None
