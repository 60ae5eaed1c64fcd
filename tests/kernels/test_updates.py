"""Every implementation's update of a table equals PyTorch's optimizers, whatever parts the gradient comes in."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch
from kernel_cases import REFERENCE, Implementation, deferring, kinds, only_numba, only_triton, types, with_gradients
from kernel_cases import normal as plain_normal
from torch import Tensor, nn

from eans import kernels
from eans.kernels import Comparison, UpdateKernels
from eans.kernels.deferred_gradients import deferred_for
from eans.optimizer import Adagrad, Adam, Optimizer

IDS = torch.tensor([[3, 0, 3], [3, 8, 1]])
ENTITIES = torch.tensor([[3, 0, 2, 2], [8, 8, 3, 5]])
LINE = torch.tensor([4, 8, 0, 7, 3, 1, 6, 2, 5])
TWIN_TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-9}
PLAIN = Implementation(name="reference", device="cpu", **vars(REFERENCE))


def normal(*size: int, seed: int = 0) -> Tensor:
    return plain_normal(*size, seed=seed)


def kernels_of(ops: Implementation) -> UpdateKernels:
    module: Any = import_module(f"eans.kernels.updates.{ops.name}")
    return module  # type: ignore[no-any-return]


@pytest.fixture(params=[Adam, Adagrad], ids=["adam", "adagrad"])
def rule(request: pytest.FixtureRequest) -> type[Optimizer]:
    found: type[Optimizer] = request.param
    return found


@pytest.fixture(params=[False, True], ids=["", "few rows"])
def _few_rows(request: pytest.FixtureRequest, ops: Implementation, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in large tables: a comparison keeps none of the gradient but the rows that are used."""
    if request.param and ops.name != "numba":
        pytest.skip("Numba's way")
    if request.param:
        monkeypatch.setattr("eans.kernels.comparison.numba.FEW_ROWS", 1.0)


few_rows = pytest.mark.usefixtures("_few_rows")


