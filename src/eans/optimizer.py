"""Dense Adam, and the one kernel per table that does it on a GPU."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from eans import kernels
from eans.kernels.pending import collect

BETAS = (0.9, 0.999)
EPSILON = 1e-8


class Adam(torch.optim.Adam):
    """Adam for whole tables: rows without a gradient still move by their momentum, which the results depend on.

    Where the kernels allow it, the tables collect the parts of their gradients, and one kernel per table adds them up
    and applies the step, so that no gradient of a table's size is made; elsewhere this is PyTorch's fused Adam. The
    state has the same names and meaning either way.

    Args:
        parameters: tables ``[rows, columns]``.
        rate: the learning rate, a scalar on the device of the tables, so that a recorded step can read it.
        line: an order of the first table's rows in which those that are used together stand close (see `Sampler.line`).
        rounded: let comparisons read the first table in bfloat16, a copy that is made with each step. Everything else
            stays in float32. Has no effect where the kernels cannot.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        rate: Tensor,
        line: tuple[Tensor, Tensor] | None = None,
        rounded: bool = False,
    ) -> None:
        self.tables = list(parameters)
        super().__init__(self.tables, lr=rate, betas=BETAS, eps=EPSILON, fused=True, capturable=rate.is_cuda)
        self.rate = rate
        self.kernels = kernels.optimizer_kernels(rate.device)
        if self.kernels is not None:
            self.pending = [collect(table, line if index == 0 else None) for index, table in enumerate(self.tables)]
            if rounded:
                self.pending[0].rounded = self.tables[0].detach().bfloat16()

    def refresh(self) -> None:
        """Follow a change of the tables that was not a step."""
        if self.kernels is not None and self.pending[0].rounded is not None:
            self.pending[0].rounded.copy_(self.tables[0].detach())

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step with the gradients of the last backward pass."""
        if self.kernels is None:
            super().step(closure)
            return
        for table, pending in zip(self.tables, self.pending, strict=True):
            state = self.state[table]
            if not state:
                state["step"] = torch.zeros((), device=table.device)
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(table), torch.zeros_like(table)
            factors = table.new_empty(2)
            self.kernels.advance(state["step"], self.rate, BETAS, factors)
            moments = state["exp_avg"], state["exp_avg_sq"]
            self.kernels.update(table, *moments, factors, pending, table.grad, BETAS, EPSILON)
            pending.clear()
