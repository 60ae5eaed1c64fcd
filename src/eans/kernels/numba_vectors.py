"""Comparing one row with one query, complex products, projections on a CPU: one loop forwards and one backwards each.

`reference.compare_rows`, `reference_step.complex_product` and `reference_step.project` define them. In plain PyTorch
each is a dozen operations with gradients of their own, and with few negatives these take most of a step.
"""

# Numba's decorator is untyped, and the arguments of a loop are arrays and numbers of types that the compiler infers.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from numba import uint64
from torch import Tensor

from eans.kernels import reference, reference_step
from eans.kernels.numba_compare import score_of
from eans.kernels.numba_pairs import DOT, KINDS, L1, MODULUS, flat
from eans.kernels.numba_threads import compiled, share_rows, threads_for
from eans.kernels.reference import Comparison, width_of

__all__ = ["compare_rows", "complex_product", "project"]


def _rows_fit(*tensors: Tensor) -> bool:
    """Do the loops take these: matrices of one type, each row in one piece?"""
    kinds = {tensor.dtype for tensor in tensors}
    return (
        kinds <= {torch.float32, torch.float64}
        and len(kinds) == 1
        and all(tensor.dim() == 2 and tensor.stride(1) == 1 for tensor in tensors)
    )


def _by_rows(loop: Any, rows: int, numbers: int, *arguments: Any) -> None:
    """Let threads share the rows of a loop over ``[first, last)``, its last two arguments."""
    share_rows(lambda first, last: loop(*arguments, first, last), rows, threads_for(numbers))


# --- comparing --------------------------------------------------------------------------------------------------------


@cache
def _compare_loop(kind: int) -> Any:
    @compiled
    def compare_loop(scores, queries, rows, query_stride, row_stride, width, first, last):
        """Scores of rows ``[first, last)``."""
        columns = uint64(width)
        for b in range(uint64(first), uint64(last)):
            q, r = b * uint64(query_stride), b * uint64(row_stride)
            scores[b] = score_of(kind, queries, q, rows, r, columns, columns)

    return compare_loop


@cache
def _compare_gradient_loop(kind: int) -> Any:
    @compiled
    def compare_gradient_loop(
        to_queries, to_rows, gradient, queries, rows, query_stride, row_stride, width, first, last
    ):  # fmt: skip
        """Gradients of rows ``[first, last)``; see `numba_gradients` for the formulas."""
        columns = uint64(width)
        size = uint64(2) * columns if kind == MODULUS else columns
        zero, one = gradient.dtype.type(0), gradient.dtype.type(1)
        for b in range(uint64(first), uint64(last)):
            q, r, t = b * uint64(query_stride), b * uint64(row_stride), b * size
            g = gradient[b]
            if kind == DOT:
                for j in range(columns):
                    to_queries[t + j] = g * rows[r + j]
                    to_rows[t + j] = g * queries[q + j]
            elif kind == L1:
                for j in range(columns):
                    above = g if queries[q + j] > rows[r + j] else zero
                    below = g if queries[q + j] < rows[r + j] else zero
                    to_rows[t + j] = above - below
                    to_queries[t + j] = below - above
            else:
                for j in range(columns):
                    real = queries[q + j] - rows[r + j]
                    imag = queries[q + columns + j] - rows[r + columns + j]
                    square = real * real + imag * imag
                    scale = zero if square == zero else g * (one / math.sqrt(square))
                    to_rows[t + j] = scale * real
                    to_rows[t + columns + j] = scale * imag
                    to_queries[t + j] = -scale * real
                    to_queries[t + columns + j] = -scale * imag

    return compare_gradient_loop


class _CompareRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kind: Comparison, queries: Tensor, rows: Tensor) -> Tensor:
        ctx.kind = kind
        ctx.save_for_backward(queries, rows)
        scores = queries.new_empty(len(queries))
        given = flat(queries), flat(rows), queries.stride(0), rows.stride(0), width_of(kind, queries.shape[1])
        _by_rows(_compare_loop(KINDS[kind]), len(queries), queries.numel(), flat(scores), *given)
        return scores

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        queries, rows = ctx.saved_tensors
        to_queries, to_rows = queries.new_empty(queries.shape), rows.new_empty(rows.shape)
        results = flat(to_queries), flat(to_rows), flat(gradient.contiguous())
        given = flat(queries), flat(rows), queries.stride(0), rows.stride(0), width_of(ctx.kind, queries.shape[1])
        _by_rows(_compare_gradient_loop(KINDS[ctx.kind]), len(queries), queries.numel(), *results, *given)
        return None, to_queries, to_rows


def compare_rows(kind: Comparison, query: Tensor, candidate: Tensor) -> Tensor:
    """`reference.compare_rows`; a loop of its own for ``[B, D]`` and ``[B, D]``."""
    if query.shape != candidate.shape or not _rows_fit(query, candidate):
        return reference.compare_rows(kind, query, candidate)
    scores: Tensor = _CompareRows.apply(kind, query, candidate)
    return scores


# --- complex products -------------------------------------------------------------------------------------------------


@compiled
def _product_loop(out, left, right, left_stride, right_stride, width, sign, first, last):
    """``left * right``, or ``left * conj(right)`` with a `sign` of -1, of rows ``[first, last)``."""
    columns = uint64(width)
    for b in range(uint64(first), uint64(last)):
        x, y, t = b * uint64(left_stride), b * uint64(right_stride), b * uint64(2) * columns
        for j in range(columns):
            imag = sign * right[y + columns + j]
            out[t + j] = left[x + j] * right[y + j] - left[x + columns + j] * imag
            out[t + columns + j] = left[x + j] * imag + left[x + columns + j] * right[y + j]


