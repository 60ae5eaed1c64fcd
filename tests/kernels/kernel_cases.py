"""What the suites of the kernels share: implementations, random cases, and comparisons with the float64 reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from eans import kernels
from eans.kernels import Comparison
from eans.kernels.deferred_gradients import DeferredGradients

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-13}
GPU = torch.cuda.is_available()
REFERENCE = kernels.functions("reference")

kinds = pytest.mark.parametrize("kind", kernels.COMPARISONS)
with_shift = pytest.mark.parametrize("shifted", [False, True], ids=["plain", "shifted"])
types = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
only_reference = pytest.mark.parametrize("ops", ["reference"], indirect=True)
only_numba = pytest.mark.parametrize("ops", ["numba"], indirect=True)
only_triton = pytest.mark.parametrize("ops", ["triton"], indirect=True)
compiled = pytest.mark.parametrize("ops", ["numba", "triton"], indirect=True)


# --- implementations ------------------------------------------------------------------------------------------------


class Implementation(SimpleNamespace):
    """The operations of an implementation by name, its own `name`, and the `device` where it runs."""

    name: str
    device: str

    def put(self, values: Tensor) -> Tensor:
        return values.to(self.device)


def deferring(ops: Any, deferred: DeferredGradients | None) -> SimpleNamespace:
    """The operations on a table that leave its gradient in `deferred`, and whatever else `ops` has."""
    names = ("compare", "gather", "half_products", "products", "sum_abs_cubed")
    bound = {name: partial(getattr(ops, name), deferred=deferred) for name in names}
    return SimpleNamespace(**{**vars(ops), "put": ops.put, **bound})


@contextmanager
def prepared(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Implementation]:
    """An implementation with small blocks; buffers that nobody writes hold NaN. Skips where it is not installed."""
    if name != "reference":
        pytest.importorskip(name)
    threads = torch.get_num_threads()
    {"reference": _small_blocks, "numba": _two_threads, "triton": _small_tiles}[name](monkeypatch)
    poison(monkeypatch)
    device = "cuda" if name == "triton" and GPU else "cpu"
    try:
        yield Implementation(name=name, device=device, **vars(kernels.functions(name)))
    finally:
        torch.set_num_threads(threads)


def _set(monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]) -> None:
    for name, value in values.items():
        module, _, attribute = name.rpartition(".")
        monkeypatch.setattr(import_module(f"eans.kernels.{module}"), attribute, value)


def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    _set(monkeypatch, {"blocks.BLOCK_ELEMENTS": {"cpu": 40, "cuda": 40}, "kmeans.reference.GROUP_ROWS": 7})


def _two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(2)
    _set(
        monkeypatch,
        {
            "numba_threads.SERIAL_BELOW": 1,
            "numba_arrays.MAPPED_BYTES": 1000,
            "rank.numba.TILE_BYTES": 2000,
            "tables.numba.CUBE_BLOCK": 16,
        },
    )


def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles along every axis, with one row or several at a time."""
    let_interpreter_read_bounds(monkeypatch)
    tile = import_module("eans.kernels.triton_tiles").Tile
    several = {kind: tile(rows, 8, 1) for kind, rows in zip(kernels.COMPARISONS, (1, 2, 4), strict=True)}
    rank, kmeans = import_module("eans.kernels.rank.triton"), import_module("eans.kernels.kmeans.triton")
    _set(
        monkeypatch,
        {
            "comparison.triton.FORWARD_TILES": dict.fromkeys(several, tile(4, 8, 1)),
            "comparison.triton.SHIFTED_TILE": tile(2, 8, 1),
            "comparison.triton_queries.QUERY_TILES": several,
            "comparison.triton_queries.SHIFTED_QUERY_TILE": tile(2, 8, 1),
            "comparison.triton_candidates.CANDIDATE_TILES": several,
            "rank.triton.RANK_BLOCKS": dict.fromkeys(("l1", "modulus"), rank.Block(2, 4, 8, 1)),
            "rank.triton.COUNT_CHUNK": 20,
            "rank.triton.COUNT_TILE": 8,
            "vectors.triton.COLUMNS": 8,
            "tables.triton.PRODUCT_COLUMNS": 8,
            "tables.triton.MODULI_COLUMNS": 8,
            "tables.triton.CUBE_BLOCK": 16,
            "tables.triton.CUBE_PROGRAMS": 3,
            "sampling.triton.BATCH_BLOCK": 4,
            "sampling.triton.BATCH_OTHERS": 4,
            "sampling.triton.CANDIDATES": 4,
            "sampling.triton.OTHERS": 4,
            "softmax.triton.COLUMNS": 4,
            "kmeans.triton.NEAREST_BLOCK": kmeans.Block(16, 16, 16, 4),
            "kmeans.triton.COLUMNS": 8,
            "kmeans.triton.LEAST_INTERVAL": 4,
            "updates.triton.PLAIN_TILE": tile(2, 8, 1),
            "updates.triton.FEW_USES": 0,
            "updates.triton.CANDIDATE_TILES": several,
        },
    )


