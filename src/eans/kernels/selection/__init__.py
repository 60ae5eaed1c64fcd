"""Selecting the best candidates of each query: the k highest scores, known answers left out."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from typing import NamedTuple

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
def best(scores: Tensor, k: int, keys: Tensor, start: Tensor, stop: Tensor) -> Best:
    """The k best of each row; known answers are no candidates.

    Args:
        scores: ``[B, E]``.
        k: at most E.
        keys, start, stop: the known answers, as in `count_better`.
    """
