"""Comparing one row with one query, complex products, projections on a CPU: one loop forwards and one backwards each.

In plain PyTorch each is a dozen operations with gradients of their own, and with few negatives these take most of a
step.
"""

# Numba's decorator is untyped, and the arguments of a loop are arrays and scalars whose types the compiler infers.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
from numba import uint64
from torch import Tensor

from eans.kernels.kinds import Comparison, width_of
from eans.kernels.numba_arrays import flat
from eans.kernels.numba_rows import DOT, KINDS, L1, MODULUS, pull_of_modulus, pull_of_sign, score_of
from eans.kernels.numba_threads import compiled, run_rows
from eans.kernels.vectors import reference


class Loops(NamedTuple):
    """A function of two matrices, row by row, and its gradients.

    Attributes:
        forward: ``(out, left, right, left stride, right stride, *constants, first, last)`` for rows ``[first, last)``.
        backward: ``(to_left, to_right, gradient, ...)`` and the rest of the above.
        columns: of `out`; None for a vector.
        constants: further arguments of both.
    """

    forward: Any
    backward: Any
    columns: int | None
    constants: tuple[Any, ...]


class _ByRows(torch.autograd.Function):
    """Threads share the rows of the loops."""

    @staticmethod
    def forward(ctx: Any, loops: Loops, left: Tensor, right: Tensor) -> Tensor:
        ctx.loops = loops
        ctx.save_for_backward(left, right)
        out = left.new_empty(len(left)) if loops.columns is None else left.new_empty(len(left), loops.columns)
        strides = left.stride(0), right.stride(0)
        run_rows(loops.forward, len(left), left.numel(), flat(out), flat(left), flat(right), *strides, *loops.constants)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, Tensor]:
        left, right = ctx.saved_tensors
        to_left, to_right = left.new_empty(left.shape), right.new_empty(right.shape)
        results = flat(to_left), flat(to_right), flat(gradient.contiguous())
        strides = left.stride(0), right.stride(0)
        given = flat(left), flat(right), *strides, *ctx.loops.constants
        run_rows(ctx.loops.backward, len(left), left.numel(), *results, *given)
        return None, to_left, to_right


def _by_rows(loops: Loops, left: Tensor, right: Tensor) -> Tensor:
    out: Tensor = _ByRows.apply(loops, left, right)
    return out


def _rows_fit(*tensors: Tensor) -> bool:
    """Do the loops take these: matrices of one type, each row in one piece?"""
    kinds = {tensor.dtype for tensor in tensors}
    return (
        kinds <= {torch.float32, torch.float64}
        and len(kinds) == 1
        and all(tensor.dim() == 2 and tensor.stride(1) == 1 for tensor in tensors)
    )


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
        """Gradients of rows ``[first, last)``; see `eans.kernels.numba_rows` for the formulas."""
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
                    pull = pull_of_sign(queries[q + j], rows[r + j], g, zero)
                    to_rows[t + j] = pull
                    to_queries[t + j] = zero - pull
            else:
                for j in range(columns):
                    real = queries[q + j] - rows[r + j]
                    imag = queries[q + columns + j] - rows[r + columns + j]
                    scale = pull_of_modulus(real, imag, g, zero, one)
                    to_rows[t + j] = scale * real
                    to_rows[t + columns + j] = scale * imag
                    to_queries[t + j] = -scale * real
                    to_queries[t + columns + j] = -scale * imag

    return compare_gradient_loop


def compare_rows(kind: Comparison, query: Tensor, candidate: Tensor) -> Tensor:
    """`eans.kernels.compare_rows`; a loop of its own for ``[B, D]`` and ``[B, D]``."""
    if query.shape != candidate.shape or not _rows_fit(query, candidate):
        return reference.compare_rows(kind, query, candidate)
    number = KINDS[kind]
    loops = Loops(_compare_loop(number), _compare_gradient_loop(number), None, (width_of(kind, query.shape[1]),))
    return _by_rows(loops, query, candidate)


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


def complex_product(left: Tensor, right: Tensor, conjugate_right: bool = False) -> Tensor:
    """`eans.kernels.complex_product`; a loop of its own for ``[B, 2d]`` with ``[B, 2d]`` or ``[1, 2d]``."""
    if left.dim() == right.dim() == 2 and len(right) == 1:
        right = right.expand(len(left), -1)
    if left.shape != right.shape or left.shape[-1] % 2 or not _rows_fit(left, right):
        return reference.complex_product(left, right, conjugate_right)
    sign = flat(left.new_tensor([-1.0 if conjugate_right else 1.0]))[0]  # of their type: a wider one would widen all
    columns = left.shape[1]
    return _by_rows(Loops(_product_loop, _product_gradient_loop, columns, (columns // 2, sign)), left, right)


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


def project(rows: Tensor, direction: Tensor) -> Tensor:
    """`eans.kernels.project`; a loop of its own for ``[B, 2d]`` with ``[B, d]`` or ``[1, d]``."""
    fits = _rows_fit(rows, direction) and len(direction) in (1, len(rows))
    width = direction.shape[-1]
    if not fits or rows.shape[1] != 2 * width:
        return reference.project(rows, direction)
    loops = Loops(_project_loop, _project_gradient_loop, width, (width,))
    return _by_rows(loops, rows, direction.expand(len(rows), -1))
