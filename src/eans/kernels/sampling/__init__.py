"""Choosing the positives of a batch, drawing negatives, and labelling false negatives."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from torch import Tensor

from eans.kernels.sampling.reference import repeats
from eans.kernels.switch import operation

__all__ = ["label", "pick", "redraw", "repeats", "step_along", "take"]


@operation("triton")
def take(triples: Tensor, weights: Tensor, rows: Tensor, places: Tensor | None, column: int) -> tuple[Tensor, Tensor]:
    """Some of the triples ``[T, 3]`` and their weights ``[T]``: those of `rows` int64 ``[B]``.

    The order within a batch is free. A faster kernel may sort the triples by the place of the entity in their `column`
    along an ordering (`places` int64 ``[E]``), so that neighbours share what is in the cache.
    """


@operation("triton")
def step_along(ordering: Tensor, start: Tensor, noise: Tensor, sigma: float) -> Tensor:
    """Entities at Gaussian distances along an ordering, whose ends are joined.

    Args:
        ordering: int64 ``[E]``, the entity at each place.
        start: int64 ``[B]``, places.
        noise: standard normal ``[B, N]``.
        sigma: standard deviation in places.

    Returns:
        ``ordering[(start + round(sigma * noise)) % E]``, int64 ``[B, N]``.
    """


@operation("triton", "numba")
def pick(ids: Tensor, starts: Tensor, kept: Tensor, uniforms: Tensor, num_entities: int) -> Tensor:
    """Members of pools, or any entity where a pool is empty.

    Args:
        ids: int32 or int64 ``[P]``, the pools one after the other.
        starts: int64 ``[E + 1]``: the pool of entity e is ``ids[starts[e] : starts[e + 1]]``.
        kept: int64 ``[B]``, whose pool each row draws from.
        uniforms: uniform in ``[0, 1)``, float32 ``[B, N]``.
        num_entities: E.

    Returns:
        Member number ``floor(uniform * size)`` of each pool, int64 ``[B, N]``; an empty pool counts as all entities.
    """


@operation("triton", "numba")
def label(keys: Tensor, prefix: Tensor, entities: Tensor, num_entities: int, repeats_from: float | None) -> Tensor:
    """Which candidates are labelled as false negatives: bool ``[B, N]``.

    Args:
        keys: int64 ``[K]`` sorted: the known answers, as ``prefix * num_entities + entity``.
        prefix: int64 ``[B]``: the query of each row.
        entities: int64 ``[B, N]``: known answers among them are labelled.
        num_entities: E.
        repeats_from: in rows whose query has at least so many known answers, also label every draw that occurs again
            later in its row; None for no row.
    """


@operation("triton")
def redraw(keys: Tensor, prefix: Tensor, entities: Tensor, others: Tensor, num_entities: int) -> tuple[Tensor, Tensor]:
    """Candidates, with others in the place of known answers.

    Args:
        keys, prefix, entities, num_entities: as of `label`.
        others: int64 ``[R, B, N]``: what is tried at each place, round by round.

    Returns:
        At each place the first of ``entities[b, n], others[0, b, n], others[1, b, n], ...`` that is no known answer, or
        the last one if all are, int64 ``[B, N]``; and where that is so: bool ``[B, N]``.
    """
