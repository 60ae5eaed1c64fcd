"""Dot products with every row of a table: each implementation against float64, with gradients."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
import torch
from kernel_cases import poison
from torch import Tensor

from eans import kernels
from eans.kernels import reference_step, tensor_cores
from eans.kernels.pending import collect

# B, D, E
SHAPES = [(1, 1, 1), (3, 4, 7), (5, 8, 3), (33, 17, 40), (0, 4, 5), (3, 4, 0), (64, 200, 301)]
FULL_SHAPES = [shape for shape in SHAPES if all(shape)]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
HOMES = {name: homes.get("products", "reference_step") for name, homes in kernels._HOMES.items()}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def normal(*size: int, seed: int) -> Tensor:
    return torch.randn(*size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def case(shape: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, the columns of a wider table, and the gradient of the scores."""
    batch, dim, entities = shape
    return (
        normal(batch, dim, seed=1),
        normal(entities, dim + 3, seed=2)[:, :dim],
        normal(batch, entities, seed=3),
    )


def results(module: Any, shape: tuple[int, ...], dtype: torch.dtype, device: str = "cpu") -> list[Tensor]:
    """Scores and both gradients, as float64 on the CPU."""
    queries, table, outer = (part.to(device, dtype) for part in case(shape))
    queries.requires_grad_()
    table.requires_grad_()
    scores = module.products(queries, table)
    assert (scores.dtype, scores.device.type) == (dtype, device)
    return [part.double().cpu() for part in (scores.detach(), *torch.autograd.grad(scores, (queries, table), outer))]


def expected(shape: tuple[int, ...]) -> list[Tensor]:
    queries, table, outer = case(shape)
    return [
        torch.einsum("bd,ed->be", queries, table),
        torch.einsum("be,ed->bd", outer, table),
        torch.einsum("be,bd->ed", outer, queries),
    ]


def furthest(found: list[Tensor], truth: list[Tensor]) -> float:
    """The largest difference in units of the largest number, over scores and gradients."""
    assert [part.shape for part in found] == [part.shape for part in truth]
    pairs = list(zip(found, truth, strict=True))
    assert not any(a.any() for a, b in pairs if not b.any())
    return max((float((a - b).abs().max() / b.abs().max()) for a, b in pairs if b.any()), default=0.0)


def test_every_implementation_has_a_home() -> None:
    assert HOMES == {"reference": "reference_step", "numba": "reference_step", "triton": "tensor_cores"}


@shapes
@pytest.mark.parametrize("home", sorted(set(HOMES.values())))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 2e-6)], ids=["64", "32"])
def test_on_a_cpu_products_are_exact(home: str, shape: tuple[int, ...], dtype: torch.dtype, tolerance: float) -> None:
    module = import_module(f"eans.kernels.{home}")
    if not shape[0]:
        assert results(module, shape, dtype)[0].shape == (0, shape[2])
        return
    assert furthest(results(module, shape, dtype), expected(shape)) < tolerance


@pytest.mark.parametrize("implementation", ["auto", "reference", "numba"])
def test_on_a_cpu_all_go_the_same_way(implementation: str) -> None:
    before = kernels.choose(implementation)
    try:
        assert furthest(results(kernels, SHAPES[3], torch.float64), expected(SHAPES[3])) < 1e-14
    finally:
        kernels.choose(before)


def test_gradients_by_finite_differences() -> None:
    queries, table, _ = case((3, 4, 5))
    torch.autograd.gradcheck(tensor_cores.products, (queries.requires_grad_(), table.requires_grad_()))


def test_a_gradient_that_is_not_contiguous() -> None:
    """Scores may be added up in other layouts than they were made in."""
    queries, table, _ = case((6, 4, 5))
    queries.requires_grad_()
    table.requires_grad_()
    found, truth = (
        torch.autograd.grad(module.products(queries, table).T.expand(3, 5, 6).sum(), (queries, table))
        for module in (tensor_cores, reference_step)
    )
    for ours, theirs in zip(found, truth, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_rows_begin_where_tensor_cores_want_them() -> None:
    queries, table, _ = case((3, 4, 13))
    scores = tensor_cores.products(queries, table)
    assert scores.shape == (3, 13)
    assert scores.stride() == (16, 1)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 301])
def test_parts_cover_everything_once(size: int) -> None:
    """And the first is as long as it can be."""
    found = tensor_cores.parts(size)
    assert [place for part in found for place in range(size)[part]] == list(range(size))
    assert len(found) <= 2
    assert all((part.stop - part.start) % tensor_cores.ALIGNMENT == 0 for part in found[:-1])
    assert size < 8 or (found[0].stop % tensor_cores.ALIGNMENT == 0 and size - found[0].stop < 8)


