"""Models that see each candidate through the relation: no row of the table can be compared as it stands.

Their candidates are made and compared in plain PyTorch, a block of positives at a time, and made again in the backward
pass: a ``[batch, negatives, dim]`` tensor never exists as a whole here either.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding

from eans import kernels
from eans.graph import RELATION, Side, column, opposite
from eans.kernels.blocks import blocks
from eans.kernels.comparison.reference import accumulate_rows, with_mean_rest
from eans.kernels.deferred_gradients import AUTOGRAD, TableSinks
from eans.kernels.vectors.reference import compare_rows
from eans.models.base import Model, Scorer
from eans.models.query import Query

# Scores [Q, b, N] from entity rows [b, N, F], query vectors [Q, b, D] and what each query does to a candidate.
Score = Callable[..., Tensor]


def _part(shift: Tensor, block: slice) -> Tensor:
    return shift if len(shift) == 1 else shift[block]


class _Blocked(torch.autograd.Function):
    """Forward and backward of any function of candidate rows, both blocked over the batch."""

    @staticmethod
    def forward(
        ctx: Any, score: Score, width: int, vectors: Tensor, table: Tensor, entities: Tensor, *shifts: Tensor
    ) -> Tensor:
        ctx.score, ctx.width = score, width
        ctx.save_for_backward(vectors, table, entities, *shifts)
        scores = vectors.new_empty(*vectors.shape[:2], entities.shape[1])
        for block in blocks(len(entities), entities.shape[1] * width, vectors.device):
            rows = embedding(entities[block], table)
            scores[:, block] = score(rows, vectors[:, block], *(_part(shift, block) for shift in shifts))
        return scores

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        vectors, table, entities, *shifts = ctx.saved_tensors
        to_vectors, to_table = torch.empty_like(vectors), torch.zeros_like(table)
        to_shifts = [torch.zeros_like(shift) for shift in shifts]
        for block in blocks(len(entities), entities.shape[1] * ctx.width, vectors.device):
            parts = [embedding(entities[block], table), vectors[:, block], *(_part(shift, block) for shift in shifts)]
            leaves = [part.detach().requires_grad_() for part in parts]
            with torch.enable_grad():
                scores = ctx.score(*leaves)
            to_rows, to_vectors[:, block], *to_parts = torch.autograd.grad(scores, leaves, gradient[:, block])
            accumulate_rows(to_table, entities[block], to_rows)
            for total, part in zip(to_shifts, to_parts, strict=True):
                _part(total, block).add_(part)
        return None, None, to_vectors, to_table, None, *to_shifts


class ProjectedModel(Model):
    """Base of models with relation-dependent candidates: a subclass writes `query` and `candidate`.

    `query` puts into `Query.shift` what `candidate` needs of the relation.
    """

    fused = False

    def compare_candidates(self, queries: list[Query], entities: Tensor, sinks: TableSinks = AUTOGRAD) -> Tensor:
        """As `Model.compare_candidates`, with one block of candidates ``[b, N, D]`` at a time."""
        del sinks
        shifts: list[Tensor] = []
        chosen: list[int] = []  # which shift each query has; the two directions of a substitution share one
        for query in queries:
            assert query.shift is not None
            known = [index for index, shift in enumerate(shifts) if shift is query.shift]
            chosen.append(known[0] if known else len(shifts))
            if not known:
                shifts.append(query.shift)

        def score(rows: Tensor, vectors: Tensor, *parts: Tensor) -> Tensor:
            seen = [self.candidate(rows, part[:, None]) for part in parts]
            pairs = zip(vectors, chosen, strict=True)
            return torch.stack([compare_rows(self.comparison, one[:, None], seen[index]) for one, index in pairs])

        vectors = torch.stack([query.vector for query in queries])
        width = max(self.entity.shape[1], vectors.shape[2])
        scores: Tensor = _Blocked.apply(score, width, vectors, self.entity, entities, *shifts)  # type: ignore[no-untyped-call]
        return with_mean_rest(scores)

    def comparer(self, triples: Tensor, side: Side) -> Scorer:
        """As `Model.comparer`, but queries are made for each range: what they need of a relation may be a matrix."""
        return lambda rows, entities: self._compare(triples[rows], side, entities)

    def _compare(self, triples: Tensor, side: Side, entities: slice) -> Tensor:
        """Scores with a range of entities: ``[b, e]``. Queries of one relation, which see the same candidates, are
        answered together.

        A GPU is waited for once, to learn which relations there are.
        """
        table = self.entity[entities]
        scores = self.entity.new_empty(len(triples), len(table))
        relations, counts = torch.unique(triples[:, RELATION], return_counts=True)
        order = torch.split(triples[:, RELATION].argsort(stable=True), counts.tolist())
        anchors = triples[:, column(opposite(side))]
        for relation, rows in zip(torch.split(relations, 1), order, strict=True):
            query = self.query(self.entity_rows(anchors[rows]), self.relation_rows(relation), side)
            for block in blocks(len(table), query.vector.shape[1], triples.device):
                candidates = self.candidate(table[block], query.shift)
                scores[rows, block] = kernels.compare_all(self.comparison, query.vector, candidates)
        return scores
