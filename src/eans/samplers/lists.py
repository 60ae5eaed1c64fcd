"""Negatives from lists of candidates that follow from the training graph alone, and never change."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from eans import kernels
from eans.graph import Side
from eans.samplers.base import Draw, Sampler

# Rounds of uniform draws for what resampling leaves; six are enough unless most of all entities are known answers.
UNIFORM_ROUNDS = 6


class Lists(NamedTuple):
    """Candidates, list after list: those of list i are ``ids[starts[i] : starts[i + 1]]``, ascending.

    Attributes:
        ids: int32 ``[K]``.
        starts: int64 ``[L + 1]``.
        sums: int64 ``[K + 1]``: weights added up from the first list on, so candidate i weighs
            ``sums[i + 1] - sums[i]``; None where all weigh the same.
    """

    ids: Tensor
    starts: Tensor
    sums: Tensor | None


def offsets(counts: Tensor) -> Tensor:
    """Where each of n runs of so many begins, and where the last one ends: int64 ``[n + 1]``."""
    return torch.nn.functional.pad(counts.cumsum(0), (1, 0))


class ListSampler(Sampler):
    """Draws from one list of candidates a row, uniformly or by weight, with replacement.

    A subclass makes the lists (`hold`) and says which one a row draws from (`list_of`). They are made once, and again
    when a run is resumed: they follow from the graph and the options, so the checkpoint does not hold them. Memory: 4
    bytes per candidate, 12 with weights, and 8 per list. Where a list is empty, all entities are candidates.

    A list may hold little but known answers. With `false_negatives` "resample", what is still one after the usual
    rounds is replaced by uniform draws; what is one even then is labelled.
    """

    knows_proposal = True
    rows_free = True
    resample_rounds = 4  # a list that has little else is not searched for long: uniform draws follow

    ids: Tensor
    starts: Tensor
    sums: Tensor | None

    def hold(self, lists: Lists) -> None:
        """Keep the lists, on the device that the sampler is moved to."""
        self.register_buffer("ids", lists.ids, persistent=False)
        self.register_buffer("starts", lists.starts, persistent=False)
        self.register_buffer("sums", lists.sums, persistent=False)
        # Rounds of a binary search through the longest list.
        self.rounds = int(lists.starts.diff().max()).bit_length()

    @abstractmethod
    def list_of(self, triples: Tensor, side: Side) -> Tensor:
        """Which list candidates for the `side` of each triple ``[B, 3]`` come from: int64 ``[B]``."""

    def memory(self) -> int:
        """The lists, which are no part of the checkpoint."""
        return sum(buffer.nbytes for buffer in self.buffers())

    def _bounds(self, triples: Tensor, side: Side) -> tuple[Tensor, Tensor]:
        """Where the lists of the rows begin and end: int64 ``[B, 1]`` each."""
        chosen = self.list_of(triples, side)[:, None]
        return self.starts[chosen], self.starts[chosen + 1]

    def draw(self, triples: Tensor, side: Side, generator: torch.Generator) -> Tensor:
        shape, device = (len(triples), self.negatives), triples.device
        if self.sums is None:
            uniforms = torch.rand(shape, generator=generator, device=device)
            return kernels.pick(self.ids, self.starts, self.list_of(triples, side), uniforms, self.num_entities)
        start, stop = self._bounds(triples, side)
        empty = start == stop
        low = self.sums[start]
        size = torch.where(empty, self.num_entities, self.sums[stop] - low)
        # Weights may add up to more than float32 can count.
        uniforms = torch.rand(shape, generator=generator, device=device, dtype=torch.float64)
        # A product close to the size may round up to it.
        chosen = torch.minimum((uniforms * size).long(), size - 1)
        place = torch.searchsorted(self.sums, low + chosen, right=True) - 1
        # Where there is no list, the number that was chosen is an entity; the place that is read then means nothing.
        return torch.where(empty, chosen, self.ids[place.clamp(max=len(self.ids) - 1)].long())

    def redraws(self, side: Side, generator: torch.Generator) -> list[tuple[int, Draw]]:
        return [*super().redraws(side, generator), (UNIFORM_ROUNDS, lambda triples: self.uniform(triples, generator))]

    def log_density(self, triples: Tensor, side: Side, entities: Tensor) -> Tensor:
        """Log of a candidate's share in its list, of numbers or of weights; ``-inf`` outside: ``[B, N]``."""
        start, stop = self._bounds(triples, side)
        last = len(self.ids) - 1
        low, high = start.expand_as(entities), stop.expand_as(entities)
        for _ in range(self.rounds):  # lists are sorted
            middle = (low + high) // 2
            below = (middle < high) & (self.ids[middle.clamp(max=last)] < entities)
            low, high = torch.where(below, middle + 1, low), torch.where(below, high, middle)
        inside = (low < stop) & (self.ids[low.clamp(max=last)] == entities)
        if self.sums is None:
            weight, total = torch.ones_like(entities), stop - start
        else:
            at = low.clamp(max=last)
            weight, total = self.sums[at + 1] - self.sums[at], self.sums[stop] - self.sums[start]
        share = torch.where(inside, weight, 0) / total
        return torch.where(start == stop, 1.0 / self.num_entities, share).log()
