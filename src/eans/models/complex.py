"""ComplEx (Trouillon et al., 2016): DistMult over complex numbers, which makes room for asymmetric relations."""

from torch import Tensor

from eans.kernels import complex_product
from eans.models.base import Model
from eans.models.query import Query
from eans.types import Side, TripleRows


class ComplEx(Model):
    """``score = Re(sum_i h_i r_i conj(t_i))``; entities and relations hold d complex numbers as ``[re | im]``."""

    comparison = "dot"
    linear_in_relation = True
    entity_width = 2
    relation_width = 2
    candidate_width = 2
    entity_names = relation_names = ("re", "im")

    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Query:
        return Query(complex_product(anchor, relation, conjugate_right=side == "head"))

    def relation_query(self, heads: Tensor, tails: Tensor) -> Tensor:
        return complex_product(tails, heads, conjugate_right=True)

    def factors(self, rows: TripleRows) -> tuple[Tensor, Tensor, Tensor]:
        """Complex numbers of two parts: ``[B, 2, d]`` each."""
        head, relation, tail = (part.view(len(part), 2, self.dim) for part in super().factors(rows))
        return head, relation, tail
