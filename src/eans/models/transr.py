"""TransR (Lin et al., 2015): entities are mapped into the relation's own space before the translation."""

from collections.abc import Mapping
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from eans.graph import Side
from eans.models.projected import ProjectedModel
from eans.models.query import Query
from eans.options import Option

NOISE = 0.1


class TransR(ProjectedModel):
    """``score = -|M_r h + r - M_r t|_1`` with ``M_r`` of shape ``[k, d]``.

    A relation row is ``[r | M_r]``: k numbers, then ``k * d``, row by row. The distance is L1, as in all translations
    here; the paper squares an L2 norm and bounds the norms of all vectors.

    Matrices start as the identity, cut off or filled up with zeros where k is not d, plus noise uniform in
    ``+-0.1 / sqrt(d)``, which changes a vector by about 6 percent of its length: at first this is TransE, which the
    paper trains beforehand for the same purpose, and yet no two relations are alike.

    A batch gathers one matrix per positive, ``[B, k * d]``, and multiplies every candidate by it: keep d and k in the
    low hundreds.

    Args:
        relation_dim: k; None for d.
    """

    comparison = "l1"

    def __init__(
        self,
        num_entities: int,
        num_relations: int,
        dim: int,
        *args: Any,
        relation_dim: Annotated[
            int | None, Option("width of the relations' spaces; auto: dim", ge=1, auto=True)
        ] = None,
        **kwargs: Any,
    ) -> None:
        # Before the tables are made: their widths depend on it.
        self.relation_dim = dim if relation_dim is None else relation_dim
        super().__init__(num_entities, num_relations, dim, *args, **kwargs)

    @classmethod
    def automatic(cls, options: Mapping[str, Any], margin: float) -> dict[str, Any]:
        return {**super().automatic(options, margin), "relation_dim": options["dim"]}

    def relation_columns(self) -> int:
        return self.relation_dim * (1 + self.dim)

    def relation_parts(self) -> dict[str, int]:
        return {"vector": self.relation_dim, "matrix": self.relation_dim * self.dim}

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        super().reset_parameters(generator)
        with torch.no_grad():
            matrices = self.relation[:, self.relation_dim :]
            identity = torch.eye(self.relation_dim, self.dim, device=matrices.device).reshape(1, -1)
            nn.init.uniform_(matrices, -NOISE * self.dim**-0.5, NOISE * self.dim**-0.5, generator=generator)
            matrices.add_(identity)

    def candidate(self, rows: Tensor, shift: Tensor | None) -> Tensor:
        """Entity rows mapped by the matrices `shift`.

        ``[B, d]`` by ``[B, k * d]`` or one for all, ``[1, k * d]`` -> ``[B, k]``; or ``[B, N, d]`` by ``[B, 1, k * d]``
        or ``[1, 1, k * d]`` -> ``[B, N, k]``.
        """
        assert shift is not None
        matrix = shift.reshape(-1, self.relation_dim, self.dim).transpose(1, 2)
        if len(matrix) == 1:  # one for all; a batched product would copy it for each
            return rows @ matrix[0]
        return rows @ matrix if rows.dim() == 3 else torch.bmm(rows[:, None], matrix).squeeze(1)

    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Query:
        translation, matrix = relation[:, : self.relation_dim], relation[:, self.relation_dim :]
        projected = self.candidate(anchor, matrix)
        return Query(projected + translation if side == "tail" else projected - translation, matrix)