class Twins:
    """The same table twice: one is updated by a kernel, which may collect parts, the other by PyTorch's optimizer."""

    def __init__(
        self,
        ops: Implementation,
        rule: type[Optimizer],
        rows: int,
        columns: int,
        ordered: bool = False,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        start = normal(rows, columns, seed=3)
        self.ops, self.rule, self.kernels = ops, rule, kernels_of(ops)
        self.fast, self.plain = nn.Parameter(ops.put(start).to(dtype)), nn.Parameter(start.clone())
        line = (ops.put(LINE), ops.put(torch.argsort(LINE))) if ordered else None
        self.deferred = deferred_for(self.fast, line) if self.kernels.COLLECTS else None
        self.rate = ops.put(torch.tensor(0.1, dtype=torch.float64))
        self.exact = getattr(torch.optim, rule.__name__)([self.plain], lr=0.1)
        self.averages = None if rule.averages is None else torch.zeros_like(self.fast)
        self.squares = torch.zeros_like(self.fast)
        self.count = ops.put(torch.zeros(()))

    def step(self, loss: Callable[[Implementation, Tensor], Tensor]) -> None:
        """`loss` is called with the operations and their table, then with the reference."""
        self.fast.grad = self.plain.grad = None
        loss(deferring(self.ops, self.deferred), self.fast).backward()
        loss(PLAIN, self.plain).backward()
        factors = self.fast.new_empty(2)
        rule = self.rule
        self.kernels.advance(self.count, self.rate, rule.betas, factors)
        moments = self.averages, self.squares
        with torch.no_grad():
            self.kernels.update(self.fast, *moments, factors, self.deferred, self.fast.grad, rule.betas, rule.epsilon)
        if self.deferred is not None:
            self.deferred.clear()
        self.exact.step()
        tolerance = TWIN_TOLERANCE[self.fast.dtype]
        torch.testing.assert_close(
            self.fast.detach().cpu().double(), self.plain.detach(), rtol=tolerance, atol=tolerance / 100
        )


def all_parts(width: int) -> Callable[[Implementation, Tensor], Tensor]:
    """A loss with every part that a gradient of a table ``[9, 2 * width]`` can have."""
    queries, shifts, outer = normal(2, 2, width, seed=4), normal(2, 2, width, seed=5), normal(2, 2, 4, seed=6)
    rows = normal(2, 3, 2 * width, seed=7)

    def loss(ops: Implementation, table: Tensor) -> Tensor:
        def put(values: Tensor) -> Tensor:
            return ops.put(values).to(table.dtype)

        gathered = ops.gather(table, ops.put(IDS))
        scalars = ops.half_products(table)
        scores = ops.compare("l1", put(queries), table[:, :width], ops.put(ENTITIES), put(shifts), scalars)
        total: Tensor = (scores * put(outer)).sum() + (gathered * put(rows)).sum() + 0.1 * ops.sum_abs_cubed(table)
        return total + table.square().sum()  # what no kernel knows of

    return loss


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("count", [1, 3])
@kinds
@few_rows
def test_candidates_and_rows(
    ops: Implementation, rule: type[Optimizer], kind: Comparison, count: int, ordered: bool
) -> None:
    twins = Twins(ops, rule, 9, 22, ordered=ordered)
    queries = normal(count, 2, 22, seed=4)
    for seed in range(2):
        outer, rows = normal(min(count, 2), 2, 4, seed=seed), normal(2, 3, 22, seed=seed + 7)

        def loss(
            ops: Implementation, table: Tensor, outer: Tensor = outer, rows: Tensor = rows, early: bool = seed == 0
        ) -> Tensor:
            gathered = ops.gather(table, ops.put(IDS)) if early else None
            scores = ops.compare(kind, ops.put(queries), table, ops.put(ENTITIES), None, None, True)
            if gathered is None:  # too late for what was planned at the comparison
                gathered = ops.gather(table, ops.put(IDS))
            total: Tensor = (scores * ops.put(outer)).sum() + (gathered * ops.put(rows)).sum()
            return total

        twins.step(loss)
        assert (twins.fast.grad is None) == twins.kernels.COLLECTS


@only_triton
@pytest.mark.parametrize("ordered", [False, True])
def test_plans_hold_unless_something_is_gathered_later(
    ops: Implementation, ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton sorts the uses of a table while the scores are computed; again only where that was too early."""
    module: Any = import_module("eans.kernels.triton_sort")
    sorts: list[int] = []
    sort = module.sorted_ids
    monkeypatch.setattr(module, "sorted_ids", lambda ids, size: sorts.append(len(ids)) or sort(ids, size))
    twins = Twins(ops, Adam, 9, 22, ordered)

    def loss(ops: Implementation, table: Tensor, early: bool) -> Tensor:
        first = [ops.gather(table, ops.put(IDS))] if early else []
        scores = ops.compare("l1", ops.put(normal(1, 2, 22)), table, ops.put(ENTITIES), None, None, True)
        total: Tensor = scores.sum() + (first[0] if early else ops.gather(table, ops.put(IDS))).sum()
        return total

    for early in (True, False):
        sorts.clear()
        twins.step(lambda ops, table, early=early: loss(ops, table, early))  # type: ignore[misc]
        assert len(sorts) == (1 if early else 2)


@types
@few_rows
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("width", [1, 11, 150])
def test_all_parts_at_once(
    ops: Implementation, rule: type[Optimizer], ordered: bool, width: int, dtype: torch.dtype
) -> None:
    twins = Twins(ops, rule, 9, 2 * width, ordered=ordered, dtype=dtype)
    for _ in range(2):
        twins.step(all_parts(width))
        assert twins.fast.grad is not None


@few_rows
def test_two_gathers_and_three_comparisons(ops: Implementation, rule: type[Optimizer]) -> None:
    queries, outer = normal(1, 2, 12, seed=4), normal(1, 2, 4, seed=6)

    def loss(ops: Implementation, table: Tensor) -> Tensor:
        wanted, entities, ids = ops.put(queries), ops.put(ENTITIES), ops.put(IDS)
        first, second, third = (ops.compare(k, wanted, table, entities, None, None) for k in ("l1", "dot", "dot"))
        total: Tensor = ((first + second + third) * ops.put(outer)).sum()
        return total + ops.gather(table, ids).sum() + ops.gather(table, ids[0, :1]).square().sum()

    Twins(ops, rule, 9, 12).step(loss)


def test_ids_that_are_a_column(ops: Implementation, rule: type[Optimizer]) -> None:
    """As relations are: a column of the triples."""
    triples = torch.tensor([[0, 5, 1], [2, 8, 3], [4, 5, 6]])
    Twins(ops, rule, 9, 7).step(lambda ops, table: ops.gather(table, ops.put(triples)[:, 1]).square().sum())


@pytest.mark.parametrize("used", [True, False])
def test_rows_without_a_gradient_move_by_their_momentum_only(
    ops: Implementation, rule: type[Optimizer], used: bool
) -> None:
    twins = Twins(ops, rule, 9, 12)
    twins.step(lambda ops, table: ops.gather(table, ops.put(IDS)).square().sum())
    before = twins.fast.detach().clone()
    twins.step(
        lambda ops, table: (
            ops.gather(table, ops.put(IDS)[:, 1]).square().sum() if used else ops.sum_abs_cubed(table) * 0
        )
    )
    assert (twins.fast[3] != before[3]).all() == (rule is Adam)
    assert torch.equal(twins.fast[3], before[3]) == (rule is Adagrad)
    assert torch.equal(twins.fast[4], before[4])


@pytest.mark.parametrize("compared", [False, True])
@pytest.mark.parametrize("rule", [Adagrad], ids=["adagrad"], indirect=True)
@pytest.mark.parametrize("ops", ["numba", "triton"], indirect=True)
@few_rows
def test_adagrad_leaves_unused_rows_alone(ops: Implementation, rule: type[Optimizer], compared: bool) -> None:
    """A large table is touched only where it is used. (Plain PyTorch, and Adam, update every row.)"""
    twins = Twins(ops, rule, 60, 12)
    used = sorted({*IDS.flatten().tolist(), *(ENTITIES.flatten().tolist() if compared else [])})
    unused = torch.ones(60, dtype=torch.bool)
    unused[used] = False
    before = twins.fast.detach().cpu()[unused]
    twins.squares[unused.to(twins.squares.device)] = float("nan")  # would spread if it were read

    def loss(ops: Implementation, table: Tensor) -> Tensor:
        total = ops.gather(table, ops.put(IDS)).square().sum()
        if compared:
            total = total + ops.compare("l1", ops.put(normal(2, 2, 12)), table, ops.put(ENTITIES), None, None).sum()
        return total

    for _ in range(2):
        twins.step(loss)
    assert twins.fast.grad is None
    assert torch.equal(twins.fast.detach().cpu()[unused], before)
    assert twins.squares[used].isfinite().all()


def test_many_steps_and_a_lower_rate(ops: Implementation, rule: type[Optimizer]) -> None:
    """Rows come and go; the rate is read from its scalar at each step; the state is that of PyTorch's optimizer."""
    twins = Twins(ops, rule, 9, 12)
    for step in range(60):
        ids, outer = torch.randint(9, (4,), generator=torch.Generator().manual_seed(step)), normal(4, 12, seed=step)
        if step == 40:
            twins.rate.fill_(0.02)
            twins.exact.param_groups[0]["lr"] = 0.02

        def loss(ops: Implementation, table: Tensor, ids: Tensor = ids, outer: Tensor = outer) -> Tensor:
            total: Tensor = (ops.gather(table, ops.put(ids)) - ops.put(outer)).square().sum()
            return total

        twins.step(loss)
    exact = twins.exact.state[twins.plain]
    assert set(exact) == set(rule.names())
    assert twins.count == exact["step"] == 60
    torch.testing.assert_close(twins.squares.cpu(), exact[rule.squares])


@only_numba
@types
def test_same_bits_for_any_number_of_threads(ops: Implementation, rule: type[Optimizer], dtype: torch.dtype) -> None:
    found = []
    for threads in (1, 2, 3, 7):
        torch.set_num_threads(threads)
        twins = Twins(ops, rule, 9, 74, dtype=dtype)
        for _ in range(3):
            twins.step(all_parts(37))
        found.append([twins.fast.detach(), twins.squares, *([] if twins.averages is None else [twins.averages])])
    for others in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], others, strict=True))


