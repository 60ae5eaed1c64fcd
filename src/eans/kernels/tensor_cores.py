"""Matrix products on the tensor cores of a CUDA GPU.

Factors are rounded to TF32, ten bits behind the point, and products are added up in float32: relative errors of about
3e-4, at several times the speed of float32. Where a table has a copy in bfloat16 (`Pending.rounded`), the products read
that, and all factors are rounded to it, seven bits behind the point; sums and results stay in float32. On a CPU the
same code computes in full precision, with the numbers that the copy stands for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from eans.kernels.pending import pending_of

# The fast products want matrices whose rows begin at multiples of so many numbers, and whose sizes are multiples too.
ALIGNMENT = 8
WIDENS = hasattr(torch.ops.aten.mm, "dtype_out")  # can PyTorch (2.8) add up products of bfloat16 in float32?


def aligned(rows: int, columns: int, like: Tensor) -> Tensor:
    """An empty matrix ``[rows, columns]`` whose rows begin where tensor cores want them."""
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
    def forward(ctx: Any, queries: Tensor, table: Tensor) -> Tensor:
        ctx.pending = pending_of(table)
        if ctx.pending is not None and ctx.pending.rounded is not None:
            factors = queries.to(ctx.pending.rounded.dtype), ctx.pending.rounded[:, : table.shape[1]]
        else:
            factors = queries, table
        ctx.save_for_backward(*factors)
        ctx.dtype = queries.dtype
        scores = aligned(len(queries), len(table), queries)
        with rounded_factors():
            for part in parts(len(table)):
                multiply(factors[0], factors[1][part].T, scores[:, part])
        return scores

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        queries, table = ctx.saved_tensors
        if gradient.stride(1) != 1 or gradient.stride(0) % ALIGNMENT or gradient.dtype != table.dtype:
            gradient = aligned(len(queries), len(table), table).copy_(gradient)
        to_queries = torch.zeros(queries.shape, dtype=ctx.dtype, device=queries.device)
        to_table = torch.empty(table.shape, dtype=ctx.dtype, device=table.device)
        with rounded_factors():
            for part in parts(len(table)):
                to_queries += multiply(gradient[:, part], table[part], torch.empty_like(to_queries))
                multiply(gradient[:, part].T, queries, to_table[part])
        if ctx.pending is not None and not ctx.pending.leading:
            ctx.pending.leading.append(to_table)
            return to_queries, None
        return to_queries, to_table


def products(queries: Tensor, table: Tensor) -> Tensor:
    """`eans.kernels.reference_step.products`."""
    scores: Tensor = _Products.apply(queries, table)  # type: ignore[no-untyped-call]
    return scores
