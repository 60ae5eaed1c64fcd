"""Selecting the best candidates of each query: the k highest scores, known answers left out."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from eans.kernels.switch import operation


class Best(NamedTuple):
    """The best candidates of B queries, best first; of equal scores, the one of the smallest id.

    Attributes:
        scores: ``[B, k]``.
        entities: int64 ``[B, k]``; -1 behind the last of a query that has fewer than k candidates.
        nan: bool ``[B]``: NaN was among the scores, and the rest of the row means nothing.
    """

    scores: Tensor
    entities: Tensor
    nan: Tensor


@operation("numba")
def best(
    scores: Tensor,
    k: int,
    keys: Tensor,
    start: Tensor,
    stop: Tensor,
    first: int = 0,
    num_entities: int | None = None,
) -> Best:
    """The k best of each row; known answers are no candidates.

    Args:
        scores: ``[B, e]`` of the entities from `first` on.
        k: at most e.
        keys, start, stop, num_entities: the known answers, as in `count_better`.
    """


def merged(found: Best, more: Best, k: int) -> Best:
    """The k best of both, of which `found` has the smaller ids; fewer where both have fewer columns."""
    scores, entities = (torch.cat(parts, dim=1) for parts in zip(found[:2], more[:2], strict=True))
    # Each sort keeps the order of the one before among equals: by id, then by score, and what is missing comes last.
    order = scores.argsort(dim=1, descending=True, stable=True)
    order = order.gather(1, (entities.gather(1, order) < 0).to(torch.uint8).argsort(dim=1, stable=True))[:, :k]
    return Best(scores.gather(1, order), entities.gather(1, order), found.nan | more.nan)
