"""Weights of positives: how much each training triple counts in a batch."""

from __future__ import annotations

import torch
from torch import Tensor

from eans.graph import HEAD, RELATION, TAIL, Side, column, opposite


def subsampling_weights(triples: Tensor, num_relations: int, power: float = 0.5) -> Tensor:
    """Weights that even out frequent pairs: ``(c(h, r) + c(r, t)) ** -power``, float32 ``[n]``.

    ``c`` is the number of triples that share the pair, plus 3 (the smoothing of the RotatE code, which the EANS
    paper inherits without saying so, and its power).
    """
    total = _frequency(triples, num_relations, "tail") + _frequency(triples, num_relations, "head")
    return total.to(torch.float32).pow(-power)


def query_weights(triples: Tensor, num_relations: int, side: Side, power: float = 0.5) -> Tensor:
    """Weights that even out frequent queries for a `side`: ``c(h, r) ** -power`` for tails, float32 ``[n]``.

    ``c`` as in `subsampling_weights` (Kamigaito & Hayashi, 2022, who call it unique). With a power of 1 queries count
    nearly alike, however many answers they have.
    """
    return _frequency(triples, num_relations, side).to(torch.float32).pow(-power)


def answer_weights(triples: Tensor, side: Side, power: float = 0.5) -> Tensor:
    """Weights that favour frequent answers: ``0.1 + 0.9 (c(a) / max c) ** power``, float32 ``[n]``.

    ``c`` is how often an entity occurs as a head or a tail, and the answer ``a`` is the entity at the `side`. The
    authors of DURA (Zhang et al., 2020) weigh positives so in their code, with a power of 1.
    """
    counts = torch.bincount(triples[:, [HEAD, TAIL]].flatten()).to(torch.float32)
    share = counts[triples[:, column(side)]] / counts.amax()
    return 0.1 + 0.9 * share.pow(power)


def _frequency(triples: Tensor, num_relations: int, side: Side) -> Tensor:
    """How many triples share each one's query for the `side`, and 3 more: int64 ``[n]``."""
    inverse: Tensor
    counts: Tensor
    anchor = triples[:, column(opposite(side))]
    _, inverse, counts = torch.unique(
        anchor * num_relations + triples[:, RELATION], return_inverse=True, return_counts=True
    )
    return counts[inverse] + 3