def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make fresh buffers hold NaN, so that a value nobody wrote shows."""
    plain_empty, plain_like, plain_new = torch.empty, torch.empty_like, Tensor.new_empty

    def poisoned(buffer: Tensor) -> Tensor:
        return buffer.fill_(float("nan")) if buffer.is_floating_point() else buffer

    monkeypatch.setattr(torch, "empty", lambda *a, **k: poisoned(plain_empty(*a, **k)))
    monkeypatch.setattr(torch, "empty_like", lambda *a, **k: poisoned(plain_like(*a, **k)))
    monkeypatch.setattr(Tensor, "new_empty", lambda *a, **k: poisoned(plain_new(*a, **k)))


def let_interpreter_read_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 3.6's interpreter reads loop bounds by ``int(array of one number)``, an error since NumPy 2.4."""
    from triton.runtime import interpreter

    patch_tensor = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patched)


# --- values -----------------------------------------------------------------------------------------------------------


def normal(*size: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def strided(rows: Tensor) -> Tensor:
    """The same rows, with gaps that hold NaN."""
    gap = torch.full((len(rows), 3), float("nan"), dtype=rows.dtype, device=rows.device)
    return torch.cat([rows, gap], 1)[:, : rows.shape[1]]


def with_gradients(function: Callable[..., Tensor], *inputs: Tensor, seed: int = 9) -> list[Tensor]:
    """The result and the gradient of every input."""
    leaves = [value.detach().requires_grad_() for value in inputs]
    result = function(*leaves)
    outer = normal(*result.shape, seed=seed, dtype=result.dtype).to(result.device)
    return [result.detach(), *torch.autograd.grad(result, leaves, outer)]


def assert_near(value: Tensor, expected: Tensor, name: str = "") -> None:
    value, expected = value.cpu(), expected.cpu()
    assert value.shape == expected.shape
    error = torch.linalg.vector_norm(value.double() - expected)
    assert error <= TOLERANCE[value.dtype] * torch.linalg.vector_norm(expected), (name, float(error))


def assert_defined(
    function: Callable[..., Tensor], definition: Callable[..., Tensor], *inputs: Tensor, device: str = "cpu"
) -> None:
    """Result and gradients are those of the definition in float64, and have the type of the inputs."""
    expected = with_gradients(definition, *(value.double() for value in inputs))
    found = with_gradients(function, *(value.to(device) for value in inputs))
    for one, exact in zip(found, expected, strict=True):
        assert one.dtype == inputs[0].dtype
        assert_near(one, exact)


def same_bits(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(one, two) for one, two in zip(first, second, strict=True))


# --- comparisons ------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """Arguments of `compare` after the kind, and the gradient of its scores."""

    queries: Tensor
    table: Tensor
    entities: Tensor
    shifts: Tensor | None
    scalars: Tensor | None
    outer: Tensor

    def to(self, device: str) -> Case:
        return Case(*(None if value is None else value.to(device) for value in self))  # type: ignore[arg-type]

    def widened(self) -> Case:
        """In float64."""
        return Case(*(value.double() if value is not None and value.is_floating_point() else value for value in self))

    def ranked(self) -> tuple[Any, ...]:
        """Arguments of `compare_all` after the kind, from the first query of each positive."""
        return self.queries[0], self.table, None if self.shifts is None else self.shifts[0], self.scalars


class Shape(NamedTuple):
    count: int
    batch: int
    negatives: int
    dim: int
    entities: int


def make_case(shape: Shape, shifted: bool, dtype: torch.dtype = torch.float64) -> Case:
    generator = torch.Generator().manual_seed(sum(shape))

    def random(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64).to(dtype)

    count, batch, negatives, dim, num_entities = shape
    # The last two entities are never drawn; with few entities the others are drawn many times.
    drawn = torch.randint(max(1, num_entities - 2), (batch, negatives), generator=generator)
    return Case(
        random(count, batch, dim),
        random(num_entities, dim + 3)[:, :dim],  # strided rows
        drawn,
        random(count, batch, dim) if shifted else None,
        random(num_entities) if shifted else None,
        random(count, batch, negatives),
    )


def results(ops: Any, kind: Comparison, case: Case) -> dict[str, Tensor]:
    """Scores and every gradient of `compare`."""
    case = case.to(getattr(ops, "device", "cpu"))
    named = {"queries": case.queries, "table": case.table, "shifts": case.shifts, "scalars": case.scalars}
    inputs = {name: value.detach().requires_grad_() for name, value in named.items() if value is not None}
    scores = ops.compare(
        kind, inputs["queries"], inputs["table"], case.entities, inputs.get("shifts"), inputs.get("scalars")
    )
    gradients = torch.autograd.grad(scores, list(inputs.values()), case.outer.to(scores.dtype))
    return {"scores": scores.detach(), **dict(zip(inputs, gradients, strict=True))}


def assert_equal_to_reference(ops: Any, kind: Comparison, case: Case) -> None:
    expected = results(REFERENCE, kind, case.widened())
    for name, value in results(ops, kind, case).items():
        assert value.dtype == case.queries.dtype
        assert_near(value, expected[name], name)
