"""Dense Adam: one kernel per table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from eans import kernels
from eans.kernels.pending import collect

BETAS = (0.9, 0.999)
EPSILON = 1e-8


class Adam:
    """Adam for whole tables: rows without a gradient still move by their momentum, which the results depend on.

    Where the kernels allow it, the tables collect the parts of their gradients, and one kernel per table adds them up
    and applies the step, so that few gradients of a table's size are made. The state has the names and the meaning of
    `torch.optim.Adam`, whichever kernels run. (PyTorch's own optimizers load its compiler when they are made: most of a
    second, and tens of megabytes.)

    Args:
        parameters: tables ``[rows, columns]``.
        rate: the learning rate, a scalar on the device of the tables, so that a recorded step can read it.
        line: an order of the first table's rows in which those that are used together stand close (see `Sampler.line`).
        rounded: let comparisons read the first table in bfloat16, a copy that is made with each step. Everything else
            stays in float32. Has no effect where the kernels cannot.

    Attributes:
        state: of each table, after its first step: ``step``, a scalar, and the moments ``exp_avg`` and ``exp_avg_sq``.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        rate: Tensor,
        line: tuple[Tensor, Tensor] | None = None,
        rounded: bool = False,
    ) -> None:
        self.tables = list(parameters)
        self.rate = rate
        self.state: dict[nn.Parameter, dict[str, Tensor]] = {}
        self.kernels = kernels.optimizer_kernels(rate.device)
        self.pending = [
            collect(table, line if index == 0 else None) if self.kernels.COLLECTS else None
            for index, table in enumerate(self.tables)
        ]
        if rounded and self.kernels.ROUNDS and self.pending[0] is not None:
            self.pending[0].rounded = self.tables[0].detach().bfloat16()
        self._collect(False)

    def _collect(self, on: bool) -> None:
        for pending in self.pending:
            if pending is not None:
                pending.clear()
                pending.on = on

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Compute a loss, its gradients and `step` in here. Elsewhere the tables are parameters like any other."""
        self.zero_grad()
        self._collect(True)
        try:
            yield
        finally:
            self._collect(False)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for table in self.tables:
            table.grad = None

    def refresh(self) -> None:
        """Follow a change of the tables that was not a step."""
        first = self.pending[0]
        if first is not None and first.rounded is not None:
            first.rounded.copy_(self.tables[0].detach())

    @torch.no_grad()
    def step(self) -> None:
        """One step with the gradients of the last backward pass."""
        for table, pending in zip(self.tables, self.pending, strict=True):
            if table not in self.state:
                self.state[table] = {
                    "step": torch.zeros((), device=table.device),
                    "exp_avg": torch.zeros_like(table),
                    "exp_avg_sq": torch.zeros_like(table),
                }
            state = self.state[table]
            factors = table.new_empty(2)
            self.kernels.advance(state["step"], self.rate, BETAS, factors)
            moments = state["exp_avg"], state["exp_avg_sq"]
            self.kernels.update(table, *moments, factors, pending, table.grad, BETAS, EPSILON)
            if pending is not None:
                pending.clear()
