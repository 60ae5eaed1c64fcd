"""Updates of the rows that are used alone equal their formulas in float64, and touch nothing else."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kernel_cases import Implementation, deferring, kinds, normal, only_numba, only_triton, types
from torch import Tensor, nn

from eans.kernels import Comparison
from eans.kernels.deferred_gradients import deferred_for

RATE = 0.1
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-9}
NAN = float("nan")
PLAIN: Any = SimpleNamespace(put=lambda values: values, **vars(import_module("eans.kernels").functions("reference")))
Loss = Callable[[Any, Tensor], Tensor]


class Row(nn.Module):
    """One table twice: updated by a kernel by rows, and by the formulas from autograd's gradient.

    Rows of the state that are not used hold NaN, and so do the rows of the table once the scores are computed.
    """

    def __init__(
        self, ops: Implementation, rows: int, columns: int, *, adam: bool, dtype: torch.dtype, ordered: bool = False
    ) -> None:
        super().__init__()
        start = normal(rows, columns, seed=3)
        self.ops, self.kernels = ops, import_module(f"eans.kernels.updates.{ops.name}")
        self.fast, self.plain = nn.Parameter(ops.put(start).to(dtype)), nn.Parameter(start.clone())
        line = torch.randperm(rows, generator=torch.Generator().manual_seed(1))
        self.deferred = deferred_for(self.fast, (ops.put(line), ops.put(line.argsort())) if ordered else None)
        self.deferred.by_rows = self.deferred.rows_stay = True
        self.betas = (0.9, 0.999) if adam else None
        self.epsilon = 1e-8 if adam else 1e-10
        self.averages = torch.zeros_like(self.fast) if adam else None
        self.squares = torch.zeros_like(self.fast) if adam else self.fast.new_zeros(rows)
        self.exact = [torch.zeros_like(self.plain), torch.zeros(start.shape if adam else (rows, 1)).double()]
        self.count = ops.put(torch.zeros(()))
        self.steps = 0

    def step(self, loss: Loss, used: Tensor) -> None:
        self.fast.grad = self.plain.grad = None
        loss(deferring(self.ops, self.deferred), self.fast).backward()
        loss(PLAIN, self.plain).backward()
        assert self.fast.grad is None or self.fast.grad.count_nonzero() == 0
        factors = self.fast.new_empty(2)
        rate = self.ops.put(torch.tensor(RATE, dtype=torch.float64))
        self.kernels.advance(self.count, rate, self.betas, factors)
        states = [state for state in (self.averages, self.squares, self.fast.data) if state is not None]
        kept = [state.clone() for state in states]
        unused = torch.ones(len(self.fast), dtype=torch.bool).index_fill(0, used, False).to(self.fast.device)
        for state in states:
            state[unused] = NAN
        with torch.no_grad():
            self.kernels.update(
                self.fast, self.averages, self.squares, factors, self.deferred, None, self.betas, self.epsilon
            )
        for state, before in zip(states, kept, strict=True):
            assert state[unused].isnan().all()
            state[unused] = before[unused]
        self.deferred.clear()
        self._exact_step(used)
        tolerance = TOLERANCE[self.fast.dtype]
        torch.testing.assert_close(
            self.fast.detach().cpu().double(), self.plain.detach(), rtol=tolerance, atol=tolerance / 100
        )

    def _exact_step(self, used: Tensor) -> None:
        self.steps += 1
        gradient = torch.zeros_like(self.plain) if self.plain.grad is None else self.plain.grad
        g, (average, square) = gradient[used], self.exact
        if self.betas is None:
            square[used] += g.square().mean(1, keepdim=True)
            change = RATE * g / (square[used].sqrt() + self.epsilon)
        else:
            first, second = self.betas
            average[used] = first * average[used] + (1 - first) * g
            square[used] = second * square[used] + (1 - second) * g.square()
            root = (square[used] / (1 - second**self.steps)).sqrt()
            change = RATE * average[used] / (1 - first**self.steps) / (root + self.epsilon)
        self.plain.data[used] -= change


adams = pytest.mark.parametrize("adam", [False, True], ids=["row-wise", "adam"])


@types
@adams
@kinds
@pytest.mark.parametrize(("rows", "columns", "ordered"), [(9, 22, True), (70, 22, False), (70, 2, True)])
def test_candidates_and_rows(
    ops: Implementation, rows: int, columns: int, ordered: bool, kind: Comparison, adam: bool, dtype: torch.dtype
) -> None:
    """Ids repeat within and between candidates and gathered rows; tables are smaller and larger than their uses."""
    twins = Row(ops, rows, columns, adam=adam, dtype=dtype, ordered=ordered)
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        entities, ids = (torch.randint(rows - 2, size, generator=generator) for size in ((2, 5), (2, 3)))
        entities[:, 0] = ids[0, 0]
        queries, outer, pulls = normal(2, 2, columns, seed=seed), normal(2, 2, 5, seed=seed), normal(2, 3, columns)

        def loss(
            one: Any,
            table: Tensor,
            entities: Tensor = entities,
            ids: Tensor = ids,
            given: Any = (queries, outer, pulls),
        ) -> Tensor:
            queries, outer, pulls = (one.put(value).to(table.dtype) for value in given)
            gathered = one.gather(table, one.put(ids))
            scores = one.compare(kind, queries, table, one.put(entities), None, None, True)
            total: Tensor = (scores * outer).sum() + (gathered * pulls).sum()
            return total

        twins.step(loss, torch.unique(torch.cat([entities.flatten(), ids.flatten()])))


@adams
@pytest.mark.parametrize("rows", [5, 50])
def test_rows_without_candidates(ops: Implementation, rows: int, adam: bool) -> None:
    """Gathered rows alone, once and twice; then no candidates; then an empty batch."""
    twins = Row(ops, rows, 7, adam=adam, dtype=torch.float64)
    ids = torch.tensor([3, 0, 3, 4])
    twins.step(lambda one, table: one.gather(table, one.put(ids)).square().sum(), ids.unique())
    twins.step(
        lambda one, table: one.gather(table, one.put(ids)).sum() + one.gather(table, one.put(ids[1:])).square().sum(),
        ids.unique(),
    )
    none = torch.empty(2, 0, dtype=torch.int64)

    def without_candidates(one: Any, table: Tensor) -> Tensor:
        scores = one.compare("dot", one.put(normal(1, 2, 7)), table, one.put(none))
        total: Tensor = scores.sum() + one.gather(table, one.put(ids)).square().sum()
        return total

    twins.step(without_candidates, ids.unique())
    twins.step(lambda one, table: one.gather(table, one.put(none[0])).sum(), none[0])


@only_numba
@adams
def test_same_bits_for_any_number_of_threads(ops: Implementation, adam: bool) -> None:
    ids, found = torch.randint(40, (99,), generator=torch.Generator().manual_seed(0)), []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        twins = Row(ops, 50, 33, adam=adam, dtype=torch.float32)
        for _ in range(3):
            twins.step(lambda one, table: one.gather(table, one.put(ids)).square().sum(), ids.unique())
        found.append(twins.fast.detach())
    assert all(torch.equal(found[0], other) for other in found[1:])


@only_triton
@pytest.mark.parametrize("few", [0, 4096])
@pytest.mark.parametrize("size", [40, 40_000, 100_000])
def test_uses_are_sorted_without_a_pass_over_the_table(
    ops: Implementation, few: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = import_module("eans.kernels.triton_sort")
    monkeypatch.setattr(module, "FEW", few)
    ids = torch.randint(size, (77,), generator=torch.Generator().manual_seed(size)) // 3
    order, keys, ends = (part.cpu() for part in module.sorted_uses(ops.put(ids), size))
    assert torch.equal(order, torch.argsort(ids, stable=True))
    assert torch.equal(keys.long(), ids[order])
    assert ends.tolist() == [int((ids <= key).sum()) for key in ids[order]]


def test_ids_are_sorted_without_a_pass_over_the_table() -> None:
    pytest.importorskip("numba")
    module: Any = import_module("eans.kernels.numba_arrays")
    for size in (1, 3, 2**11, 2**11 + 1, 2**25, 2**40):
        ids = torch.randint(size, (333,), generator=torch.Generator().manual_seed(7)).numpy()
        ids[5:20] = ids[50]
        keys, order = module.sorted_ids(ids)
        assert (order == ids.argsort(kind="stable")).all()
        assert (keys == ids[order]).all()
    tracemalloc.start()
    module.distinct_ids(ids)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**17
    distinct, order, starts = module.distinct_ids(ids[:0])
    assert (len(distinct), len(order), starts.tolist()) == (0, 0, [0])
