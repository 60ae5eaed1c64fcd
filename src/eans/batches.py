"""The endless stream of training batches, on the device.

Batches alternate between corrupting tails and heads; each side walks through its own shuffles of the training
triples, one shuffle after the other, so every batch is full and every triple is seen equally often. What batch a step
sees depends on the seed and the step alone: the position in the data is an integer, and nothing needs saving.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

import torch
from torch import Tensor

from eans import kernels
from eans.graph import SIDES, KnowledgeGraph, column
from eans.permutation import Permutation
from eans.types import Batch, Side
from eans.weights import answer_weights, query_weights, subsampling_weights

MOST_DRAWN = 1 << 24  # triples of which a whole permutation is drawn and kept; of more it is computed by blocks
BLOCK = 1 << 18  # positions
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def mix(*parts: int) -> int:
    """A 63-bit seed from several integers (splitmix64), so that neighbouring steps get unrelated streams."""
    state = 0
    for part in parts:
        state = (state + part + _GOLDEN) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state >> 1


class Purpose(IntEnum):
    """What random numbers are for: each purpose has its own stream, ``mix(seed, purpose, count)``."""

    SHUFFLE_TAIL = 0
    SHUFFLE_HEAD = 1
    DRAW = 2
    OBSERVE = 3
    INITIALISE = 4
    INSPECT = 5


Subsampling = bool | Literal["query", "answer"]


def _weights(
    graph: KnowledgeGraph, subsampling: Subsampling, power: float, device: torch.device | str
) -> dict[Side, Tensor]:
    """Of all positives, float32 ``[T]``, by the side that is corrupted."""
    relations = graph.num_relations
    if subsampling == "query":
        return {side: query_weights(graph.train, relations, side, power).to(device) for side in SIDES}
    if subsampling == "answer":
        return {side: answer_weights(graph.train, side, power).to(device) for side in SIDES}
    plain = subsampling_weights(graph.train, relations, power) if subsampling else torch.ones(len(graph.train))
    return dict.fromkeys(SIDES, plain.to(device))


class BatchStream:
    """Batches of a graph's training triples by step number; of triples with weights, those with more than 0.

    Args:
        graph: where the triples come from.
        batch_size: B; a graph with fewer triples repeats them within a batch.
        seed: fixes the shuffles.
        subsampling: weight positives by `subsampling_weights`; ``"query"`` and ``"answer"``: by `query_weights` or
            `answer_weights` of the side that a batch corrupts; False: equally.
        device: where batches live.
        power: of the counts in these weights.
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        batch_size: int,
        seed: int,
        subsampling: Subsampling = True,
        device: torch.device | str = "cpu",
        power: float = 0.5,
    ) -> None:
        self.triples = graph.train.to(device)
        self.weights = _weights(graph, subsampling, power, device)
        if graph.weights is not None:
            # Their size says nothing: a loss divides by their sum. Those with 0 would only take the places of others.
            own = (graph.weights / graph.weights.mean()).to(device, torch.float32)
            learned = own > 0
            self.triples = self.triples[learned]
            self.weights = {side: (weights * own)[learned] for side, weights in self.weights.items()}
        self.batch_size = batch_size
        self.seed = seed
        self._shuffles: dict[tuple[Side, int], Tensor] = {}
        self._blocks: dict[Side, tuple[int, int, Tensor]] = {}

    def _seed(self, side: Side, epoch: int) -> int:
        return mix(self.seed, Purpose.SHUFFLE_TAIL if side == "tail" else Purpose.SHUFFLE_HEAD, epoch)

    def _shuffle(self, side: Side, epoch: int) -> Tensor:
        """The permutation of one epoch, drawn on the CPU so that every device sees the same one."""
        if (side, epoch) not in self._shuffles:
            generator = torch.Generator().manual_seed(self._seed(side, epoch))
            permutation = torch.randperm(len(self.triples), generator=generator).to(self.triples.device)
            self._shuffles = {
                key: kept for key, kept in self._shuffles.items() if key[0] != side or key[1] == epoch - 1
            }
            self._shuffles[side, epoch] = permutation
        return self._shuffles[side, epoch]

    def _from(self, side: Side, epoch: int, position: int) -> Tensor:
        """The rows from a position of an epoch's permutation on, as many as there are at hand."""
        if len(self.triples) <= MOST_DRAWN:
            return self._shuffle(side, epoch)[position:]
        first = position - position % BLOCK
        if self._blocks.get(side, ())[:2] != (epoch, first):
            permutation = Permutation(len(self.triples), self._seed(side, epoch))
            rows = permutation.between(first, min(first + BLOCK, permutation.size), self.triples.device)
            self._blocks[side] = epoch, first, rows
        return self._blocks[side][2][position - first :]

    def __getitem__(self, step: int) -> Batch:
        """The batch of a step, counted from 0; even steps corrupt tails."""
        return self.batch(*self.rows(step))

    def batch(self, rows: Tensor, side: Side, places: Tensor | None = None) -> Batch:
        """The batch of some training triples; where that helps, in the order of their `places` (`kernels.take`)."""
        triples, weight = kernels.take(self.triples, self.weights[side], rows, places, column(side))
        return Batch(triples, side, weight)

    def rows(self, step: int) -> tuple[Tensor, Side]:
        """Which training triples a step sees, int64 ``[B]``, and which side it corrupts."""
        side: Side = "tail" if step % 2 == 0 else "head"
        start = (step // 2) * self.batch_size
        parts, missing = [], self.batch_size
        while missing:
            part = self._from(side, *divmod(start, len(self.triples)))[:missing]
            parts.append(part)
            start += len(part)
            missing -= len(part)
        return torch.cat(parts) if len(parts) > 1 else parts[0], side
