"""SimplE (Kazemi & Poole, 2018): entities have one vector as heads and one as tails, tied by inverse relations."""

from __future__ import annotations

import torch
from torch import Tensor

from eans.graph import Side
from eans.models.multilinear import Multilinear


class SimplE(Multilinear):
    """``score = (<h_head, r, t_tail> + <t_head, r_inverse, h_tail>) / 2`` with ``<a, b, c> = sum_i a_i b_i c_i``.

    An entity row is ``[head | tail]``, a relation row ``[r | r_inverse]``. Each side has one query, which is compared
    with the whole candidate row: ``[r_inverse h_tail | r h_head] / 2`` for tails, ``[r t_tail | r_inverse t_head] / 2``
    for heads. Bounded, the sum over all triples is
    ``(scale / d) / 2 sum_i (sum_e head_i) (sum_e tail_i) (sum_r (r_i + r_inverse_i))`` of rows after tanh.
    """

    entity_width = 2
    relation_width = 2
    candidate_width = 2
    entity_names, relation_names = ("head", "tail"), ("vector", "inverse")

    @classmethod
    def default_range(cls, dim: int, margin: float = 9.0) -> float:
        """A score is half a sum of ``2 d`` products: its variance is ``d / 2`` times that of one."""
        del margin
        return float(3.0**0.5 * (0.1 / (dim / 2) ** 0.5) ** (1 / 3))

    def product(self, anchor: Tensor, relation: Tensor, side: Side) -> Tensor:
        as_head, as_tail = anchor.chunk(2, dim=-1)
        forward, inverse = relation.chunk(2, dim=-1)
        with_tail, with_head = (inverse, forward) if side == "tail" else (forward, inverse)
        return torch.cat([with_tail * as_tail, with_head * as_head], dim=-1) / 2

    def relation_query(self, heads: Tensor, tails: Tensor) -> Tensor:
        head_first, head_second = heads.chunk(2, dim=-1)
        tail_first, tail_second = tails.chunk(2, dim=-1)
        return torch.cat([head_first * tail_second, tail_first * head_second], dim=-1) / 2
