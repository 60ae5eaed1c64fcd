"""Comparing queries with candidate entities in plain PyTorch: the definition that every faster kernel must equal.

A candidate row ``c`` is compared with a query ``q`` in one of three ways (higher is more plausible):

====================  ==========================================================
``dot``               ``sum_i q_i c_i``
``l1``                ``-sum_i |q_i - c_i|``
``modulus``           ``-sum_i |q_i - c_i|`` over complex numbers stored ``[re | im]``
====================  ==========================================================

TransD moves the candidate along one direction that belongs to the query: ``c = row + scalar[entity] * shift``.

Work is cut into blocks of the batch, so that ``[batch, negatives, dim]`` never exists as a whole, and the backward
pass computes again what it needs instead of keeping it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding, one_hot

Comparison = Literal["dot", "l1", "modulus"]
COMPARISONS: tuple[Comparison, ...] = ("dot", "l1", "modulus")

# Elements of one block's [rows, N, D] temporary. On a CPU a block should stay in cache; a GPU wants fewer launches.
BLOCK_ELEMENTS = {"cpu": 1 << 18, "cuda": 1 << 26}


def _halves(vectors: Tensor) -> tuple[Tensor, Tensor]:
    half = vectors.shape[-1] // 2
    return vectors[..., :half], vectors[..., half:]


def width_of(kind: Comparison, dim: int) -> int:
    """Columns of one plane of a row with `dim` numbers."""
    if kind != "modulus":
        return dim
    if dim % 2:
        raise ValueError(f"complex rows [re | im] have an even number of columns, not {dim}")
    return dim // 2


def modulus(vectors: Tensor) -> Tensor:
    """``|z|`` of complex vectors stored ``[re | im]``: ``[..., 2d]`` -> ``[..., d]``; its gradient at zero is zero."""
    real, imaginary = _halves(vectors)
    squared = torch.addcmul(real.square(), imaginary, imaginary)
    if not squared.requires_grad:
        return squared.sqrt_()
    zero = squared == 0
    return squared.masked_fill(zero, 1.0).sqrt().masked_fill(zero, 0.0)


def compare_rows(kind: Comparison, query: Tensor, candidate: Tensor) -> Tensor:
    """Compare along the last dimension, broadcasting the others: ``[..., D]``, ``[..., D]`` -> ``[...]``."""
    if kind == "dot":
        return (query * candidate).sum(-1)
    difference = query - candidate
    if kind == "l1":
        return -difference.abs().sum(-1)
    return -modulus(difference).sum(-1)


def _slope(kind: Comparison, difference: Tensor) -> Tensor:
    """Gradient of the distance with respect to `difference`; zero where the distance has a kink."""
    if kind == "l1":
        return difference.sign_()
    real, imaginary = _halves(difference)
    inverse = torch.addcmul(real.square(), imaginary, imaginary).rsqrt_()
    inverse.masked_fill_(torch.isinf(inverse), 0.0)
    real.mul_(inverse)
    imaginary.mul_(inverse)
    return difference


def blocks(batch: int, elements_per_row: int, device: torch.device) -> Iterator[slice]:
    size = max(1, BLOCK_ELEMENTS.get(device.type, 1 << 18) // max(1, elements_per_row))
    for start in range(0, batch, size):
        yield slice(start, min(start + size, batch))


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
        ctx: Any,
        kind: Comparison,
        queries: Tensor,
        table: Tensor,
        entities: Tensor,
        shifts: Tensor | None,
        scalars: Tensor | None,
    ) -> Tensor:
        ctx.kind = kind
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
        to_queries, to_table = torch.empty_like(queries), torch.zeros_like(table)
        to_shifts = None if shifts is None else torch.empty_like(shifts)
        to_scalars = None if scalars is None else torch.zeros_like(scalars)
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
            accumulate_rows(to_table, ids, to_rows)
            if to_scalars is not None and to_row_scalars is not None:
                accumulate_rows(to_scalars[:, None], ids, to_row_scalars[..., None])
        return None, to_queries, to_table, None, to_shifts, to_scalars


def compare(
    kind: Comparison,
    queries: Tensor,
    table: Tensor,
    entities: Tensor,
    shifts: Tensor | None = None,
    scalars: Tensor | None = None,
    mean_rest: bool = False,
) -> Tensor:
    """Compare each positive's candidates with each of its queries; differentiable in all float arguments.

    Args:
        kind: the comparison.
        queries: ``[Q, B, D]``: Q queries for each of B positives, all compared with the same candidates.
        table: ``[E, D]`` entity rows; rows may be strided.
        entities: int64 ``[B, N]`` candidates.
        shifts, scalars: ``[Q, B, D]`` and ``[E]``, both or neither: candidate ``e`` becomes
            ``table[e] + scalars[e] * shifts[q, b]``.
        mean_rest: average the scores of all queries but the first.

    Returns:
        Scores ``[Q, B, N]``; with `mean_rest` ``[min(Q, 2), B, N]``.
    """
    scores: Tensor = _Compare.apply(kind, queries, table, entities, shifts, scalars)  # type: ignore[no-untyped-call]
    return with_mean_rest(scores) if mean_rest else scores


def with_mean_rest(scores: Tensor) -> Tensor:
    """The first of several scores ``[Q, ...]``, and the mean of the others: ``[min(Q, 2), ...]``."""
    return scores if len(scores) <= 2 else torch.stack([scores[0], scores[1:].mean(0)])


def compare_all(
    kind: Comparison, queries: Tensor, table: Tensor, shifts: Tensor | None = None, scalars: Tensor | None = None
) -> Tensor:
    """Compare each query with every entity, without gradients: ``[B, D]``, ``[E, D]`` -> ``[B, E]``.

    Extra memory beyond the result is at most one block.
    """
    if shifts is None or scalars is None:
        if kind == "dot":
            return queries @ table.T
        if kind == "l1":
            return torch.cdist(queries, table, p=1.0).neg_()
    scores = queries.new_empty(len(queries), len(table))
    for block in blocks(len(table), queries.shape[1], queries.device):
        for index in range(len(queries)):
            candidate = table[block]
            if shifts is not None and scalars is not None:
                candidate = candidate + scalars[block, None] * shifts[index]
            scores[index, block] = compare_rows(kind, queries[index], candidate)
    return scores


def distances_to(points: Tensor, norms: Tensor, place: Tensor) -> Tensor:
    """Squared distances of points ``[E, F]`` to the one at `place`, int64 ``[1]``: ``[E]``.

    ``|p - s|^2 = |p|^2 - 2 p s + |s|^2`` with the squared norms ``[E]`` reads the points once and writes no table of
    differences. Little cancels if the points lie around 0.
    """
    return (norms - 2.0 * (points @ points[place].squeeze(0)) + norms[place]).clamp_(min=0.0)


def nearest(points: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest centroid of each point: ``[E, F]``, ``[k, F]`` -> labels int64 ``[E]``, squared distances ``[E]``.

    Blocked over the points, so that no ``[E, k]`` matrix exists.
    """
    labels = torch.empty(len(points), dtype=torch.int64, device=points.device)
    distances = points.new_empty(len(points))
    norms = centroids.square().sum(1)
    for block in blocks(len(points), len(centroids), points.device):
        partial, labels[block] = torch.addmm(norms, points[block], centroids.T, alpha=-2.0).min(1)
        distances[block] = partial + points[block].square().sum(1)
    return labels, distances.clamp_(min=0.0)


