"""TransE (Bordes et al., 2013): a relation translates heads to tails."""

from torch import Tensor

from eans.graph import Side
from eans.models.base import Model
from eans.models.query import Query


class TransE(Model):
    """``score = -|h + r - t|_1``."""

    comparison = "l1"

    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Query:
        return Query(anchor + relation if side == "tail" else anchor - relation)
