"""Matrix products on the tensor cores of a CUDA GPU.

Factors are rounded to TF32, ten bits behind the point, and products are added up in float32: relative errors of about
3e-4, at several times the speed of float32. On a CPU the same code computes in full precision.
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


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, table: Tensor) -> Tensor:
        ctx.save_for_backward(queries, table)
        ctx.pending = pending_of(table)
        scores = aligned(len(queries), len(table), queries)
        with rounded_factors():
            for part in parts(len(table)):
                torch.mm(queries, table[part].T, out=scores[:, part])
        return scores

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        queries, table = ctx.saved_tensors
        if gradient.stride(1) != 1 or gradient.stride(0) % ALIGNMENT:
            gradient = aligned(len(queries), len(table), gradient).copy_(gradient)
        to_queries, to_table = torch.zeros_like(queries), torch.empty_like(table)
        with rounded_factors():
            for part in parts(len(table)):
                to_queries.addmm_(gradient[:, part], table[part])
                torch.mm(gradient[:, part].T, queries, out=to_table[part])
        if ctx.pending is not None and not ctx.pending.leading:
            ctx.pending.leading.append(to_table)
            return to_queries, None
        return to_queries, to_table


def products(queries: Tensor, table: Tensor) -> Tensor:
    """`eans.kernels.reference_step.products`."""
    scores: Tensor = _Products.apply(queries, table)  # type: ignore[no-untyped-call]
    return scores
