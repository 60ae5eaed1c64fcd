"""TransD (Ji et al., 2015): entities are moved along a direction of the relation before the translation."""

from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from eans.errors import UsageError
from eans.graph import Side
from eans.kernels import half_products, project
from eans.kernels.deferred_gradients import AUTOGRAD, DeferredGradients, TableSinks
from eans.models.base import Model
from eans.models.query import Query
from eans.options import Option

Projection = Literal["relation", "entity-table"]


class TransD(Model):
    """``score = -|h' + r - t'|_1`` with ``e' = e + (e_p . e) r_p``.

    An entity row is ``[e | e_p]``, a relation row ``[r | r_p]``.

    Args:
        projection: where r_p comes from. ``"relation"``: the relation's own row. ``"entity-table"``: row r of the
            *entity* projections, an index mix-up in the code behind the published numbers, kept to reproduce them.
    """

    comparison = "l1"
    rows_alone = False
    entity_width = 2
    relation_width = 2
    entity_names = relation_names = ("vector", "projection")

    def __init__(
        self,
        *args: Any,
        projection: Annotated[
            Projection, Option("where r_p comes from; 'entity-table' is the authors' index mix-up")
        ] = "relation",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        if projection == "entity-table" and self.num_entities < len(self.relation):
            raise UsageError("model.projection 'entity-table' needs more entities than relations; use 'relation'")
        self.projection = projection

    def relation_rows(self, relations: Tensor, sinks: TableSinks = AUTOGRAD) -> Tensor:
        own = super().relation_rows(relations, sinks)
        if self.projection == "relation":
            return own
        return torch.cat([own[..., : self.dim], self.entity_rows(relations, sinks)[..., self.dim :]], dim=-1)

    def candidate_scalars(self, rows: Tensor, deferred: DeferredGradients | None = None) -> Tensor:
        return half_products(rows, deferred)

    def candidate(self, rows: Tensor, shift: Tensor | None) -> Tensor:
        assert shift is not None
        return project(rows, shift)

    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Query:
        translation, direction = relation.chunk(2, dim=-1)
        projected = project(anchor, direction)
        return Query(projected + translation if side == "tail" else projected - translation, direction)
