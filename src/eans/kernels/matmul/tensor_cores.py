"""Matrix products on the tensor cores of a CUDA GPU.

Factors are rounded to TF32, ten bits behind the point, and products are added up in float32: relative errors of about
3e-4, at several times the speed of float32. Where a table has a copy in bfloat16 (`DeferredGradients.rounded`), the
products read that, and all factors are rounded to it, seven bits behind the point; sums and results stay in float32. On
a CPU the same code computes in full precision, with the values that the copy stands for.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from eans.kernels.deferred_gradients import DeferredGradients, leave_leading

# The fast products need matrices whose rows begin at multiples of so many elements, and whose sizes are multiples too.
ALIGNMENT = 8
WIDENS = hasattr(torch.ops.aten.mm, "dtype_out")  # can PyTorch (2.8) add up products of bfloat16 in float32?


def aligned(rows: int, columns: int, like: Tensor) -> Tensor:
    """An empty matrix ``[rows, columns]`` whose rows begin where tensor cores need them."""
    width = -(-columns // ALIGNMENT) * ALIGNMENT
    return like.new_empty(rows, width)[:, :columns]


def parts(size: int) -> list[slice]:
    """``range(size)`` as the longest part that the fast products take, and the few that are left."""
    edge = size - size % ALIGNMENT
    return [part for part in (slice(0, edge), slice(edge, size)) if part.start < part.stop]


@contextmanager
def rounded_factors() -> Iterator[None]:
    """Inside, float32 matrix products on a GPU may round their factors to TF32."""
    switch: Any = torch.backends.cuda.matmul
    name, rounds = ("fp32_precision", "tf32") if hasattr(switch, "fp32_precision") else ("allow_tf32", True)
    previous = getattr(switch, name)
    setattr(switch, name, rounds)
    try:
        yield
    finally:
        setattr(switch, name, previous)


def multiply(left: Tensor, right: Tensor, out: Tensor) -> Tensor:
    """``out = left @ right``; factors in bfloat16 have their sums in the type of `out`."""
    if left.dtype == out.dtype:
        return torch.mm(left, right, out=out)
    if out.is_cuda and WIDENS:
        return torch.mm(left, right, out.dtype, out=out)
    return torch.mm(left.to(out.dtype), right.to(out.dtype), out=out)


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, table: Tensor, deferred: DeferredGradients | None) -> Tensor:
        ctx.deferred = deferred
        ctx.dtype, ctx.rows = queries.dtype, len(table)
        factors = queries, table
        if ctx.deferred is not None and ctx.deferred.rounded is not None:
            factors = queries.to(ctx.deferred.rounded.dtype), ctx.deferred.rounded[:, : table.shape[1]]
        ctx.save_for_backward(*factors)
        scores = aligned(len(queries), len(factors[1]), queries)
        with rounded_factors():
            for part in parts(len(factors[1])):
                multiply(factors[0], factors[1][part].T, scores[:, part])
        return scores[:, : ctx.rows]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        queries, table = ctx.saved_tensors
        fits = gradient.stride(1) == 1 and not gradient.stride(0) % ALIGNMENT and gradient.dtype == table.dtype
        if not fits or len(table) > ctx.rows:
            copy = aligned(len(queries), len(table), table)
            copy[:, : ctx.rows] = gradient
            copy[:, ctx.rows :] = 0
            gradient = copy
        to_table = torch.empty(table.shape, dtype=ctx.dtype, device=table.device)
        shares = []
        with rounded_factors():
            for part in parts(len(table)):
                multiply(gradient[:, part].T, queries, to_table[part])
                share = torch.empty(queries.shape, dtype=ctx.dtype, device=queries.device)
                shares.append(multiply(gradient[:, part], table[part], share))
        to_queries = functools.reduce(torch.add, shares) if shares else torch.zeros_like(queries, dtype=ctx.dtype)
        return to_queries, leave_leading(ctx.deferred, to_table[: ctx.rows]), None


def rounded_copy(table: Tensor) -> Tensor:
    """The table in bfloat16, and rows of zeros up to a number of rows that tensor cores need."""
    rows = -(-len(table) // ALIGNMENT) * ALIGNMENT
    copy = torch.zeros(rows, table.shape[1], dtype=torch.bfloat16, device=table.device)
    copy[: len(table)] = table
    return copy


def products(queries: Tensor, table: Tensor, deferred: DeferredGradients | None = None) -> Tensor:
    """See `eans.kernels.products`."""
    scores: Tensor = _Products.apply(queries, table, deferred)  # type: ignore[no-untyped-call]
    return scores
