"""TransH (Wang et al., 2014): entities are projected onto the relation's hyperplane before the translation."""

from torch import Tensor
from torch.nn.functional import normalize

from eans.graph import Side
from eans.models.projected import ProjectedModel
from eans.models.query import Query


class TransH(ProjectedModel):
    """``score = -|h' + r - t'|_1`` with ``e' = e - (w_r . e) w_r``.

    A relation row is ``[r | w]``; the unit normal is ``w_r = w / |w|``, normalised in the forward pass, so there is no
    constraint to keep. The distance is L1, as in all translations here; the paper squares an L2 norm and keeps r close
    to the hyperplane by a penalty.
    """

    comparison = "l1"
    relation_width = 2
    relation_names = ("vector", "normal")

    def candidate(self, rows: Tensor, shift: Tensor | None) -> Tensor:
        """Entity rows ``[..., d]`` on the hyperplane with unit normal `shift` ``[..., d]``."""
        assert shift is not None
        return rows - (rows * shift).sum(-1, keepdim=True) * shift

    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Query:
        translation, normal = relation.chunk(2, dim=-1)
        normal = normalize(normal, dim=-1)
        projected = self.candidate(anchor, normal)
        return Query(projected + translation if side == "tail" else projected - translation, normal)
