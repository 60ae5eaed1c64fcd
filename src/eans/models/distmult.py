"""DistMult (Yang et al., 2015): a diagonal bilinear form, symmetric in head and tail."""

from torch import Tensor

from eans.graph import Side
from eans.models.base import Model, Query


class DistMult(Model):
    """``score = sum_i h_i r_i t_i``."""

    comparison = "dot"

    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Query:
        del side  # the product is the same either way
        return Query(anchor * relation)
