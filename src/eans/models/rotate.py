"""RotatE (Sun et al., 2019): a relation rotates each complex coordinate of the head onto the tail's."""

import math

import torch
from torch import Tensor

from eans.graph import Side
from eans.kernels import complex_product
from eans.models.base import Model
from eans.models.query import Query


class RotatE(Model):
    """``score = -sum_i |h_i exp(i theta_i) - t_i|`` with ``theta = pi * phase / init_range``.

    Entities hold d complex numbers as ``[re | im]``; relations hold d raw phases, whose scale is tied to the initial
    range so that angles start uniform in ``+-pi``.
    """

    comparison = "modulus"
    entity_width = 2
    candidate_width = 2
    entity_names, relation_names = ("re", "im"), ("angle",)

    def relation_values(self, rows: Tensor) -> Tensor:
        """The angles ``theta``."""
        return rows * (math.pi / self.init_range)

    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Query:
        angle = self.relation_values(relation)
        rotation = torch.cat([torch.cos(angle), torch.sin(angle)], dim=-1)
        return Query(complex_product(anchor, rotation, conjugate_right=side == "head"))
