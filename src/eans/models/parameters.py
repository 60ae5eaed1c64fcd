"""What a model owns: two tables, layers if it needs any, and what it declares of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from eans import kernels
from eans.errors import UsageError
from eans.graph import RELATION, column, opposite
from eans.huge_pages import on_huge_pages
from eans.kernels.deferred_gradients import AUTOGRAD, TableSinks
from eans.models.layers import require_own_dropout, seeded
from eans.options import Option
from eans.types import Capability, Side, TripleRows

# An option that models with tail queries alone declare again, with another default.
Reciprocal = Annotated[bool, Option("a second row per relation: (?, r, t) becomes (t, r_inverse, ?)")]


class Parameters(nn.Module):
    """What all models have in common before they score anything.

    Tables: `entity` ``[E, F]`` and `relation` ``[R + 1, G]``; the last relation row is the substitution relation of
    EANS. A subclass states the widths F and G in units of `dim`, and the comparison. What it owns besides, such as
    convolutions, it makes in `make_layers`; parameters are trained, saved and moved with the tables, buffers saved and
    moved.

    With reciprocal relations the table has ``2R + 1`` rows: row ``R + r`` is the inverse of relation r, and every head
    query (?, r, t) is answered as the tail query (t, R + r, ?). `score` and `score_relations` are the tail direction.

    Args:
        num_entities, num_relations: sizes of the graph.
        dim: the nominal width d; complex models store 2d numbers per entity.
        init_range: tables start uniform in ``+-init_range``; None for `default_range`.
        generator: source of the initial values.
        reciprocal: give every relation a second row for head queries.
    """

    comparison: ClassVar[kernels.Comparison]
    entity_width: ClassVar[int] = 1
    relation_width: ClassVar[int] = 1
    entity_names: ClassVar[tuple[str, ...]] = ("vector",)  # of the parts of an entity row, which are equally wide
    relation_names: ClassVar[tuple[str, ...]] = ("vector",)
    candidate_width: ClassVar[int] = 1  # leading columns of an entity row (in units of dim) that are compared
    vocabulary: str = ""  # `KnowledgeGraph.vocabulary_sha256` of the graph it was built for; empty if for none
    offset: float = 0.0  # added to every score
    fused: ClassVar[bool] = True  # candidates are compared by the kernels as they stand in the table
    linear_in_relation: ClassVar[bool] = False  # scores are linear in the relation's row: `relation_query`
    closed_form_sum: ClassVar[bool] = False  # the sum over all triples has a closed form: `total_score`
    entity_bias: ClassVar[bool] = False  # an entity row ends with a number that is added to its scores: `with_bias`
    tails_only: ClassVar[bool] = False  # `query` knows no side: head queries need reciprocal relations
    least_batch: ClassVar[int] = 1  # positives of a step that layers need; batch norm needs 2
    capturable: ClassVar[bool] = True  # a step can be captured as a CUDA graph: layers never wait for the device
    layer_numbers: int = 0  # that layers hold at a time for one query without gradients: bounds blocks of queries
    bounded: bool = False  # rows pass through a bounded function before they are compared

    def __init__(
        self,
        num_entities: int,
        num_relations: int,
        dim: Annotated[int, Option("nominal width d; complex models store 2d numbers per entity", ge=1, default=200)],
        init_range: Annotated[
            float | None,
            Option("tables start uniform in +-range; auto: (margin + 2) / dim, or by width", gt=0, le=1e38, auto=True),
        ] = None,
        generator: torch.Generator | None = None,
        reciprocal: Reciprocal = False,
    ) -> None:
        super().__init__()
        self.num_entities = num_entities
        self.num_relations = num_relations
        self.dim = dim
        self.reciprocal = reciprocal
        self.substitution_relation = num_relations * (2 if reciprocal else 1)
        self.init_range = init_range if init_range is not None else self.default_range(dim)
        if self.tails_only and not reciprocal:
            raise UsageError(f"model '{self._name()}' has head queries by inverse relations: set model.reciprocal=true")
        self.entity = nn.Parameter(on_huge_pages(torch.empty(num_entities, self.entity_columns())))
        self.relation = nn.Parameter(torch.empty(self.substitution_relation + 1, self.relation_columns()))
        self.reset_parameters(generator)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw fresh initial tables, and make the layers anew."""
        for table in (self.entity, self.relation):
            nn.init.uniform_(table, -self.init_range, self.init_range, generator=generator)
        if self.entity_bias:
            nn.init.zeros_(self.entity[:, -1])
        if type(self).make_layers is not Parameters.make_layers:
            with seeded(generator):
                self.make_layers()
            require_own_dropout(self)
            self.to(self.entity)
        self.eval()  # everywhere but in the steps of training

    def make_layers(self) -> None:
        """Make what the model owns besides its tables, and assign it to attributes.

        Layers may start as PyTorch has it; their random numbers follow from the seed. Options that they depend on are
        assigned before ``super().__init__`` is called.
        """

    def entity_columns(self) -> int:
        """F, the numbers of an entity row."""
        return self.entity_width * self.dim + self.entity_bias

    def candidate_columns(self) -> int:
        """D, the leading numbers of an entity row that are compared with queries."""
        return self.candidate_width * self.dim + self.entity_bias

    def relation_columns(self) -> int:
        """G, the numbers of a relation row; a model whose rows are no multiple of `dim` says so here."""
        return self.relation_width * self.dim

    def entity_parts(self) -> dict[str, int]:
        """What an entity row is made of, by name, with the width of each part: what exported files call them."""
        columns = self.entity_columns() - self.entity_bias
        parts = dict.fromkeys(self.entity_names, columns // len(self.entity_names))
        return {**parts, "bias": 1} if self.entity_bias else parts

    def relation_parts(self) -> dict[str, int]:
        """As `entity_parts`, of a relation row."""
        return dict.fromkeys(self.relation_names, self.relation_columns() // len(self.relation_names))

    def relation_values(self, rows: Tensor) -> Tensor:
        """Relation rows ``[B, G]`` in the units of the score's formula: ``[B, G]``."""
        return rows

    @classmethod
    def default_margin(cls) -> float:
        """The margin of losses: 9, as in the paper on FB15k-237, for distances; none for dot products."""
        return 0.0 if cls.comparison == "dot" else 9.0

    @classmethod
    def default_range(cls, dim: int, margin: float = 9.0) -> float:
        """Initial range: the RotatE code's ``(margin + 2) / dim`` for distances; for dot products the range at which
        initial scores have a standard deviation of 0.1 whatever the width.
        """
        if cls.comparison == "dot":
            return float(3.0**0.5 * (0.1 / (cls.candidate_width**2 * dim) ** 0.5) ** (1 / 3))
        return (margin + 2.0) / dim

    @classmethod
    def automatic(cls, options: Mapping[str, Any], margin: float) -> dict[str, Any]:
        """What the options of this class that may be ``"auto"`` then are, with a loss of this margin."""
        return {"init_range": cls.default_range(options["dim"], margin)}

    def entity_rows(self, entities: Tensor, sinks: TableSinks = AUTOGRAD) -> Tensor:
        """Entity parameters of ids ``[...]``: ``[..., F]``."""
        return kernels.gather(self.entity, entities, sinks.entity)

    def relation_rows(self, relations: Tensor, sinks: TableSinks = AUTOGRAD) -> Tensor:
        """Relation parameters of ids ``[B]``: ``[B, G]``."""
        return kernels.gather(self.relation, relations, sinks.relation)

    def entity_features(self) -> Tensor:
        """All entity-indexed parameters side by side, ``[E, F]``: what EANS clusters (paper, eq. 1)."""
        return self.entity.detach()

    def triple_rows(self, triples: Tensor, side: Side = "tail", sinks: TableSinks = AUTOGRAD) -> TripleRows:
        """The rows of triples ``[B, 3]``, both entities' gathered at once.

        Those of `side` come last, which is the order in which the gradients of an entity that is on both are added up.
        """
        ends = torch.stack((triples[:, column(opposite(side))], triples[:, column(side)]))
        anchor, answer = self.entity_rows(ends, sinks).unbind()
        head, tail = (anchor, answer) if side == "tail" else (answer, anchor)
        return TripleRows(head, self.relation_rows(triples[:, RELATION], sinks), tail)

    def oriented(self, triples: Tensor, side: Side) -> tuple[Tensor, Side]:
        """The queries for the `side` of triples ``[B, 3]`` as the tables answer them: triples ``[B, 3]`` and side.

        With reciprocal relations (h, r, t) turns into (t, R + r, h) in head queries.
        """
        column(side)  # raises for any but the two
        if not self.reciprocal or side == "tail":
            return triples, side
        head, relation, tail = triples.unbind(1)
        return torch.stack((tail, relation + self.num_relations, head), dim=1), "tail"

    def _name(self) -> str:
        return type(self).__name__.lower()

    def _lacks(self, capability: Capability) -> UsageError:
        return UsageError(f"model '{self._name()}' {capability.value}")
