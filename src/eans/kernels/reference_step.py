"""What a training step does besides comparing, in plain PyTorch: the definition that every faster kernel must equal."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding, logsigmoid

# --- tables ---------------------------------------------------------------------------------------------------------


def gather(table: Tensor, ids: Tensor) -> Tensor:
    """Rows of a table ``[E, F]``: int64 ``[...]`` -> ``[..., F]``."""
    return embedding(ids, table)


def cubes(table: Tensor) -> Tensor:
    """``sum |x|^3`` over a table: a scalar."""
    return table.abs().pow(3).sum()


class _CubedSizes(torch.autograd.Function):
    """``sum |x|^3`` of coordinates ``[B, P, ...]``, and ``3 |x| x``, which autograd takes many more kernels for."""

    @staticmethod
    def forward(ctx: Any, coordinates: Tensor) -> Tensor:
        first, *others = coordinates.unbind(1)
        # PyTorch's own norm over a dimension in the middle takes a hundred times as long on a CPU.
        sizes = functools.reduce(torch.hypot, others, first.abs())
        ctx.save_for_backward(coordinates, sizes)
        return sizes.pow(3).sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        coordinates, sizes = ctx.saved_tensors
        slope: Tensor = coordinates * (3 * gradient * sizes)[:, None]
        return slope


def cubed_sizes(coordinates: Tensor) -> Tensor:
    """``sum |x|^3`` of coordinates ``[B, P, ...]`` of P parts, by their Euclidean sizes: a scalar."""
    total: Tensor = _CubedSizes.apply(coordinates)  # type: ignore[no-untyped-call]
    return total


def half_products(rows: Tensor) -> Tensor:
    """The inner product of the two halves of each row: ``[..., 2d]`` -> ``[...]``."""
    left, right = rows.chunk(2, dim=-1)
    return (left * right).sum(-1)


def project(rows: Tensor, direction: Tensor) -> Tensor:
    """Left halves, moved by the inner product of both halves along a direction: ``[B, 2d]``, ``[B, d]`` -> ``[B, d]``.

    ``left + (left . right) direction``; one direction may stand for all: ``[1, d]``.
    """
    return rows[..., : direction.shape[-1]] + half_products(rows)[..., None] * direction


def complex_product(left: Tensor, right: Tensor, conjugate_right: bool = False) -> Tensor:
    """Elementwise complex product of vectors stored ``[re | im]``, broadcasting: two ``[..., 2d]`` -> ``[..., 2d]``."""
    left_re, left_im = left.chunk(2, dim=-1)
    right_re, right_im = right.chunk(2, dim=-1)
    if conjugate_right:
        right_im = -right_im
    return torch.cat([left_re * right_re - left_im * right_im, left_re * right_im + left_im * right_re], dim=-1)


def products(queries: Tensor, table: Tensor) -> Tensor:
    """Dot products with every row: queries ``[B, D]``, table ``[E, D]`` -> ``[B, E]``."""
    return queries @ table.T


# --- batches --------------------------------------------------------------------------------------------------------


def take(triples: Tensor, weights: Tensor, rows: Tensor, places: Tensor | None, column: int) -> tuple[Tensor, Tensor]:
    """Some of the triples ``[T, 3]`` and their weights ``[T]``: those of `rows` int64 ``[B]``.

    The order within a batch is free. A faster kernel may sort the triples by the place of the entity in their `column`
    along a line (`places` int64 ``[E]``), so that neighbours share what is in the cache.
    """
    del places, column
    return triples[rows], weights[rows]


# --- negatives ------------------------------------------------------------------------------------------------------


def fold(index: Tensor, size: int, reflect: bool) -> Tensor:
    """Bring indices that ran over an end of a line back into ``0 .. size - 1``: round the corner, or mirrored."""
    if not reflect:
        return index.remainder(size)
    index = index.remainder(2 * size)
    return torch.minimum(index, 2 * size - 1 - index)


def step_along(line: Tensor, start: Tensor, noise: Tensor, sigma: float, reflect: bool) -> Tensor:
    """Entities at Gaussian distances along a line.

    Args:
        line: int64 ``[E]``, the entity at each place.
        start: int64 ``[B]``, places.
        noise: standard normal ``[B, N]``.
        sigma: standard deviation in places.
        reflect: mirror at the ends of the line instead of joining them.

    Returns:
        ``line[fold(start + round(sigma * noise))]``, int64 ``[B, N]``.
    """
    # The offset is rounded before it is added: float32 could not hold large indices exactly.
    index = start[:, None] + (noise * sigma).round_().long()
    return line[fold(index, len(line), reflect)]


def pick(ids: Tensor, starts: Tensor, kept: Tensor, lots: Tensor, num_entities: int) -> Tensor:
    """Members of pools, or any entity where a pool is empty.

    Args:
        ids: int32 or int64 ``[P]``, the pools one after the other.
        starts: int64 ``[E + 1]``: the pool of entity e is ``ids[starts[e] : starts[e + 1]]``.
        kept: int64 ``[B]``, whose pool each row draws from.
        lots: uniform in ``[0, 1)``, float32 ``[B, N]``.
        num_entities: E.

    Returns:
        The member number ``floor(lot * size)`` of each pool, int64 ``[B, N]``; an empty pool counts as all entities.
    """
    start, stop = starts[kept, None], starts[kept + 1, None]
    empty = start == stop
    size = torch.where(empty, num_entities, stop - start)
    # A product close to the size may round up to it.
    chosen = torch.minimum((lots * size).long(), size - 1)
    # Where there is no pool, the number that was chosen is an entity; the place that is read then means nothing.
    return torch.where(empty, chosen, ids[(start + chosen).clamp(max=len(ids) - 1)].long())


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
    """Candidates, with others in the place of known answers.

    Args:
        keys, prefix, entities, num_entities: as of `label`.
        others: int64 ``[R, B, N]``: what is tried at each place, round by round.

    Returns:
        At each place the first of ``entities[b, n], others[0, b, n], others[1, b, n], ...`` that is no known answer, or
        the last one if all are, int64 ``[B, N]``; and where that is so: bool ``[B, N]``.
    """
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


# --- loss -----------------------------------------------------------------------------------------------------------


def negative_shares(logits: Tensor, known_true: Tensor, temperature: float) -> Tensor:
    """Weight of each negative inside its row, zero where masked: ``[B, N]`` -> ``[B, N]``.

    Equal weights count masked negatives in N; adversarial ones sum to 1 over the unmasked.
    """
    if not logits.shape[1]:  # a row without negatives has no maximum either
        return torch.zeros_like(logits)
    unmasked = ~known_true
    if temperature == 0.0:
        return unmasked.to(logits.dtype) / logits.shape[1]
    scaled = torch.where(unmasked, temperature * logits, -torch.inf)
    # A row that is masked throughout has no maximum; any finite one makes its shares zero rather than NaN.
    top = scaled.amax(1, keepdim=True)
    exponentials = torch.exp(scaled - torch.where(torch.isinf(top), 0.0, top))
    return exponentials / exponentials.sum(1, keepdim=True).clamp(min=torch.finfo(logits.dtype).tiny)


def negative_loss(logits: Tensor, known_true: Tensor, weight: Tensor, temperature: float) -> Tensor:
    """``-sum_i w_i sum_j p_ij log sig(-s_ij)`` of negative logits ``[B, N]``, the known-true ones left out."""
    share = negative_shares(logits.detach(), known_true, temperature)
    return -(weight[:, None] * share * torch.where(known_true, 0.0, logsigmoid(-logits))).sum()


def log_count(negative: Tensor) -> float:
    """``log N`` of candidates ``[B, N]``; 0 if there are none."""
    return math.log(max(1, negative.shape[1]))


def log_candidates(negative: Tensor, known_true: Tensor, log_proposal: Tensor | None) -> Tensor:
    """``log(exp(s_ij) / (N q_ij))``, minus infinity where known to be true: three times ``[B, N]`` -> ``[B, N]``.

    Without a proposal ``1 / (N q_ij)`` is left out.
    """
    if log_proposal is not None:
        negative = negative - log_proposal - log_count(negative)
    return negative.masked_fill(known_true, -math.inf)


def surprise(positive: Tensor, negative: Tensor, known_true: Tensor, log_proposal: Tensor | None) -> Tensor:
    """``-log(exp(s_i) / (exp(s_i) + sum_j exp(z_ij)))``, z by `log_candidates`: ``[B]``, 3 x ``[B, N]`` -> ``[B]``."""
    # log(exp(0) + sum_j exp(z_j - s)): the zero keeps a masked row finite.
    above = log_candidates(negative - positive[:, None], known_true, log_proposal)
    return torch.cat([torch.zeros_like(positive)[:, None], above], dim=1).logsumexp(1)


def loss_terms(
    positive: Tensor,
    negative: Tensor,
    substitution: Tensor | None,
    known_true: Tensor,
    weight: Tensor,
    margin: float,
    temperature: float,
    substitution_weight: float,
    substitution_regularization: float,
) -> Tensor:
    """The parts of the log-sigmoid loss: positives, negatives, substitution: ``[3]``.

    Args:
        positive: scores ``[B]``.
        negative: scores ``[B, N]``.
        substitution: scores ``[B, N]``, or None for the plain loss.
        known_true: bool ``[B, N]``.
        weight: ``[B]``, of any sum.
        margin, temperature, substitution_weight, substitution_regularization: see `eans.losses`.
    """
    weight = weight / weight.sum()
    up = -(weight * logsigmoid(positive + margin)).sum()
    if substitution is None:
        down = negative_loss(negative + margin, known_true, weight, temperature)
        return torch.stack([up / 2, down / 2, torch.zeros_like(up)])
    logit = substitution + margin
    down = negative_loss(negative + margin - substitution_regularization * logit, known_true, weight, temperature)
    missed = torch.where(known_true, -logsigmoid(logit), 0.0).sum() / known_true.sum().clamp(min=1)
    size = logit.abs().mean() if logit.numel() else logit.sum()  # no negatives: 0, not 0 / 0
    predicted = substitution_weight * missed + substitution_regularization * size
    return torch.stack([up / 2, down / 2, predicted])
