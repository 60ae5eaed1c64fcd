"""Comparing one row with one query, complex products, projections: one kernel forwards and one backwards each.

`reference.compare_rows`, `reference_step.complex_product` and `reference_step.project` define them.
"""

# Triton has no type stubs, its decorator is untyped, and the arguments of a kernel have no Python types to state.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from eans.kernels import reference, reference_step
from eans.kernels.reference import Comparison, width_of
from eans.kernels.triton_tiles import load_planes, to_candidate

COLUMNS = 256


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
    slices: tl.constexpr = (WIDTH + C - 1) // C
    here = (tl.program_id(0) // slices).to(tl.int64)
    columns = (tl.program_id(0) % slices) * C + tl.arange(0, C)
    inside = columns < WIDTH
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


class _CompareRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kind: Comparison, queries: Tensor, rows: Tensor) -> Tensor:
        queries, rows = queries.contiguous(), rows.contiguous()
        ctx.kind = kind
        ctx.save_for_backward(queries, rows)
        batch, dim = queries.shape
        scores = queries.new_empty(batch)
        with torch.cuda.device_of(queries):
            _rows_kernel[(batch,)](scores, queries, rows, WIDTH=width_of(kind, dim), DIM=dim, KIND=kind, C=COLUMNS)
        return scores

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        queries, rows = ctx.saved_tensors
        batch, dim = queries.shape
        width = width_of(ctx.kind, dim)
        to_queries, to_rows = torch.empty_like(queries), torch.empty_like(rows)
        with torch.cuda.device_of(queries):
            _rows_gradient_kernel[(batch * triton.cdiv(width, COLUMNS),)](
                to_queries, to_rows, gradient.contiguous(), queries, rows,
                WIDTH=width, DIM=dim, KIND=ctx.kind, C=COLUMNS,
            )  # fmt: skip
        return None, to_queries, to_rows


def compare_rows(kind: Comparison, query: Tensor, candidate: Tensor) -> Tensor:
    """`reference.compare_rows`; a kernel of its own for ``[B, D]`` and ``[B, D]``."""
    if query.shape != candidate.shape or query.dim() != 2:
        return reference.compare_rows(kind, query, candidate)
    scores: Tensor = _CompareRows.apply(kind, query, candidate)
    return scores


@triton.jit
def _product_kernel(
    out, left, right, left_stride, right_stride, WIDTH: tl.constexpr, CONJUGATE: tl.constexpr, C: tl.constexpr
):
    """``left * right`` or ``left * conj(right)``, row by row."""
    slices: tl.constexpr = (WIDTH + C - 1) // C
    row = (tl.program_id(0) // slices).to(tl.int64)
    columns = (tl.program_id(0) % slices) * C + tl.arange(0, C)
    inside = columns < WIDTH
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
    slices: tl.constexpr = (WIDTH + C - 1) // C
    row = (tl.program_id(0) // slices).to(tl.int64)
    columns = (tl.program_id(0) % slices) * C + tl.arange(0, C)
    inside = columns < WIDTH
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


class _ComplexProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, conjugate: bool) -> Tensor:
        ctx.conjugate = conjugate
        ctx.save_for_backward(left, right)
        width = left.shape[1] // 2
        out = torch.empty_like(left, memory_format=torch.contiguous_format)
        with torch.cuda.device_of(left):
            _product_kernel[(len(left) * triton.cdiv(width, COLUMNS),)](
                out, left, right, left.stride(0), right.stride(0), WIDTH=width, CONJUGATE=conjugate, C=COLUMNS
            )
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        left, right = ctx.saved_tensors
        gradient = gradient.contiguous()
        width = left.shape[1] // 2
        to_left, to_right = torch.empty_like(gradient), torch.empty_like(gradient)
        with torch.cuda.device_of(left):
            _product_gradient_kernel[(len(left) * triton.cdiv(width, COLUMNS),)](
                to_left, to_right, gradient, left, right, left.stride(0), right.stride(0),
                WIDTH=width, CONJUGATE=ctx.conjugate, C=COLUMNS,
            )  # fmt: skip
        return to_left, to_right, None


def complex_product(left: Tensor, right: Tensor, conjugate_right: bool = False) -> Tensor:
    """`reference_step.complex_product`; a kernel of its own for ``[B, 2d]`` with ``[B, 2d]`` or ``[1, 2d]``."""
    if left.dim() == right.dim() == 2 and len(right) == 1:
        right = right.expand(len(left), -1)
    if left.shape != right.shape or left.dim() != 2 or left.stride(1) != 1 or right.stride(1) != 1:
        return reference_step.complex_product(left, right, conjugate_right)
    product: Tensor = _ComplexProduct.apply(left, right, conjugate_right)
    return product


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


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, directions: Tensor) -> Tensor:
        ctx.save_for_backward(rows, directions)
        batch, width = directions.shape
        out = rows.new_empty(batch, width)
        with torch.cuda.device_of(rows):
            _project_kernel[(batch,)](
                out, rows, directions, rows.stride(0), directions.stride(0), WIDTH=width, C=COLUMNS
            )
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        rows, directions = ctx.saved_tensors
        batch, width = directions.shape
        to_rows, to_directions = rows.new_empty(batch, 2 * width), rows.new_empty(batch, width)
        with torch.cuda.device_of(rows):
            _project_gradient_kernel[(batch,)](
                to_rows, to_directions, gradient.contiguous(), rows, directions, rows.stride(0), directions.stride(0),
                WIDTH=width, C=COLUMNS,
            )  # fmt: skip
        return to_rows, to_directions


def project(rows: Tensor, direction: Tensor) -> Tensor:
    """`reference_step.project`; a kernel of its own for ``[B, 2d]`` with ``[B, d]`` or ``[1, d]``."""
    if rows.dim() != 2 or direction.dim() != 2 or rows.stride(1) != 1 or direction.stride(1) != 1:
        return reference_step.project(rows, direction)
    projected: Tensor = _Project.apply(rows, direction.expand(len(rows), -1))
    return projected
