"""`compare` in plain PyTorch: the definition that every faster kernel must equal.

Work is cut into blocks of the batch, so that ``[batch, negatives, dim]`` never exists as a whole, and the backward
pass computes again what it needs instead of keeping it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding

from eans.kernels.blocks import blocks
from eans.kernels.deferred_gradients import DeferredGradients, RowGradient
from eans.kernels.kinds import Comparison, halves
from eans.kernels.vectors.reference import compare_rows


def _slope(kind: Comparison, difference: Tensor) -> Tensor:
    """Gradient of the distance with respect to `difference`; zero where the distance has a kink."""
    if kind == "l1":
        return difference.sign_()
    real, imaginary = halves(difference)
    inverse = torch.addcmul(real.square(), imaginary, imaginary).rsqrt_()
    inverse.masked_fill_(torch.isinf(inverse), 0.0)
    real.mul_(inverse)
    imaginary.mul_(inverse)
    return difference


def accumulate_rows(table: Tensor, entities: Tensor, rows: Tensor) -> None:
    """``table[entities] += rows`` with repeats, in a fixed order (so the same bits every time).

    `embedding_dense_backward` is several times faster than `index_add_` on a CPU and deterministic on a GPU. On a CPU
    the ids are made dense first, because it writes a whole table.
    """
    flat, rows = entities.reshape(-1), rows.reshape(-1, rows.shape[-1])
    if table.device.type == "cpu":
        distinct, inverse = torch.unique(flat, return_inverse=True)
        table[distinct] += torch.ops.aten.embedding_dense_backward(rows, inverse, len(distinct), -1, False)
    else:
        table += torch.ops.aten.embedding_dense_backward(rows, flat, len(table), -1, False)


class _Compare(torch.autograd.Function):
    """Forward and backward of `compare`, both blocked over the batch."""

    @staticmethod
    def forward(
        ctx: Any, kind: Comparison, queries: Tensor, table: Tensor, entities: Tensor, shifts: Tensor | None,
        scalars: Tensor | None, deferred: DeferredGradients | None,
    ) -> Tensor:  # fmt: skip
        ctx.kind, ctx.deferred = kind, deferred
        ctx.save_for_backward(queries, table, entities, shifts, scalars)
        count, batch, dim = queries.shape
        scores = queries.new_empty(count, batch, entities.shape[1])
        for block in blocks(batch, entities.shape[1] * dim, queries.device):
            rows = embedding(entities[block], table)
            for index in range(count):
                candidate = rows
                if shifts is not None and scalars is not None:
                    candidate = rows + scalars[entities[block]][..., None] * shifts[index, block, None]
                query = queries[index, block, None]
                if kind == "dot":  # a batched product: no temporary of the size of `candidate`
                    scores[index, block] = torch.bmm(candidate, query.transpose(1, 2)).squeeze(2)
                else:
                    scores[index, block] = compare_rows(kind, query, candidate)
        return scores

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = upstream
        queries, table, entities, shifts, scalars = ctx.saved_tensors
        kind: Comparison = ctx.kind
        count, batch, dim = queries.shape
        to_queries = torch.empty_like(queries)
        to_shifts = None if shifts is None else torch.empty_like(shifts)
        to_scalars = None if scalars is None else torch.zeros_like(scalars)
        targets, used = entities, None
        if ctx.deferred is not None:
            used, targets = torch.unique(entities, return_inverse=True)
        to_table = torch.zeros_like(table) if used is None else table.new_zeros(len(used), dim)
        for block in blocks(batch, entities.shape[1] * dim, queries.device):
            ids = entities[block]
            rows = embedding(ids, table)
            to_rows: Tensor | None = None
            to_row_scalars: Tensor | None = None
            for index in range(count):
                query, outer = queries[index, block, None], gradient[index, block, :, None]
                candidate = rows
                if shifts is not None and scalars is not None:
                    candidate = rows + scalars[ids][..., None] * shifts[index, block, None]
                if kind == "dot":
                    to_queries[index, block] = torch.bmm(outer.transpose(1, 2), candidate).squeeze(1)
                    to_candidate = outer * query
                else:
                    to_candidate = _slope(kind, query - candidate).mul_(outer)
                    to_queries[index, block] = -to_candidate.sum(1)
                if shifts is not None and scalars is not None and to_shifts is not None:
                    to_shifts[index, block] = torch.bmm(scalars[ids][:, None], to_candidate).squeeze(1)
                    part = torch.bmm(to_candidate, shifts[index, block, :, None]).squeeze(2)
                    to_row_scalars = part if to_row_scalars is None else to_row_scalars + part
                to_rows = to_candidate if to_rows is None else to_rows.add_(to_candidate)
            assert to_rows is not None
            accumulate_rows(to_table, targets[block], to_rows)
            if to_scalars is not None and to_row_scalars is not None:
                accumulate_rows(to_scalars[:, None], ids, to_row_scalars[..., None])
        if used is not None:
            ctx.deferred.rows.append(RowGradient(ctx.deferred.gather(used), used, to_table))
        return None, to_queries, None if used is not None else to_table, None, to_shifts, to_scalars, None


def compare(
    kind: Comparison, queries: Tensor, table: Tensor, entities: Tensor,
    shifts: Tensor | None = None, scalars: Tensor | None = None, mean_rest: bool = False,
    deferred: DeferredGradients | None = None,
) -> Tensor:  # fmt: skip
    """See `eans.kernels.compare`; only an optimizer that works by rows adds gradients of rows up itself here."""
    left = deferred if deferred is not None and deferred.by_rows and table.is_contiguous() else None
    scores: Tensor = _Compare.apply(kind, queries, table, entities, shifts, scalars, left)  # type: ignore[no-untyped-call]
    return with_mean_rest(scores) if mean_rest else scores


def contiguous(
    queries: Tensor, table: Tensor, entities: Tensor, shifts: Tensor | None, scalars: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Arguments of `compare` as compiled kernels need them: contiguous but for the stride of the table's rows."""
    table = table if table.stride(1) == 1 else table.contiguous()
    if shifts is not None and scalars is not None:
        shifts, scalars = shifts.contiguous(), scalars.contiguous()
    return queries.contiguous(), table, entities.contiguous(), shifts, scalars


def with_mean_rest(scores: Tensor) -> Tensor:
    """The first of several scores ``[Q, ...]``, and the mean of the others: ``[min(Q, 2), ...]``."""
    return scores if len(scores) <= 2 else torch.stack([scores[0], scores[1:].mean(0)])
