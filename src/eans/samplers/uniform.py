"""Uniform negatives: any entity may replace the positive one."""

import math

import torch
from torch import Tensor

from eans.graph import Side
from eans.samplers.base import Sampler


class Uniform(Sampler):
    """Every entity is equally likely."""

    knows_proposal = True
    rows_free = True

    def draw(self, triples: Tensor, side: Side, generator: torch.Generator) -> Tensor:
        del side
        return self.uniform(triples, generator)

    def log_density(self, triples: Tensor, side: Side, entities: Tensor) -> Tensor:
        del triples, side
        return torch.full(entities.shape, -math.log(self.num_entities), device=entities.device)
