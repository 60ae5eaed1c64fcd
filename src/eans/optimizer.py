"""Dense Adam and Adagrad: one kernel per parameter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from eans import kernels
from eans.kernels.deferred_gradients import DeferredGradients, deferred_for
from eans.kernels.matmul.tensor_cores import rounded_copy
from eans.kernels.updates import Betas

OptimizerName = Literal["adam", "adagrad"]


class Optimizer:
    """Updates whole tables and layers, step by step. `Adam` and `Adagrad` say how.

    Where the kernels allow it, operations on a table leave the parts of its gradient in a `sink`, and one kernel per
    table adds them up and applies the step, so that few gradients of a table's size are made. The state has the names
    and the meaning of PyTorch's optimizer of the same name, whichever kernels run. (PyTorch's own optimizers load its
    compiler when they are made: most of a second, and tens of megabytes.)

    Args:
        parameters: tables ``[rows, columns]``, and what layers own, of any shape.
        rate: the learning rate, a scalar on the device of the tables, so that a captured step can read it.
        ordering: of the first table's rows, those that are used together close to each other (`Sampler.ordering`).
        rounded: let comparisons and products read the first table in bfloat16, a copy that is made with each step.
            Tables, moments and sums stay in float32. Has no effect where the kernels cannot.

    Attributes:
        averages, squares: names of the moments in the state; no averages for Adagrad.
        betas, epsilon: see `eans.kernels.UpdateKernels`.
        state: of each parameter, after its first step: ``step``, a scalar, and the moments, of its shape.
    """

    averages: ClassVar[str | None]
    squares: ClassVar[str]
    betas: ClassVar[Betas | None]
    epsilon: ClassVar[float]

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        rate: Tensor,
        ordering: tuple[Tensor, Tensor] | None = None,
        rounded: bool = False,
    ) -> None:
        self.tables = list(parameters)
        self.rate = rate
        self.state: dict[nn.Parameter, dict[str, Tensor]] = {}
        self.kernels = kernels.optimizer_kernels(rate.device)
        self.deferred = [
            deferred_for(table, ordering if index == 0 else None) if self.kernels.COLLECTS else None
            for index, table in enumerate(self.tables)
        ]
        if rounded and self.kernels.ROUNDS and self.deferred[0] is not None:
            self.deferred[0].rounded = rounded_copy(self.tables[0].detach())

    @classmethod
    def names(cls) -> list[str]:
        """Of everything in the state of a table."""
        return ["step", *([] if cls.averages is None else [cls.averages]), cls.squares]

    @property
    def compared_table(self) -> Tensor:
        """What comparisons with the first table read: itself, or its rounded copy."""
        first = self.deferred[0]
        return self.tables[0] if first is None or first.rounded is None else first.rounded

    def work_across(self, on: bool) -> None:
        """Tell comparisons with the first table whether their candidates are sorted (`DeferredGradients.across`)."""
        if self.deferred[0] is not None:
            self.deferred[0].across = on

    def sink(self, table: Tensor) -> DeferredGradients | None:
        """Where the parts of a table's gradient are left for `step`; None where autograd adds them up."""
        return next(deferred for one, deferred in zip(self.tables, self.deferred, strict=True) if one is table)

    def zero_grad(self) -> None:
        """Forget the gradients, and the parts of those that are deferred."""
        for table, deferred in zip(self.tables, self.deferred, strict=True):
            table.grad = None
            if deferred is not None:
                deferred.clear()

    def refresh(self) -> None:
        """Follow a change of the tables that was not a step."""
        first = self.deferred[0]
        if first is not None and first.rounded is not None:
            first.rounded[: len(self.tables[0])] = self.tables[0].detach()

    @torch.no_grad()
    def step(self) -> None:
        """One step with the gradients of the last backward pass."""
        for table, deferred in zip(self.tables, self.deferred, strict=True):
            if table not in self.state:
                self.state[table] = {
                    name: torch.zeros((), device=table.device) if name == "step" else torch.zeros_like(table)
                    for name in self.names()
                }
            state = self.state[table]
            factors = table.new_empty(2)
            self.kernels.advance(state["step"], self.rate, self.betas, factors)
            averages = None if self.averages is None else as_rows(state[self.averages])
            gradient = None if table.grad is None else as_rows(table.grad.contiguous())
            rows, squares = as_rows(table.detach()), as_rows(state[self.squares])
            self.kernels.update(rows, averages, squares, factors, deferred, gradient, self.betas, self.epsilon)
            if deferred is not None:
                deferred.clear()


def as_rows(values: Tensor) -> Tensor:
    """A parameter of any shape as the kernels take it, ``[rows, columns]``: a view. A vector is one row."""
    if values.dim() == 2:
        return values
    return values.view(1, -1) if values.dim() < 2 else values.view(len(values), -1)


class Adam(Optimizer):
    """Means of recent gradients. Rows without a gradient still move by their momentum, which the results depend on."""

    averages, squares = "exp_avg", "exp_avg_sq"
    betas: ClassVar[Betas] = (0.9, 0.999)
    epsilon = 1e-8


class Adagrad(Optimizer):
    """The sum of squared gradients, by which steps get smaller; half of Adam's state. Rows without a gradient stay."""

    averages, squares = None, "sum"
    betas = None
    epsilon = 1e-10


OPTIMIZERS: dict[OptimizerName, type[Optimizer]] = {"adam": Adam, "adagrad": Adagrad}
