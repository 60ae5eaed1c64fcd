"""Lazy Adam's rows are where dense Adam would have them, in every implementation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from kernel_cases import REFERENCE, Implementation, normal, types
from torch import Tensor

from eans.kernels.catching_up import TERMS

BETAS, EPSILON, ROWS, COLUMNS = (0.9, 0.999), 1e-8, 12, 19
STEPS = 300


def rate_of(step: int) -> float:
    """With a drop, and a slope after it."""
    return 1e-2 if step < 150 else 1e-3 * (1 - (step - 150) / 300)


class Adams:
    """The same rows twice: dense Adam in float64, and lazily; each row has a gradient at steps of its own."""

    def __init__(self, ops: Any, dtype: torch.dtype) -> None:
        self.ops, self.exact = ops, normal(ROWS, COLUMNS, seed=1)
        self.m, self.v = torch.zeros_like(self.exact), torch.zeros_like(self.exact)
        self.table = ops.put(self.exact).to(dtype, copy=True)
        self.averages, self.squares = torch.zeros_like(self.table), torch.zeros_like(self.table)
        self.last = ops.put(torch.zeros(ROWS, dtype=torch.int32))
        self.sums = ops.put(torch.zeros(TERMS + STEPS + 1, 2, dtype=torch.float64))
        self.count = ops.put(torch.zeros(()))
        self.steps = 0

    def catch_up(self, ids: Tensor | None, upcoming: bool = False, **changed: Tensor) -> None:
        state = {"table": self.table, "averages": self.averages, "squares": self.squares, "last": self.last} | changed
        self.ops.catch_up(
            **state, sums=self.sums, step=self.count, betas=BETAS, epsilon=EPSILON, ids=ids, upcoming=upcoming
        )

    def step(self, used: Tensor, scale: float = 1.0) -> None:
        """One step with a gradient for the rows `used`, some of them named twice."""
        self.catch_up(self.ops.put(torch.cat([used, used[:2]])), upcoming=True)
        self.steps += 1
        gradient = torch.zeros_like(self.exact)
        gradient[used] = scale * normal(len(used), COLUMNS, seed=self.steps)
        first, second = (1 - beta**self.steps for beta in BETAS)
        size, root = rate_of(self.steps) / first, second**-0.5
        self.m = BETAS[0] * self.m + (1 - BETAS[0]) * gradient
        self.v = BETAS[1] * self.v + (1 - BETAS[1]) * gradient.square()
        self.exact -= size * self.m / (root * self.v.sqrt() + EPSILON)

        rows = used.to(self.table.device)
        g = self.ops.put(gradient[used]).to(self.table.dtype)
        m = self.averages[rows] = BETAS[0] * self.averages[rows] + (1 - BETAS[0]) * g
        v = self.squares[rows] = BETAS[1] * self.squares[rows] + (1 - BETAS[1]) * g.square()
        self.table[rows] -= size * m / (root * v.sqrt() + EPSILON)
        self.count += 1
        self.ops.remember(self.sums, self.count, self.ops.put(torch.tensor([size, root], dtype=torch.float64)), BETAS)

    def train(self, steps: int, scale: float = 1.0) -> None:
        """Row r has a gradient in every r-th step on average, the last row in the first step alone."""
        for _ in range(steps):
            draw = torch.rand(ROWS, generator=torch.Generator().manual_seed(self.steps))
            chosen = draw < 1 / (1 + torch.arange(ROWS) ** 2)
            chosen[-1] = self.steps == 0
            self.step(chosen.nonzero()[:, 0], scale)


@types
@pytest.mark.parametrize(("scale", "tolerance"), [(1.0, 0.0), (1e-5, 1e-3)])
def test_rows_are_where_dense_adam_has_them(
    ops: Implementation, dtype: torch.dtype, scale: float, tolerance: float
) -> None:
    """Relative to how far Adam moved: rounding for ordinary gradients, more where they are not far above epsilon."""
    adams = Adams(ops, dtype)
    start = adams.exact.clone()
    for steps in (3, 57, 200):
        adams.train(steps if ops.name != "triton" else 1 + steps // 10, scale)
        adams.catch_up(None)
        moved = (adams.exact - start).abs().max()
        rounding = 1e-9 if dtype == torch.float64 else 2e-5
        assert (adams.table.cpu().double() - adams.exact).abs().max() <= (tolerance + rounding) * moved
        torch.testing.assert_close(adams.averages.cpu().double(), adams.m, rtol=1e-4, atol=1e-6 * scale)
        torch.testing.assert_close(adams.squares.cpu().double(), adams.v, rtol=1e-4, atol=1e-6 * scale**2)
        assert (adams.last == adams.steps).all()


@types
def test_implementations_equal_the_definition(ops: Implementation, dtype: torch.dtype) -> None:
    """From any state: rows that were never used, up to date, far behind; some rows, repeated, or all; none at all."""
    for ids in (torch.tensor([3, 3, 7, 0, 11, 3]), None, torch.empty(0, dtype=torch.int64)):
        for upcoming in (False, True):
            found = []
            for one in (REFERENCE, ops):
                adams = Adams(
                    type("Plain", (), {**vars(one), "put": staticmethod(lambda v: v)}) if one is REFERENCE else one,
                    dtype,
                )
                put = adams.ops.put
                adams.table, adams.averages = (put(normal(ROWS, COLUMNS, seed=seed).to(dtype)) for seed in (1, 2))
                adams.squares = put(normal(ROWS, COLUMNS, seed=3).square().to(dtype))
                for row in (0, 1, 5):
                    adams.averages[row] = adams.squares[row] = 0
                adams.last = put(torch.tensor([0, 0, 9, 40, 39, 0, 1, 2, 38, 40, 21, 20], dtype=torch.int32))
                for number in range(1, 41):
                    factors = put(torch.tensor([1e-2 / (1 - 0.9**number), (1 - 0.999**number) ** -0.5]).double())
                    adams.ops.remember(adams.sums, put(torch.tensor(float(number))), factors, BETAS)
                adams.count += 40
                adams.catch_up(None if ids is None else put(ids), upcoming)
                found.append([adams.table, adams.averages, adams.squares, adams.last, adams.sums])
            for exact, value in zip(*found, strict=True):
                tolerance = 1e-6 if dtype == torch.float32 else 1e-12
                torch.testing.assert_close(value.cpu(), exact, rtol=tolerance, atol=tolerance / 10)


def test_a_rate_of_zero_moves_nothing(ops: Implementation) -> None:
    """The sums are zero then, and their quotient is not asked for."""
    adams = Adams(ops, torch.float64)
    adams.averages += 1
    adams.last += 1
    adams.count += 6
    before = adams.table.clone()
    adams.catch_up(None)
    assert torch.equal(adams.table, before)
    assert adams.averages[0, 0].item() == pytest.approx(0.9**5)


def test_rounded_rows_follow(ops: Implementation) -> None:
    if ops.name == "numba":
        pytest.skip("reads no rounded rows")
    adams = Adams(ops, torch.float32)
    adams.train(5)
    rounded = adams.table.bfloat16()
    ids = ops.put(torch.tensor([2, 2, 11]))
    state = {"table": adams.table, "averages": adams.averages, "squares": adams.squares, "last": adams.last}
    ops.catch_up(**state, sums=adams.sums, step=adams.count, betas=BETAS, epsilon=EPSILON, ids=ids, rounded=rounded)
    # The interpreter cuts off bits where a GPU rounds.
    torch.testing.assert_close(rounded[ids].float(), adams.table[ids], rtol=2**-7, atol=0)
