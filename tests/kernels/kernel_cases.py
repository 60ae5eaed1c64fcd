"""What the suites of the fast kernels share: random cases, and comparisons with the float64 reference and PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from eans.kernels import Comparison, UpdateKernels, reference, reference_step
from eans.kernels.pending import collect
from eans.optimizer import Adam, Optimizer

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-13}


class Case(NamedTuple):
    """Arguments of `compare` after the kind, and the gradient of its scores."""

    queries: Tensor
    table: Tensor
    entities: Tensor
    shifts: Tensor | None
    scalars: Tensor | None
    outer: Tensor


class Shape(NamedTuple):
    count: int
    batch: int
    negatives: int
    dim: int
    entities: int


def make_case(shape: Shape, shifted: bool, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Case:
    generator = torch.Generator().manual_seed(sum(shape))

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64).to(device, dtype)

    count, batch, negatives, dim, num_entities = shape
    # The last two entities are never drawn; with few entities the others are drawn many times.
    drawn = torch.randint(max(1, num_entities - 2), (batch, negatives), generator=generator).to(device)
    return Case(
        normal(count, batch, dim),
        normal(num_entities, dim + 3)[:, :dim],  # strided rows
        drawn,
        normal(count, batch, dim) if shifted else None,
        normal(num_entities) if shifted else None,
        normal(count, batch, negatives),
    )


def results(module: Any, kind: Comparison, case: Case) -> dict[str, Tensor]:
    """Scores and every gradient."""
    named = {"queries": case.queries, "table": case.table, "shifts": case.shifts, "scalars": case.scalars}
    inputs = {name: value.detach().requires_grad_() for name, value in named.items() if value is not None}
    scores = module.compare(
        kind, inputs["queries"], inputs["table"], case.entities, inputs.get("shifts"), inputs.get("scalars")
    )
    gradients = torch.autograd.grad(scores, list(inputs.values()), case.outer.to(scores.dtype))
    return {"scores": scores.detach(), **dict(zip(inputs, gradients, strict=True))}


def widened(case: Case) -> Case:
    return Case(*(value.double() if value is not None and value.is_floating_point() else value for value in case))


def assert_near(value: Tensor, expected: Tensor, name: str = "") -> None:
    assert value.shape == expected.shape
    error = torch.linalg.vector_norm(value.double() - expected)
    assert error <= TOLERANCE[value.dtype] * torch.linalg.vector_norm(expected), (name, float(error))


def assert_equal_to_reference(module: Any, kind: Comparison, case: Case) -> None:
    expected = results(reference, kind, widened(case))
    for name, value in results(module, kind, case).items():
        assert value.dtype == case.queries.dtype
        assert_near(value, expected[name], name)


@contextmanager
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two threads for the loops of a CPU, already for small shapes."""
    from eans.kernels import numba_threads

    monkeypatch.setattr(numba_threads, "SERIAL_BELOW", 1)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make fresh buffers hold NaN, so that a number nobody wrote shows."""
    plain_empty, plain_like, plain_new = torch.empty, torch.empty_like, Tensor.new_empty

    def poisoned(buffer: Tensor) -> Tensor:
        return buffer.fill_(float("nan")) if buffer.is_floating_point() else buffer

    monkeypatch.setattr(torch, "empty", lambda *a, **k: poisoned(plain_empty(*a, **k)))
    monkeypatch.setattr(torch, "empty_like", lambda *a, **k: poisoned(plain_like(*a, **k)))
    monkeypatch.setattr(Tensor, "new_empty", lambda *a, **k: poisoned(plain_new(*a, **k)))


def let_interpreter_read_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 3.6's interpreter reads loop bounds by ``int(array of one number)``, which NumPy 2.4 refuses."""
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patched)


# --- updates of tables ----------------------------------------------------------------------------------------------


def normal(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


class Operations(NamedTuple):
    """An implementation of what a loss does with a table, and where it runs."""

    compare: Any
    gather: Any
    cubes: Any
    half_products: Any
    device: str = "cpu"

    def put(self, numbers: Tensor) -> Tensor:
        return numbers.to(self.device)


PLAIN = Operations(reference.compare, reference_step.gather, reference_step.cubes, reference_step.half_products)
IDS = torch.tensor([[3, 0, 3], [3, 8, 1]])
ENTITIES = torch.tensor([[3, 0, 2, 2], [8, 8, 3, 5]])
LINE = torch.tensor([4, 8, 0, 7, 3, 1, 6, 2, 5])
TWIN_TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-9}


class Twins:
    """The same table twice: one is updated by a kernel, which may collect parts, the other by PyTorch's optimizer."""

    def __init__(
        self,
        fast: Operations,
        kernels: UpdateKernels,
        rows: int,
        columns: int,
        ordered: bool = False,
        dtype: torch.dtype = torch.float64,
        rule: type[Optimizer] = Adam,
    ) -> None:
        start = normal(rows, columns, seed=3)
        self.operations, self.kernels = fast, kernels
        self.fast, self.plain = nn.Parameter(fast.put(start).to(dtype)), nn.Parameter(start.clone())
        line = (fast.put(LINE), fast.put(torch.argsort(LINE))) if ordered else None
        self.pending = collect(self.fast, line) if kernels.COLLECTS else None
        self.rate = fast.put(torch.tensor(0.1, dtype=torch.float64))
        self.rule = rule
        self.exact = getattr(torch.optim, rule.__name__)([self.plain], lr=0.1)
        self.averages = None if rule.averages is None else torch.zeros_like(self.fast)
        self.squares = torch.zeros_like(self.fast)
        self.count = fast.put(torch.zeros(()))

    def step(self, loss: Callable[[Operations, Tensor], Tensor]) -> None:
        """`loss` is called with the fast operations and their table, then with the reference."""
        self.fast.grad = self.plain.grad = None
        loss(self.operations, self.fast).backward()
        loss(PLAIN, self.plain).backward()
        factors = self.fast.new_empty(2)
        rule = self.rule
        self.kernels.advance(self.count, self.rate, rule.betas, factors)
        moments = self.averages, self.squares
        with torch.no_grad():
            self.kernels.update(self.fast, *moments, factors, self.pending, self.fast.grad, rule.betas, rule.epsilon)
        if self.pending is not None:
            self.pending.clear()
        self.exact.step()
        tolerance = TWIN_TOLERANCE[self.fast.dtype]
        torch.testing.assert_close(
            self.fast.detach().cpu().double(), self.plain.detach(), rtol=tolerance, atol=tolerance / 100
        )