class Counts(NamedTuple):
    """What `count_better` found, int64 ``[B]`` each; where `nan` is not 0, the other two mean nothing.

    Attributes:
        greater: candidates that score higher than the true entity.
        equal: candidates that score exactly like it, itself left out.
        nan: scores of the row that are NaN, whoever has them.
    """

    greater: Tensor
    equal: Tensor
    nan: Tensor


def check_counts(scores: Tensor, truth: Tensor, keys: Tensor, start: Tensor, stop: Tensor) -> None:
    """Refuse what a compiled `count_better` would read wrongly, as far as types and sizes tell."""
    whole = (truth, keys, start, stop)
    if scores.dtype not in (torch.float32, torch.float64) or any(tensor.dtype != torch.int64 for tensor in whole):
        types = ", ".join(str(tensor.dtype) for tensor in (scores, *whole))
        raise TypeError(f"scores are float32 or float64 and the rest int64, not {types}")
    if not len(scores) == len(truth) == len(start) == len(stop):
        raise ValueError(f"sizes differ: {', '.join(str(list(tensor.shape)) for tensor in (scores, *whole))}")


def count_better(scores: Tensor, truth: Tensor, keys: Tensor, start: Tensor, stop: Tensor) -> Counts:
    """Count in each row the candidates that beat or tie the true entity; known answers are no candidates.

    Args:
        scores: ``[B, E]``; rows may be strided.
        truth: int64 ``[B]``: the true entity, whether or not it is among the known answers.
        keys: int64 ``[K]``, ascending: an answer is a key modulo E, and the keys of one row agree in the rest.
        start, stop: int64 ``[B]``: row b's known answers are ``keys[start[b]:stop[b]]``, each one once.

    Counts over everyone less counts over the known answers: nothing of the scores' size is written.
    """
    batch, num_entities = scores.shape
    target = scores.gather(1, truth[:, None])
    counts = Counts(*(torch.empty(batch, dtype=torch.int64, device=scores.device) for _ in range(3)))
    for block in blocks(batch, num_entities, scores.device):
        part = scores[block]
        counts.greater[block] = (part > target[block]).sum(1)
        counts.equal[block] = (part == target[block]).sum(1) - 1  # the true entity itself
        counts.nan[block] = torch.isnan(part).sum(1)
    ends = (stop - start).cumsum(0)
    # (row, answer) pairs a few at a time: one row may have almost as many answers as there are entities.
    for block in blocks(int(ends[-1]) if batch else 0, 16, scores.device):
        pair = torch.arange(block.start, block.stop, device=scores.device)
        row = torch.searchsorted(ends, pair, right=True)
        entity = keys[stop[row] - ends[row] + pair] % num_entities
        value, level = scores[row, entity], target[row, 0]
        counts.greater.index_add_(0, row, (value > level).long(), alpha=-1)
        counts.equal.index_add_(0, row, ((value == level) & (entity != truth[row])).long(), alpha=-1)
    return counts


# Points of one block of `group_means`.
GROUP_ROWS = 1 << 14


def group_means(points: Tensor, groups: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Mean and size of each group: ``[E, F]``, int64 ``[E]`` in ``0..k-1`` -> ``[k, F]``, int64 ``[k]``.

    The mean of an empty group is 0. Products with one-hot rows need no atomics, so the bits repeat.
    """
    sums = points.new_zeros(k, points.shape[1])
    sizes = torch.zeros(k, dtype=torch.int64, device=points.device)
    for start in range(0, len(points), GROUP_ROWS):
        block = slice(start, start + GROUP_ROWS)
        member = one_hot(groups[block], k).to(points.dtype)
        sums.addmm_(member.T, points[block])
        sizes += member.sum(0).long()
    return sums / sizes.clamp(min=1).to(points.dtype)[:, None], sizes
