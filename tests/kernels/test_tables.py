"""Sums over tables and coordinates in every implementation; deferred gradients are part of `test_updates`."""

from __future__ import annotations

import pytest
import torch
from kernel_cases import REFERENCE, Implementation, assert_defined, assert_near, compiled, normal, types
from torch import nn

from eans.kernels.deferred_gradients import deferred_for


@types
@pytest.mark.parametrize(("rows", "columns"), [(1, 2), (7, 10), (50, 134)])
def test_sums_of_a_table(ops: Implementation, rows: int, columns: int, dtype: torch.dtype) -> None:
    table = normal(rows, columns, dtype=dtype)
    assert_defined(ops.sum_abs_cubed, lambda x: x.abs().pow(3).sum(), table, device=ops.device)
    half = columns // 2
    assert_defined(ops.half_products, lambda x: (x[:, :half] * x[:, half:]).sum(1), table, device=ops.device)


@compiled
@types
@pytest.mark.parametrize(("rows", "columns"), [(1, 2), (7, 10), (50, 134)])
def test_sums_of_a_table_that_collects(ops: Implementation, rows: int, columns: int, dtype: torch.dtype) -> None:
    table = nn.Parameter(ops.put(normal(rows, columns, dtype=dtype)))
    wide = table.detach().cpu().double()
    deferred = deferred_for(table)
    cubed, products = ops.sum_abs_cubed(table, deferred), ops.half_products(table, deferred)
    assert_near(cubed.detach(), REFERENCE.sum_abs_cubed(wide))
    assert_near(products.detach(), REFERENCE.half_products(wide))
    (cubed + products.sum()).backward()
    assert table.grad is None
    assert [len(part) for part in (deferred.cubed, deferred.products)] == [1, 1]


@compiled
def test_what_is_not_finite_shows(ops: Implementation) -> None:
    table = nn.Parameter(ops.put(normal(5, 6).float()))
    deferred = deferred_for(table)
    table.data[3, 2] = float("nan")
    assert ops.sum_abs_cubed(table, deferred).isnan()
    assert ops.half_products(table, deferred).isnan().nonzero().tolist() == [[3]]


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 1, 11), (3, 2, 8), (4, 2, 21), (0, 2, 3), (2, 3, 4), (2, 2, 3, 2)])
def test_sum_moduli_cubed(ops: Implementation, shape: tuple[int, ...]) -> None:
    inputs = normal(*shape)
    if inputs.numel():
        inputs.view(-1)[0] = 0.0
    if shape[1] > 1:  # the naive way has no slope at a modulus of zero, which a single zero part is not

        def naive(x: torch.Tensor) -> torch.Tensor:
            return x.square().sum(1).pow(1.5).sum()

        assert_defined(ops.sum_moduli_cubed, naive, inputs, device=ops.device)
    for values in (inputs, inputs.transpose(1, -1).contiguous().transpose(1, -1)):  # other strides
        assert_defined(ops.sum_moduli_cubed, REFERENCE.sum_moduli_cubed, values, device=ops.device)