# --- rounded rows -----------------------------------------------------------------------------------------------------


@only_triton
@kinds
def test_rounded_rows(ops: Implementation, kind: Comparison, rule: type[Optimizer]) -> None:
    """Scores and gradients of queries come from the rounded table, which follows each step; the rest does not."""
    table = nn.Parameter(ops.put(normal(9, 22, seed=3).float()))
    deferred = deferred_for(table)
    deferred.rounded = table.detach().bfloat16()
    queries, outer = ops.put(normal(3, 2, 22, seed=4).float()), ops.put(normal(2, 2, 4, seed=5).float())

    def scores(one: Any, rows: Tensor, wanted: Tensor) -> Tensor:
        found: Tensor = one.compare(kind, wanted, rows, ops.put(ENTITIES), None, None, True)
        return found

    found = with_gradients(lambda wanted: scores(deferring(ops, deferred), table, wanted), queries)
    expected = with_gradients(lambda wanted: scores(REFERENCE, deferred.rounded.float(), wanted), queries)
    for part, exact in zip(found, expected, strict=True):
        torch.testing.assert_close(part, exact, rtol=1e-5, atol=1e-5)
    deferred.clear()

    (scores(deferring(ops, deferred), table, queries) * outer).sum().backward()
    plain = nn.Parameter(table.detach().clone())
    (scores(REFERENCE, plain, queries) * outer).sum().backward()
    getattr(torch.optim, rule.__name__)([plain], lr=0.1).step()
    factors, update = table.new_empty(2), kernels_of(ops)
    update.advance(ops.put(torch.zeros(())), ops.put(torch.tensor(0.1)), rule.betas, factors)
    moments = None if rule.averages is None else torch.zeros_like(table), torch.zeros_like(table)
    with torch.no_grad():
        update.update(table, *moments, factors, deferred, None, rule.betas, rule.epsilon)
    torch.testing.assert_close(table.detach(), plain.detach(), rtol=1e-5, atol=1e-5)
    # The interpreter cuts off bits where a GPU rounds.
    tolerance = 2**-7 if ops.device == "cpu" else 2**-8
    torch.testing.assert_close(deferred.rounded.float(), table.detach(), rtol=tolerance, atol=0)