def test_a_table_that_collects_gets_one_part() -> None:
    """The gradient of the first product waits for the optimizer; that of a second one arrives as usual."""
    queries, table, outer = case((3, 4, 5))
    parameter = torch.nn.Parameter(table.clone())
    pending = collect(parameter)
    first, second = (tensor_cores.products(part, parameter[:, :4]) for part in (queries, queries * 2))
    torch.autograd.backward([first, second], [outer, outer])
    assert len(pending.leading) == 1
    assert parameter.grad is not None
    torch.testing.assert_close(pending.leading[0] + parameter.grad, 3 * expected((3, 4, 5))[2])


def rounded_results(shape: tuple[int, ...], padded: bool, device: str = "cpu") -> tuple[list[Tensor], list[Tensor]]:
    """Scores and both gradients with a rounded copy, and from the numbers that the rounded factors stand for."""
    queries, table, outer = (part.to(device, torch.float32) for part in case(shape))
    wider = torch.nn.Parameter(torch.cat([table, table[:, :1]], dim=1))
    pending = collect(wider)
    pending.rounded = tensor_cores.rounded_copy(wider.detach()) if padded else wider.detach().bfloat16()
    queries.requires_grad_()
    scores = tensor_cores.products(queries, wider[:, : table.shape[1]])
    assert scores.dtype == torch.float32
    (to_queries,) = torch.autograd.grad(scores, queries, outer)
    (to_table,) = pending.leading
    assert (to_queries.dtype, to_table.dtype, wider.grad) == (torch.float32, torch.float32, None)
    assert to_table.is_contiguous()
    left, right, pull = (part.detach().bfloat16().double().cpu() for part in (queries, table, outer))
    truth = [left @ right.T, pull @ right, pull.T @ left]
    return [part.detach().double().cpu() for part in (scores, to_queries, to_table)], truth


@pytest.mark.parametrize("shape", FULL_SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("padded", [False, True])
def test_a_rounded_copy_is_what_products_read(
    shape: tuple[int, ...], padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All factors are rounded to bfloat16, and nothing else: sums and results have float32."""
    poison(monkeypatch)
    assert furthest(*rounded_results(shape, padded)) < 2e-6


@pytest.mark.parametrize("rows", [1, 7, 8, 9])
def test_a_rounded_copy_has_rows_of_zeros_behind_it(rows: int) -> None:
    table = normal(rows, 5, seed=1).float()
    copy = tensor_cores.rounded_copy(table)
    assert len(copy) % tensor_cores.ALIGNMENT == 0 <= len(copy) - rows < tensor_cores.ALIGNMENT
    assert torch.equal(copy[:rows], table.bfloat16())
    assert not copy[rows:].any()


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_the_precision_of_other_products_stays(precision: str) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        results(tensor_cores, SHAPES[1], torch.float32)
        assert torch.get_float32_matmul_precision() == precision
        with tensor_cores.rounded_factors():
            assert torch.backends.cuda.matmul.fp32_precision == "tf32"
        with pytest.raises(RuntimeError, match=r"must match|shapes"):
            tensor_cores.products(torch.zeros(2, 3), torch.zeros(4, 5))
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)


def test_programs_that_use_the_newer_switch() -> None:
    """After it has been used, PyTorch refuses to answer by the older one."""
    switch = torch.backends.cuda.matmul
    before = switch.fp32_precision
    try:
        switch.fp32_precision = "tf32"
        results(tensor_cores, SHAPES[1], torch.float32)
        assert switch.fp32_precision == "tf32"
    finally:
        switch.fp32_precision = before


@needs_gpu
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")  # the first work of autograd's thread is a product
@shapes
def test_on_a_gpu_factors_are_rounded(shape: tuple[int, ...]) -> None:
    if not shape[0]:
        assert results(tensor_cores, shape, torch.float32, "cuda")[0].shape == (0, shape[2])
        return
    assert furthest(results(tensor_cores, shape, torch.float64, "cuda"), expected(shape)) < 1e-14
    rounded = furthest(results(tensor_cores, shape, torch.float32, "cuda"), expected(shape))
    assert (1e-5 if shape == SHAPES[-1] else 0.0) <= rounded < 2e-3
    assert furthest(results(reference_step, shape, torch.float32, "cuda"), expected(shape)) < 2e-6


@needs_gpu
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")
@pytest.mark.parametrize("shape", FULL_SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("padded", [False, True])
def test_on_a_gpu_sums_of_rounded_factors_have_float32(shape: tuple[int, ...], padded: bool) -> None:
    assert furthest(*rounded_results(shape, padded, "cuda")) < 2e-6
