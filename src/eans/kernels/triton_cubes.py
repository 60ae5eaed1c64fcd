"""Cubes of the sizes of a batch's coordinates, for the N3 penalty: a kernel for the sum and one for its gradient.

`eans.kernels.reference_step.cubed_sizes` defines it.
"""

# Triton has no type stubs, its decorator is untyped, and the arguments of a kernel have no Python types to state.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from eans.kernels import reference_step

COLUMNS, WARPS = 1024, 4


@triton.jit
def _sizes(coordinates, row, columns, inside, WIDTH: tl.constexpr, PARTS: tl.constexpr):
    """The parts of some coordinates of a row, the second one zero if there is none, and their sizes."""
    here = coordinates + row * (PARTS * WIDTH) + columns
    first = tl.load(here, mask=inside, other=0.0)
    if PARTS == 1:
        return first, first * 0.0, tl.abs(first)
    second = tl.load(here + WIDTH, mask=inside, other=0.0)
    return first, second, tl.sqrt(first * first + second * second)


@triton.jit
def _forward_kernel(sums, coordinates, WIDTH: tl.constexpr, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
    """The sum of a row, ``[B]``."""
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros([COLUMNS], dtype=coordinates.dtype.element_ty)
    for start in range(0, WIDTH, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        _, _, size = _sizes(coordinates, row, columns, columns < WIDTH, WIDTH, PARTS)
        total += size * size * size
    tl.store(sums + row, tl.sum(total, axis=0))


@triton.jit
def _backward_kernel(gradient, coordinates, upstream, WIDTH: tl.constexpr, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
    """``3 |x| x`` of some coordinates of a row, times what comes from above."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = columns < WIDTH
    first, second, size = _sizes(coordinates, row, columns, inside, WIDTH, PARTS)
    slope = 3.0 * tl.load(upstream) * size
    here = gradient + row * (PARTS * WIDTH) + columns
    tl.store(here, slope * first, mask=inside)
    if PARTS == 2:
        tl.store(here + WIDTH, slope * second, mask=inside)


class _CubedSizes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, coordinates: Tensor) -> Tensor:
        batch, parts, width = coordinates.shape
        ctx.save_for_backward(coordinates)
        sums = coordinates.new_empty(batch)
        with torch.cuda.device_of(coordinates):
            _forward_kernel[(batch,)](
                sums, coordinates, WIDTH=width, PARTS=parts, COLUMNS=_columns(width), num_warps=WARPS
            )
        return sums.sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        (coordinates,) = ctx.saved_tensors
        batch, parts, width = coordinates.shape
        gradient = torch.empty_like(coordinates)
        columns = _columns(width)
        with torch.cuda.device_of(coordinates):
            _backward_kernel[(batch, triton.cdiv(width, columns))](
                gradient, coordinates, upstream, WIDTH=width, PARTS=parts, COLUMNS=columns, num_warps=WARPS
            )
        return gradient


def _columns(width: int) -> int:
    return min(COLUMNS, int(triton.next_power_of_2(width)))


def cubed_sizes(coordinates: Tensor) -> Tensor:
    """`reference_step.cubed_sizes`; by kernels of its own for ``[B, P, d]`` of one or two parts."""
    if coordinates.dim() != 3 or coordinates.shape[1] > 2 or not coordinates.numel():
        return reference_step.cubed_sizes(coordinates)
    total: Tensor = _CubedSizes.apply(coordinates.contiguous())
    return total