# --- deferring ------------------------------------------------------------------------------------------------------


def test_what_defers_and_what_does_not(ops: Implementation) -> None:
    """A gradient is deferred where an optimizer's sink is passed, and nowhere else."""
    table = nn.Parameter(ops.put(normal(9, 22)))
    loss = all_parts(11)
    loss(ops, table).backward()
    plain, table.grad = table.grad, None
    sink = deferred_for(table)
    loss(deferring(ops, sink), table).backward()
    assert plain is not None
    assert table.grad is not None
    if ops.name == "reference":
        torch.testing.assert_close(table.grad, plain)
        return
    torch.testing.assert_close(table.grad, 2 * table.detach())  # what no kernel knows of
    assert sink.rows
    assert sink.cubed
    assert sink.products


def test_parts_of_an_unfinished_step_are_forgotten(rule: type[Optimizer]) -> None:
    table = nn.Parameter(normal(9, 22))
    optimizer = rule([table], torch.tensor(0.1))
    sink = optimizer.sink(table)
    assert (sink is not None) == optimizer.kernels.COLLECTS
    kernels.gather(table, IDS, sink).sum().backward()
    optimizer.zero_grad()
    assert table.grad is None
    before = table.detach().clone()
    optimizer.step()
    assert torch.equal(table, before)
