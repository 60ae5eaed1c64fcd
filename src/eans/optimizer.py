"""Adam and Adagrad, for every row of a table or for those that a step touches: one kernel per parameter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from eans import kernels
from eans.errors import UsageError
from eans.huge_pages import on_huge_pages
from eans.kernels.catching_up import TERMS
from eans.kernels.deferred_gradients import DeferredGradients, deferred_for
from eans.kernels.matmul.tensor_cores import rounded_copy
from eans.kernels.updates import Betas

OptimizerName = Literal["adam", "adagrad", "lazy-adam", "row-adagrad"]
# Of `LazyAdam`: steps for which there is room at first, and rows of a copy that are brought up to date at a time.
FIRST_STEPS, COPIED_ROWS = 1 << 16, 1 << 16


class Optimizer:
    """Updates tables and layers, step by step. Its subclasses say how.

    Where the kernels allow it, operations on a table leave the parts of its gradient in a `sink`, and one kernel per
    table adds them up and applies the step, so that few gradients of a table's size are made. The state of Adam and
    Adagrad has the names and the meaning of PyTorch's optimizer of the same name, whichever kernels run. (PyTorch's own
    optimizers load its compiler when they are made: most of a second, and tens of megabytes.)

    An optimizer that works `by_rows` touches those rows of the first table alone that have a gradient, so that a step
    takes the same time whatever the size of that table; other parameters are updated as a whole.

    Args:
        parameters: tables ``[rows, columns]``, and what layers own, of any shape.
        rate: the learning rate, a scalar on the device of the tables, so that a captured step can read it.
        ordering: of the first table's rows, those that are used together close to each other (`Sampler.ordering`).
        rounded: let comparisons and products read the first table in bfloat16, a copy that is made with each step.
            Tables, moments and sums stay in float32. Has no effect where the kernels cannot.

    Attributes:
        averages, squares: names of the moments in the state; no averages for Adagrad.
        betas, epsilon: see `eans.kernels.UpdateKernels`.
        by_rows: see above.
        lazy: rows lag behind until they are needed: `prepare`, `settle` and `settled` bring them up to date.
        state: of each parameter, after its first step: ``step``, a scalar, and the moments, of its shape.
    """

    averages: ClassVar[str | None]
    squares: ClassVar[str]
    betas: ClassVar[Betas | None]
    epsilon: ClassVar[float]
    by_rows: ClassVar[bool] = False
    lazy: ClassVar[bool] = False

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
            deferred_for(table, ordering if index == 0 else None)
            if self.kernels.COLLECTS or (self.by_rows and index == 0)
            else None
            for index, table in enumerate(self.tables)
        ]
        for index, deferred in enumerate(self.deferred):
            if deferred is not None:
                deferred.by_rows = self.by_rows and index == 0
                deferred.rows_stay = deferred.by_rows or self.averages is None
        if rounded and self.kernels.ROUNDS and self.deferred[0] is not None:
            self.deferred[0].rounded = rounded_copy(self.tables[0].detach())

    @classmethod
    def names(cls, index: int = 0) -> list[str]:
        """Of everything in the state of a parameter, by its place among all."""
        return ["step", *([] if cls.averages is None else [cls.averages]), cls.squares_name(index)]

    @classmethod
    def squares_name(cls, index: int) -> str:
        """Of the squares in the state of a parameter."""
        del index
        return cls.squares

    def initial(self, index: int, name: str) -> Tensor:
        """What a part of a parameter's state is before the first step."""
        table = self.tables[index].detach()
        return (
            torch.zeros((), device=table.device) if name == "step" else on_huge_pages(torch.empty_like(table)).zero_()
        )

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

    def make_room(self, steps: int) -> bool:
        """Before a step, by its number, counted from 1: have room for it. Were tensors of the state replaced?"""
        del steps
        return False

    def prepare(self, ids: Tensor) -> None:
        """Before a step reads rows of the first table, int64 ``[M]``: bring them up to date. It will update them."""

    def settle(self, ids: Tensor | None = None) -> None:
        """Between two steps: bring rows of the first table, int64 ``[M]`` or all, up to date, in place."""

    @contextmanager
    def settled(self) -> Iterator[None]:
        """Inside, all rows are up to date; afterwards they are as before, so that no later bit depends on it."""
        yield

    def reset(self) -> None:
        """Forget the moments, and how many steps there were."""
        self.settle()
        for moments in self.state.values():
            for value in moments.values():
                value.zero_()

    @torch.no_grad()
    def step(self) -> None:
        """One step with the gradients of the last backward pass."""
        for index, (table, deferred) in enumerate(zip(self.tables, self.deferred, strict=True)):
            if deferred is not None and deferred.by_rows and (table.grad is not None or deferred.whole):
                raise UsageError(
                    "a gradient of the whole entity table came to an optimizer that updates rows; "
                    "set train.optimizer to adam or adagrad"
                )
            self._update(index, self._state_of(index))
            if deferred is not None:
                deferred.clear()

    def _state_of(self, index: int) -> dict[str, Tensor]:
        table = self.tables[index]
        if table not in self.state:
            self.state[table] = {name: self.initial(index, name) for name in self.names(index)}
        return self.state[table]

    def _update(self, index: int, state: dict[str, Tensor]) -> Tensor:
        """Update a parameter; returns the factors of its step."""
        table, deferred = self.tables[index], self.deferred[index]
        factors = table.new_empty(2)
        self.kernels.advance(state["step"], self.rate, self.betas, factors)
        averages = None if self.averages is None else as_rows(state[self.averages])
        squares = state[self.squares_name(index)]
        if squares.shape == table.shape:  # not one for each row
            squares = as_rows(squares)
        gradient = None if table.grad is None else as_rows(table.grad.contiguous())
        rows = as_rows(table.detach())
        self.kernels.update(rows, averages, squares, factors, deferred, gradient, self.betas, self.epsilon)
        return factors


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


