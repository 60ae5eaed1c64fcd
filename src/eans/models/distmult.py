"""DistMult (Yang et al., 2015): a diagonal bilinear form, symmetric in head and tail."""

from torch import Tensor

from eans.graph import Side
from eans.models.multilinear import Multilinear


class DistMult(Multilinear):
    """``score = sum_i h_i r_i t_i``; bounded, ``(scale / d) sum_i tanh(h_i) tanh(r_i) tanh(t_i) + shift``.

    The sum over all triples is ``(scale / d) sum_i (sum_e tanh e_i)^2 (sum_r tanh r_i)``.
    """

    def product(self, anchor: Tensor, relation: Tensor, side: Side) -> Tensor:
        del side  # the product is the same either way
        return anchor * relation

    def relation_query(self, heads: Tensor, tails: Tensor) -> Tensor:
        return heads * tails
