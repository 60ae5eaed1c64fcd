"""Comparing one row with one query, complex products, projections: one kernel forwards and one backwards each."""

# Triton has no type stubs, its decorator is untyped, and the arguments of a kernel have no Python types to state.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from eans.kernels.kinds import Comparison, width_of
from eans.kernels.triton_tiles import load_planes, to_candidate
from eans.kernels.vectors import reference

COLUMNS = 256


class Kernels(NamedTuple):
    """A function of two matrices ``[B, ...]``, row by row, and its gradients.

    Attributes:
        forward, backward: kernels; called with ``(out, left, right, *strides)`` and ``(to_left, to_right, gradient,
            left, right, *strides)``, where the strides are those of the rows unless the kernels know them.
        sliced: does each program of `forward`, and of `backward`, have a slice of COLUMNS of a row? Otherwise a row.
        shape: of `out`.
        constants: WIDTH, columns of a slice's plane, and what else both know when they are compiled.
    """

    forward: Any
    backward: Any
    sliced: tuple[bool, bool]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    constants: dict[str, Any]

    def grid(self, backward: bool) -> tuple[int]:
        """The number of programs."""
        slices = triton.cdiv(self.constants["WIDTH"], COLUMNS) if self.sliced[backward] else 1
        return (self.shape[0] * slices,)


class _ByRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernels: Kernels, left: Tensor, right: Tensor) -> Tensor:
        ctx.kernels = kernels
        ctx.save_for_backward(left, right)
        out = left.new_empty(kernels.shape)
        with torch.cuda.device_of(left):
            kernels.forward[kernels.grid(False)](out, left, right, *kernels.strides, **kernels.constants, C=COLUMNS)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, Tensor]:
        left, right = ctx.saved_tensors
        kernels, gradient = ctx.kernels, gradient.contiguous()
        to_left, to_right = left.new_empty(left.shape), right.new_empty(right.shape)
        with torch.cuda.device_of(left):
            kernels.backward[kernels.grid(True)](
                to_left, to_right, gradient, left, right, *kernels.strides, **kernels.constants, C=COLUMNS
            )
        return None, to_left, to_right


def _by_rows(kernels: Kernels, left: Tensor, right: Tensor) -> Tensor:
    out: Tensor = _ByRows.apply(kernels, left, right)
    return out


