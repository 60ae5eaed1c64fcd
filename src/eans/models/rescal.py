"""RESCAL (Nickel et al., 2011): a relation is a full matrix between head and tail."""

import torch
from torch import Tensor

from eans.graph import Side
from eans.models.base import Model
from eans.models.query import Query


class RESCAL(Model):
    """``score = h^T M_r t``; a relation row holds the ``d x d`` numbers of ``M_r``, row by row.

    The tail query is ``h^T M_r`` and the head query ``M_r t``, so candidates are compared by a dot product and the
    kernels serve as they are. A batch gathers one matrix per positive, ``[B, d * d]``: keep d in the low hundreds.
    """

    comparison = "dot"
    linear_in_relation = True
    relation_names = ("matrix",)

    def relation_columns(self) -> int:
        return self.dim * self.dim

    @classmethod
    def default_range(cls, dim: int, margin: float = 9.0) -> float:
        """Initial scores, sums of ``d * d`` products of three, have a standard deviation of 0.1 whatever the width."""
        del margin
        return float(3.0**0.5 * (0.1 / dim) ** (1 / 3))

    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Query:
        matrix = relation.reshape(-1, self.dim, self.dim)
        if side == "head":
            matrix = matrix.transpose(1, 2)
        if len(matrix) == 1:  # one for all; a batched product would copy it for each
            return Query(anchor @ matrix[0])
        return Query(torch.bmm(anchor[:, None], matrix).squeeze(1))

    def relation_query(self, heads: Tensor, tails: Tensor) -> Tensor:
        return (heads[:, :, None] * tails[:, None, :]).flatten(1)
