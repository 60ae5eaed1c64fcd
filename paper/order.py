"""The ordering of entities in numbers small enough for a record: where they lie, and how alike its parts are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eans import Trainer

POINTS = 2000
PARTS = 64


@torch.no_grad()
def describe_order(trainer: Trainer, points: int = POINTS, parts: int = PARTS) -> dict[str, Any] | None:
    """The sampler's ordering of entities as small tables, or None if it has none.

    Returns:
        - ``entities``: how many stand in the ordering; ``step``: when.
        - ``points``: at most 2,000 entities at equal distances in the ordering, ``[position, x, y]`` each, with x and
          y the first two principal components of their features.
        - ``explained``: the shares of the variance in x and in y.
        - ``similarity``: ``[parts, parts]``, the mean cosine similarity of two entities, one from each of two parts of
          the ordering; features are centred first.
    """
    ordering = trainer.sampler.ordering()
    if ordering is None:
        return None
    features = trainer.model.entity_features().double()
    features = (features - features.mean(0))[ordering[0]]
    count = len(features)
    chosen = torch.linspace(0, count - 1, min(points, count), device=features.device).round().long()
    axes, shares = principal_axes(features)
    places = (features[chosen] @ axes).cpu()
    alike = similarity(features, min(parts, max(1, count // 2)))
    return {
        "step": trainer.completed,
        "entities": count,
        "points": [
            [position, round(x, 3), round(y, 3)]
            for position, (x, y) in zip(chosen.tolist(), places.tolist(), strict=True)
        ],
        "explained": [round(share, 4) for share in shares],
        "similarity": [[round(value, 3) for value in row] for row in alike.tolist()],
    }


def principal_axes(centred: Tensor) -> tuple[Tensor, list[float]]:
    """Directions of the largest variance ``[F, 2]`` of centred points ``[E, F]``, and the shares of it they have.

    Signs are fixed: the largest coordinate of a direction is positive.
    """
    variances, vectors = torch.linalg.eigh(centred.T @ centred)
    axes = vectors[:, -2:].flip(1)
    if axes.shape[1] < 2:  # entities with one number each lie on a line
        axes = torch.cat([axes, torch.zeros_like(axes)], 1)
    largest = axes.gather(0, axes.abs().argmax(0, keepdim=True))
    shares = variances.flip(0)[:2] / variances.sum().clamp_min(torch.finfo(variances.dtype).tiny)
    return axes * torch.where(largest < 0, -1.0, 1.0), [*shares.tolist(), 0.0][:2]


def similarity(features: Tensor, parts: int) -> Tensor:
    """Mean cosine similarity between `parts` equal stretches of the rows ``[E, F]``: ``[parts, parts]``.

    A mean of dot products is the dot product of means; an entity is not compared with itself.
    """
    unit = torch.nn.functional.normalize(features, dim=1)
    stretches = torch.tensor_split(unit, parts)
    means = torch.stack([stretch.mean(0) for stretch in stretches])
    alike = means @ means.T
    for part, stretch in enumerate(stretches):
        size, own = len(stretch), stretch.square().sum()
        if size > 1:
            alike[part, part] = (size * size * alike[part, part] - own) / (size * (size - 1))
    return alike
