"""Dot products with every row of a table: each implementation against float64, with gradients."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from kernel_cases import REFERENCE, Implementation, compiled, normal, poison
from torch import Tensor

from eans import kernels
from eans.kernels.deferred_gradients import deferred_for
from eans.kernels.matmul import tensor_cores
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve
from eans.training import Trainer
from helpers_runs import ring_graph

# B, D, E
SHAPES = [(1, 1, 1), (3, 4, 7), (5, 8, 3), (33, 17, 40), (0, 4, 5), (3, 4, 0), (64, 200, 301)]
FULL_SHAPES = [shape for shape in SHAPES if all(shape)]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


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
    """The largest difference in units of the largest value, over scores and gradients."""
    assert [part.shape for part in found] == [part.shape for part in truth]
    pairs = list(zip(found, truth, strict=True))
    assert not any(a.any() for a, b in pairs if not b.any())
    return max((float((a - b).abs().max() / b.abs().max()) for a, b in pairs if b.any()), default=0.0)


def test_triton_leaves_products_to_the_tensor_cores() -> None:
    """The module needs no Triton, so that it is tested wherever PyTorch runs."""
    assert kernels.products.by("triton") is tensor_cores.products
    assert kernels.products.by("numba") is REFERENCE.products


@shapes
@pytest.mark.parametrize("module", [REFERENCE, tensor_cores], ids=["reference", "tensor_cores"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 2e-6)], ids=["64", "32"])
def test_on_a_cpu_products_are_exact(module: Any, shape: tuple[int, ...], dtype: torch.dtype, tolerance: float) -> None:
    if not shape[0]:
        assert results(module, shape, dtype)[0].shape == (0, shape[2])
        return
    assert furthest(results(module, shape, dtype), expected(shape)) < tolerance


@pytest.mark.parametrize("implementation", ["auto", "reference", "numba"])
def test_on_a_cpu_all_go_the_same_way(implementation: str) -> None:
    with kernels.chosen(implementation):
        assert furthest(results(kernels, SHAPES[3], torch.float64), expected(SHAPES[3])) < 1e-14


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
        for module in (tensor_cores, REFERENCE)
    )
    for ours, theirs in zip(found, truth, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_rows_begin_where_tensor_cores_need_them() -> None:
    queries, table, _ = case((3, 4, 13))
    scores = tensor_cores.products(queries, table)
    assert scores.shape == (3, 13)
    assert scores.stride() == (16, 1)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 16, 301])
def test_parts_cover_all_rows_once(size: int) -> None:
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
    deferred = deferred_for(parameter)
    first, second = (tensor_cores.products(part, parameter[:, :4], deferred) for part in (queries, queries * 2))
    torch.autograd.backward([first, second], [outer, outer])
    assert len(deferred.leading) == 1
    assert parameter.grad is not None
    torch.testing.assert_close(deferred.leading[0] + parameter.grad, 3 * expected((3, 4, 5))[2])


def rounded_results(shape: tuple[int, ...], padded: bool, device: str = "cpu") -> tuple[list[Tensor], list[Tensor]]:
    """Scores and both gradients with a rounded copy, and from the values that the rounded factors stand for."""
    queries, table, outer = (part.to(device, torch.float32) for part in case(shape))
    wider = torch.nn.Parameter(torch.cat([table, table[:, :1]], dim=1))
    deferred = deferred_for(wider)
    deferred.rounded = tensor_cores.rounded_copy(wider.detach()) if padded else wider.detach().bfloat16()
    queries.requires_grad_()
    scores = tensor_cores.products(queries, wider[:, : table.shape[1]], deferred)
    assert scores.dtype == torch.float32
    (to_queries,) = torch.autograd.grad(scores, queries, outer)
    (to_table,) = deferred.leading
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
    """After it has been used, PyTorch raises an error for the older one."""
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
    assert furthest(results(REFERENCE, shape, torch.float32, "cuda"), expected(shape)) < 2e-6


@needs_gpu
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")
@pytest.mark.parametrize("shape", FULL_SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("padded", [False, True])
def test_on_a_gpu_sums_of_rounded_factors_have_float32(shape: tuple[int, ...], padded: bool) -> None:
    assert furthest(*rounded_results(shape, padded, "cuda")) < 2e-6


# --- steps ------------------------------------------------------------------------------------------------------------


def small_trainer(recipe: str, device: str, *overrides: str) -> Trainer:
    graph = ring_graph(13)
    small = ["model.dim=6", "train.steps=4", "train.batch_size=5", *overrides]
    return build_trainer(resolve(load(recipe, small), graph), graph, device)


@compiled
@pytest.mark.parametrize("recipe", ["complex/all+n3", "distmult/all", "simple/all"])
def test_steps_with_all_entities(ops: Implementation, recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products, the softmax kernel and an update that finds the product's gradient among the deferred ones.

    Without rounded factors: a first step of Adagrad has the length of the learning rate, whatever the gradient's, and
    goes the other way where rounding turns the sign of a small one.
    """
    monkeypatch.setattr(tensor_cores, "rounded_factors", nullcontext)
    tables = []
    for name in ("reference", ops.name):
        with kernels.chosen(name):
            trainer = small_trainer(recipe, ops.device)
            for _ in range(4):
                trainer.step()
        tables.append(trainer.model.state_dict())
    for name, table in tables[0].items():
        torch.testing.assert_close(tables[1][name], table, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("ops", ["triton"], indirect=True)
def test_steps_with_all_entities_and_rounded_factors(ops: Implementation) -> None:
    """The rounded copy follows the table, with zeros behind it, and a state that is loaded goes on to the same bits."""
    with kernels.chosen("triton"):
        first, second = (small_trainer("complex/all+n3", ops.device, "train.rows=bfloat16") for _ in range(2))
        for _ in range(2):
            first.step()
        second.load_state(*first.state())
        if ops.device == "cpu":  # the interpreter cuts off bits where a GPU, and PyTorch, round
            first.optimizer.refresh()
        for trainer in (first, second):
            trainer.step()
            deferred = trainer.optimizer.deferred[0]
            assert deferred is not None
            assert deferred.rounded is not None
            assert len(deferred.rounded) == 16
            assert not deferred.rounded[13:].any()
            torch.testing.assert_close(deferred.rounded[:13].float(), trainer.model.entity.detach(), rtol=2**-7, atol=0)
    expected, _ = first.state()
    found, _ = second.state()
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []
