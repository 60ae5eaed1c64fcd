"""Choosing positives, drawing negatives and labelling false ones, in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor


def take(triples: Tensor, weights: Tensor, rows: Tensor, places: Tensor | None, column: int) -> tuple[Tensor, Tensor]:
    """See `eans.kernels.take`; in the order of `rows`."""
    del places, column
    return triples[rows], weights[rows]


def step_along(ordering: Tensor, start: Tensor, noise: Tensor, sigma: float) -> Tensor:
    """See `eans.kernels.step_along`."""
    # The offset is rounded before it is added: float32 could not hold large indices exactly.
    index = start[:, None] + (noise * sigma).round_().long()
    return ordering[index.remainder(len(ordering))]


def pick(ids: Tensor, starts: Tensor, kept: Tensor, uniforms: Tensor, num_entities: int) -> Tensor:
    """See `eans.kernels.pick`."""
    start, stop = starts[kept, None], starts[kept + 1, None]
    empty = start == stop
    size = torch.where(empty, num_entities, stop - start)
    # A product close to the size may round up to it.
    chosen = torch.minimum((uniforms * size).long(), size - 1)
    # Where there is no pool, the number that was chosen is an entity; the place that is read then means nothing.
    return torch.where(empty, chosen, ids[(start + chosen).clamp(max=len(ids) - 1)].long())


def label(keys: Tensor, prefix: Tensor, entities: Tensor, num_entities: int, repeats_from: float | None) -> Tensor:
    """See `eans.kernels.label`."""
    wanted = prefix[:, None] * num_entities + entities
    if len(keys):
        known = keys[torch.searchsorted(keys, wanted).clamp_(max=len(keys) - 1)] == wanted
    else:
        known = torch.zeros_like(wanted, dtype=torch.bool)
    if repeats_from is None:
        return known
    ends = torch.searchsorted(keys, torch.stack([prefix, prefix + 1]) * num_entities)
    return known | (repeats(entities) & (ends[1] - ends[0] >= repeats_from)[:, None])


def redraw(keys: Tensor, prefix: Tensor, entities: Tensor, others: Tensor, num_entities: int) -> tuple[Tensor, Tensor]:
    """See `eans.kernels.redraw`."""
    known = label(keys, prefix, entities, num_entities, None)
    for candidates in others:
        entities = torch.where(known, candidates, entities)
        known = known & label(keys, prefix, entities, num_entities, None)
    return entities, known


def repeats(entities: Tensor) -> Tensor:
    """Which draws occur again later in their row: ``[B, N]`` -> bool ``[B, N]``."""
    ordered, position = entities.sort(dim=1, stable=True)
    again = torch.zeros_like(entities, dtype=torch.bool)
    again[:, :-1] = ordered[:, 1:] == ordered[:, :-1]
    return torch.zeros_like(again).scatter_(1, position, again)