@triton.jit
def _slice(WIDTH: tl.constexpr, C: tl.constexpr):
    """Of a program: its row, its columns, and which of these there are."""
    slices: tl.constexpr = (WIDTH + C - 1) // C
    row = (tl.program_id(0) // slices).to(tl.int64)
    columns = (tl.program_id(0) % slices) * C + tl.arange(0, C)
    return row, columns, columns < WIDTH


# --- comparing --------------------------------------------------------------------------------------------------------


@triton.jit
def _rows_kernel(scores, queries, rows, WIDTH: tl.constexpr, DIM: tl.constexpr, KIND: tl.constexpr, C: tl.constexpr):
    """One score of two rows ``[D]``."""
    here = tl.program_id(0).to(tl.int64)
    total = tl.zeros([C], dtype=scores.dtype.element_ty)
    for start in range(0, WIDTH, C):
        columns = start + tl.arange(0, C)
        inside = columns < WIDTH
        query = load_planes(queries + here * DIM + columns, inside, WIDTH, KIND)
        row = load_planes(rows + here * DIM + columns, inside, WIDTH, KIND)
        if KIND == "dot":
            part = query[0] * row[0]
        elif KIND == "l1":
            part = -tl.abs(query[0] - row[0])
        else:
            real = query[0] - row[0]
            imag = query[1] - row[1]
            part = -tl.sqrt(real * real + imag * imag)
        total += tl.where(inside, part, 0.0)
    tl.store(scores + here, tl.sum(total, axis=0))


@triton.jit
def _rows_gradient_kernel(
    to_queries, to_rows, gradient, queries, rows, WIDTH: tl.constexpr, DIM: tl.constexpr, KIND: tl.constexpr,
    C: tl.constexpr,
):  # fmt: skip
    here, columns, inside = _slice(WIDTH, C)
    offset = here * DIM + columns
    query = load_planes(queries + offset, inside, WIDTH, KIND)
    row = load_planes(rows + offset, inside, WIDTH, KIND)
    outer = tl.load(gradient + here)
    pull = to_candidate(outer, query, row, KIND)
    push = (-pull[0], -pull[1])
    if KIND == "dot":
        push = (outer * row[0], outer * row[1])
    tl.store(to_rows + offset, pull[0], mask=inside)
    tl.store(to_queries + offset, push[0], mask=inside)
    if KIND == "modulus":
        tl.store(to_rows + offset + WIDTH, pull[1], mask=inside)
        tl.store(to_queries + offset + WIDTH, push[1], mask=inside)


def compare_rows(kind: Comparison, query: Tensor, candidate: Tensor) -> Tensor:
    """`eans.kernels.compare_rows`; a kernel of its own for ``[B, D]`` and ``[B, D]``."""
    if query.shape != candidate.shape or query.dim() != 2:
        return reference.compare_rows(kind, query, candidate)
    batch, dim = query.shape
    constants = {"WIDTH": width_of(kind, dim), "DIM": dim, "KIND": kind}
    kernels = Kernels(_rows_kernel, _rows_gradient_kernel, (False, True), (batch,), (), constants)
    return _by_rows(kernels, query.contiguous(), candidate.contiguous())


# --- complex products -------------------------------------------------------------------------------------------------


@triton.jit
def _product_kernel(
    out, left, right, left_stride, right_stride, WIDTH: tl.constexpr, CONJUGATE: tl.constexpr, C: tl.constexpr
):
    """``left * right`` or ``left * conj(right)``, row by row."""
    row, columns, inside = _slice(WIDTH, C)
    a = load_planes(left + row * left_stride + columns, inside, WIDTH, "modulus")
    b = load_planes(right + row * right_stride + columns, inside, WIDTH, "modulus")
    imag = -b[1] if CONJUGATE else b[1]
    here = out + row * (2 * WIDTH) + columns
    tl.store(here, a[0] * b[0] - a[1] * imag, mask=inside)
    tl.store(here + WIDTH, a[0] * imag + a[1] * b[0], mask=inside)


@triton.jit
def _product_gradient_kernel(
    to_left, to_right, gradient, left, right, left_stride, right_stride, WIDTH: tl.constexpr,
    CONJUGATE: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    row, columns, inside = _slice(WIDTH, C)
    here = row * (2 * WIDTH) + columns
    g = load_planes(gradient + here, inside, WIDTH, "modulus")
    a = load_planes(left + row * left_stride + columns, inside, WIDTH, "modulus")
    b = load_planes(right + row * right_stride + columns, inside, WIDTH, "modulus")
    imag = -b[1] if CONJUGATE else b[1]
    tl.store(to_left + here, g[0] * b[0] + g[1] * imag, mask=inside)
    tl.store(to_left + here + WIDTH, g[1] * b[0] - g[0] * imag, mask=inside)
    turned = g[1] * a[0] - g[0] * a[1]
    tl.store(to_right + here, g[0] * a[0] + g[1] * a[1], mask=inside)
    tl.store(to_right + here + WIDTH, -turned if CONJUGATE else turned, mask=inside)


def complex_product(left: Tensor, right: Tensor, conjugate_right: bool = False) -> Tensor:
    """`eans.kernels.complex_product`; a kernel of its own for ``[B, 2d]`` with ``[B, 2d]`` or ``[1, 2d]``."""
    if left.dim() == right.dim() == 2 and len(right) == 1:
        right = right.expand(len(left), -1)
    if left.shape != right.shape or left.dim() != 2 or left.stride(1) != 1 or right.stride(1) != 1:
        return reference.complex_product(left, right, conjugate_right)
    strides, constants = (left.stride(0), right.stride(0)), {"WIDTH": left.shape[1] // 2, "CONJUGATE": conjugate_right}
    kernels = Kernels(_product_kernel, _product_gradient_kernel, (True, True), tuple(left.shape), strides, constants)
    return _by_rows(kernels, left, right)


# --- projections ------------------------------------------------------------------------------------------------------


@triton.jit
def _project_kernel(out, rows, directions, row_stride, direction_stride, WIDTH: tl.constexpr, C: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    rows += row * row_stride
    total = tl.zeros([C], dtype=out.dtype.element_ty)
    for start in range(0, WIDTH, C):
        columns = start + tl.arange(0, C)
        inside = columns < WIDTH
        total += tl.load(rows + columns, mask=inside, other=0.0) * tl.load(
            rows + WIDTH + columns, mask=inside, other=0.0
        )
    scalar = tl.sum(total, axis=0)
    for start in range(0, WIDTH, C):
        columns = start + tl.arange(0, C)
        inside = columns < WIDTH
        direction = tl.load(directions + row * direction_stride + columns, mask=inside)
        left = tl.load(rows + columns, mask=inside)
        tl.store(out + row * WIDTH + columns, left + scalar * direction, mask=inside)


@triton.jit
def _project_gradient_kernel(
    to_rows, to_directions, gradient, rows, directions, row_stride, direction_stride, WIDTH: tl.constexpr,
    C: tl.constexpr,
):  # fmt: skip
    """With s the inner product: ``to_direction = s g``, ``to_left = g + (g . direction) right``, likewise to_right."""
    row = tl.program_id(0).to(tl.int64)
    rows += row * row_stride
    directions += row * direction_stride
    gradient += row * WIDTH
    product = tl.zeros([C], dtype=to_rows.dtype.element_ty)
    along = product
    for start in range(0, WIDTH, C):
        columns = start + tl.arange(0, C)
        inside = columns < WIDTH
        outer = tl.load(gradient + columns, mask=inside, other=0.0)
        along += outer * tl.load(directions + columns, mask=inside, other=0.0)
        left = tl.load(rows + columns, mask=inside, other=0.0)
        product += left * tl.load(rows + WIDTH + columns, mask=inside, other=0.0)
    scalar = tl.sum(product, axis=0)
    pull = tl.sum(along, axis=0)
    for start in range(0, WIDTH, C):
        columns = start + tl.arange(0, C)
        inside = columns < WIDTH
        outer = tl.load(gradient + columns, mask=inside)
        left = tl.load(rows + columns, mask=inside)
        right = tl.load(rows + WIDTH + columns, mask=inside)
        tl.store(to_directions + row * WIDTH + columns, scalar * outer, mask=inside)
        target = to_rows + row * (2 * WIDTH) + columns
        tl.store(target, outer + pull * right, mask=inside)
        tl.store(target + WIDTH, pull * left, mask=inside)


def project(rows: Tensor, direction: Tensor) -> Tensor:
    """`eans.kernels.project`; a kernel of its own for ``[B, 2d]`` with ``[B, d]`` or ``[1, d]``."""
    if rows.dim() != 2 or direction.dim() != 2 or rows.stride(1) != 1 or direction.stride(1) != 1:
        return reference.project(rows, direction)
    direction = direction.expand(len(rows), -1)
    strides, constants = (rows.stride(0), direction.stride(0)), {"WIDTH": direction.shape[1]}
    shape = tuple(direction.shape)
    kernels = Kernels(_project_kernel, _project_gradient_kernel, (False, False), shape, strides, constants)
    return _by_rows(kernels, rows, direction)