class RowAdagrad(Adagrad):
    """Adagrad by rows with one number for each, the sum of the means of its squared gradients: no state to speak of.

    ``sum_e += mean_j g_ej^2``, ``row_e -= rate g_e / (sqrt(sum_e) + epsilon)``.
    """

    by_rows = True

    @classmethod
    def squares_name(cls, index: int) -> str:
        return "row_sum" if index == 0 else cls.squares

    def initial(self, index: int, name: str) -> Tensor:
        if name != "row_sum":
            return super().initial(index, name)
        return on_huge_pages(self.tables[0].new_empty(len(self.tables[0]))).zero_()


class LazyAdam(Adam):
    """Adam by rows: what its momentum has moved a row by meanwhile is made up for when the row is next used.

    It equals Adam up to rounding (`eans.kernels.catching_up`). The state of the first table has besides Adam's
    ``last`` int32 ``[E]``, the step after which each row is up to date, and ``sums``.
    """

    by_rows = lazy = True

    @classmethod
    def names(cls, index: int = 0) -> list[str]:
        return [*super().names(index), *(["last", "sums"] if index == 0 else [])]

    def initial(self, index: int, name: str) -> Tensor:
        table = self.tables[index]
        if name == "last":
            return on_huge_pages(torch.empty(len(table), dtype=torch.int32, device=table.device)).zero_()
        if name == "sums":
            return torch.zeros(TERMS + FIRST_STEPS, 2, dtype=torch.float64, device=table.device)
        return super().initial(index, name)

    def make_room(self, steps: int) -> bool:
        state = self.state.get(self.tables[0])
        if state is None or TERMS + steps < len(state["sums"]):
            return False
        sums = state["sums"]
        state["sums"] = torch.cat([sums, torch.zeros_like(sums)])
        return True

    def _update(self, index: int, state: dict[str, Tensor]) -> Tensor:
        factors = super()._update(index, state)
        if index == 0:
            kernels.remember(state["sums"], state["step"], factors, self.betas)
        return factors

    @torch.no_grad()
    def prepare(self, ids: Tensor) -> None:
        _catch_up(self.tables[0].detach(), self._state_of(0), ids, True, self._rounded)

    @torch.no_grad()
    def settle(self, ids: Tensor | None = None) -> None:
        _catch_up(self.tables[0].detach(), self._state_of(0), ids, False, self._rounded)

    @property
    def _rounded(self) -> Tensor | None:
        return None if self.deferred[0] is None else self.deferred[0].rounded

    @contextmanager
    def settled(self) -> Iterator[None]:
        table = self.tables[0]
        as_trained = table.data
        table.data = settled_rows(as_trained, self._state_of(0))
        try:
            yield
        finally:
            table.data = as_trained


def _catch_up(
    table: Tensor, state: dict[str, Tensor], ids: Tensor | None, upcoming: bool = False, rounded: Tensor | None = None
) -> None:
    moments = state["exp_avg"], state["exp_avg_sq"]
    steps = state["last"], state["sums"], state["step"]
    kernels.catch_up(table, *moments, *steps, Adam.betas, Adam.epsilon, ids, upcoming, rounded)


def settled_rows(table: Tensor, state: dict[str, Tensor]) -> Tensor:
    """A copy of a table of `LazyAdam` with all rows up to date, from its state, which stays as it is."""
    copy = table.clone()
    for start in range(0, len(table), COPIED_ROWS):
        part = slice(start, start + COPIED_ROWS)
        own = {name: state[name][part].clone() for name in ("exp_avg", "exp_avg_sq", "last")}
        _catch_up(copy[part], state | own, None)
    return copy


OPTIMIZERS: dict[OptimizerName, type[Optimizer]] = {
    "adam": Adam,
    "adagrad": Adagrad,
    "lazy-adam": LazyAdam,
    "row-adagrad": RowAdagrad,
}
