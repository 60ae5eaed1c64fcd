"""What may be added to a loss to keep a model's numbers small."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from eans import kernels


def l3_penalty(tables: Iterable[Tensor]) -> Tensor:
    """``sum |x|^3`` over whole tables: the regulariser behind the published DistMult and ComplEx numbers."""
    return torch.stack([kernels.cubes(table) for table in tables]).sum()


def n3_penalty(factors: Iterable[Tensor]) -> Tensor:
    """``sum |x|^3 / B`` over the coordinates of the batch's own rows (Lacroix et al., 2018): a scalar.

    Coordinates ``[B, P, ...]`` of P parts count by their Euclidean size: the modulus, for the two of a complex number.
    """
    sums = [kernels.cubed_sizes(factor) / len(factor) for factor in factors]
    return torch.stack(sums).sum()


def dura_penalty(entities: Iterable[Tensor], queries: Iterable[Tensor]) -> Tensor:
    """``(0.5 sum |e|^2 + 1.5 sum |q|^2) / B`` over rows of entities and of queries, ``[B, ...]`` each: a scalar.

    DURA (Zhang et al., 2020), with the weights that its authors have for ComplEx. A score is the product of a query and
    an entity; as a distance between the two it would have their squares besides, and these are what is kept small.
    """
    return 0.5 * _mean_squares(entities) + 1.5 * _mean_squares(queries)


def _mean_squares(parts: Iterable[Tensor]) -> Tensor:
    return torch.stack([part.square().sum() / len(part) for part in parts]).sum()


def stay_positive_penalty(total: Tensor, power: int) -> Tensor:
    """``|S|^p`` of the sum S of all scores of a graph (Hajimoradlou & Kazemi, 2022): a scalar."""
    return total.abs() if power == 1 else total.abs().pow(power)