@compiled
def _product_gradient_loop(
    to_left, to_right, gradient, left, right, left_stride, right_stride, width, sign, first, last
):  # fmt: skip
    columns = uint64(width)
    for b in range(uint64(first), uint64(last)):
        x, y, t = b * uint64(left_stride), b * uint64(right_stride), b * uint64(2) * columns
        for j in range(columns):
            real, turned = gradient[t + j], gradient[t + columns + j]
            imag = sign * right[y + columns + j]
            to_left[t + j] = real * right[y + j] + turned * imag
            to_left[t + columns + j] = turned * right[y + j] - real * imag
            to_right[t + j] = real * left[x + j] + turned * left[x + columns + j]
            to_right[t + columns + j] = sign * (turned * left[x + j] - real * left[x + columns + j])


def _product_arguments(left: Tensor, right: Tensor, conjugate: bool) -> tuple[Any, ...]:
    """What both loops are given, but for results and gradients."""
    sign = flat(left.new_tensor([-1.0 if conjugate else 1.0]))[0]  # of their type: a wider one would widen all
    return flat(left), flat(right), left.stride(0), right.stride(0), left.shape[1] // 2, sign


class _ComplexProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, conjugate: bool) -> Tensor:
        ctx.conjugate = conjugate
        ctx.save_for_backward(left, right)
        out = left.new_empty(left.shape)
        _by_rows(_product_loop, len(left), left.numel(), flat(out), *_product_arguments(left, right, conjugate))
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        left, right = ctx.saved_tensors
        to_left, to_right = left.new_empty(left.shape), right.new_empty(right.shape)
        results = flat(to_left), flat(to_right), flat(gradient.contiguous())
        given = _product_arguments(left, right, ctx.conjugate)
        _by_rows(_product_gradient_loop, len(left), left.numel(), *results, *given)
        return to_left, to_right, None


def complex_product(left: Tensor, right: Tensor, conjugate_right: bool = False) -> Tensor:
    """`reference_step.complex_product`; a loop of its own for ``[B, 2d]`` with ``[B, 2d]`` or ``[1, 2d]``."""
    if left.dim() == right.dim() == 2 and len(right) == 1:
        right = right.expand(len(left), -1)
    if left.shape != right.shape or left.shape[-1] % 2 or not _rows_fit(left, right):
        return reference_step.complex_product(left, right, conjugate_right)
    product: Tensor = _ComplexProduct.apply(left, right, conjugate_right)
    return product


# --- projections ------------------------------------------------------------------------------------------------------


@compiled
def _project_loop(out, rows, directions, row_stride, direction_stride, width, first, last):
    """``left + (left . right) direction`` of rows ``[first, last)``."""
    columns = uint64(width)
    for b in range(uint64(first), uint64(last)):
        r, d, t = b * uint64(row_stride), b * uint64(direction_stride), b * columns
        product = out.dtype.type(0)
        for j in range(columns):
            product += rows[r + j] * rows[r + columns + j]
        for j in range(columns):
            out[t + j] = rows[r + j] + product * directions[d + j]


@compiled
def _project_gradient_loop(
    to_rows, to_directions, gradient, rows, directions, row_stride, direction_stride, width, first, last
):  # fmt: skip
    """With s the inner product: ``to_direction = s g``, ``to_left = g + (g . direction) right``, likewise to_right."""
    columns = uint64(width)
    for b in range(uint64(first), uint64(last)):
        r, d, t = b * uint64(row_stride), b * uint64(direction_stride), b * columns
        product, along = gradient.dtype.type(0), gradient.dtype.type(0)
        for j in range(columns):
            product += rows[r + j] * rows[r + columns + j]
            along += gradient[t + j] * directions[d + j]
        for j in range(columns):
            to_directions[t + j] = product * gradient[t + j]
            to_rows[uint64(2) * t + j] = gradient[t + j] + along * rows[r + columns + j]
            to_rows[uint64(2) * t + columns + j] = along * rows[r + j]


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, directions: Tensor) -> Tensor:
        ctx.save_for_backward(rows, directions)
        out = rows.new_empty(directions.shape)
        given = flat(rows), flat(directions), rows.stride(0), directions.stride(0), directions.shape[1]
        _by_rows(_project_loop, len(rows), rows.numel(), flat(out), *given)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        rows, directions = ctx.saved_tensors
        to_rows, to_directions = rows.new_empty(rows.shape), rows.new_empty(directions.shape)
        results = flat(to_rows), flat(to_directions), flat(gradient.contiguous())
        given = flat(rows), flat(directions), rows.stride(0), directions.stride(0), directions.shape[1]
        _by_rows(_project_gradient_loop, len(rows), rows.numel(), *results, *given)
        return to_rows, to_directions


def project(rows: Tensor, direction: Tensor) -> Tensor:
    """`reference_step.project`; a loop of its own for ``[B, 2d]`` with ``[B, d]`` or ``[1, d]``."""
    fits = _rows_fit(rows, direction) and len(direction) in (1, len(rows))
    if not fits or rows.shape[1] != 2 * direction.shape[1]:
        return reference_step.project(rows, direction)
    projected: Tensor = _Project.apply(rows, direction.expand(len(rows), -1))
    return projected
