"""Ranking: comparing queries with all entities, and counting what scores higher than the true one."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from eans.kernels.kinds import Comparison
from eans.kernels.switch import operation


@operation("triton", "numba")
def compare_all(
    kind: Comparison, queries: Tensor, table: Tensor, shifts: Tensor | None = None, scalars: Tensor | None = None
) -> Tensor:
    """Compare each query with every entity, without gradients: ``[B, D]``, ``[E, D]`` -> ``[B, E]``.

    Optional `shifts` ``[B, D]`` and `scalars` ``[E]`` move the entities as in `compare`. Extra memory beyond the result
    is at most one block.
    """


class Counts(NamedTuple):
    """What `count_better` found, int64 ``[B]`` each; where `nan` is not 0, the other two mean nothing.

    Attributes:
        greater: candidates that score higher than the true entity.
        equal: candidates that score exactly like it, itself left out.
        nan: scores of the row that are NaN, whichever entity has them.
    """

    greater: Tensor
    equal: Tensor
    nan: Tensor


@operation("triton", "numba")
def count_better(
    scores: Tensor,
    truth: Tensor,
    keys: Tensor,
    start: Tensor,
    stop: Tensor,
    levels: Tensor | None = None,
    first: int = 0,
    num_entities: int | None = None,
) -> Counts:
    """Count in each row the candidates that beat or tie the true entity; known answers are no candidates.

    Args:
        scores: ``[B, e]`` of the entities from `first` on; rows may be strided.
        truth: int64 ``[B]``: the true entity, whether or not it is among the known answers.
        keys: int64 ``[K]``, ascending: an answer is a key modulo E, and the keys of one row agree in the rest.
        start, stop: int64 ``[B]``: row b's known answers are ``keys[start[b]:stop[b]]``, each one once. Those whose
            scores are not among these are passed over.
        levels: ``[B]``: the scores of the true entities; None where all of them are among `scores`.
        num_entities: E; None where `scores` are those of all.

    Counts over all entities less counts over the known answers: nothing of the scores' size is written. The true entity
    is left out by its id, whatever its score: counts of ranges of entities can be added up.
    """


def levels_of(scores: Tensor, truth: Tensor, first: int) -> Tensor:
    """The scores of the true entities ``[B]``, which are among ``[B, e]``."""
    return scores.gather(1, (truth - first)[:, None])[:, 0]


def check_counts(scores: Tensor, truth: Tensor, keys: Tensor, start: Tensor, stop: Tensor) -> None:
    """Raise for types and sizes that a compiled `count_better` would read wrongly."""
    whole = (truth, keys, start, stop)
    if scores.dtype not in (torch.float32, torch.float64) or any(tensor.dtype != torch.int64 for tensor in whole):
        types = ", ".join(str(tensor.dtype) for tensor in (scores, *whole))
        raise TypeError(f"scores are float32 or float64 and the rest int64, not {types}")
    if not len(scores) == len(truth) == len(start) == len(stop):
        raise ValueError(f"sizes differ: {', '.join(str(list(tensor.shape)) for tensor in (scores, *whole))}")
