"""What may be added to a loss: penalties that keep parameters or scores small, and the prediction of relations.

A term sees the model and the positives of a step, never a recipe; it declares what the model must be able to do. A new
penalty is one class and one line in `PENALTIES`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from eans import kernels
from eans.graph import RELATION
from eans.kernels.deferred_gradients import AUTOGRAD, DeferredGradients
from eans.models import Model, Positives
from eans.options import Option
from eans.types import Capability, TripleRows


class Term(ABC):
    """Base of all terms that are added to a loss.

    Args:
        weight: factor on the value.

    Attributes:
        name: of the term in the training log.
        needs: what the model must be able to do.
        whole_tables: the tables, by attribute of the model, of whose size PyTorch makes tensors to compute it.
        every_row: has it a gradient for every row of the entity table?
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[Capability, ...]] = ()
    whole_tables: ClassVar[tuple[str, ...]] = ()
    every_row: ClassVar[bool] = False

    def __init__(self, weight: Annotated[float, Option("weight of the penalty", ge=0, default=0.0)]) -> None:
        self.weight = weight

    @abstractmethod
    def value(self, model: Model, positives: Positives) -> Tensor:
        """The term before its factor, for the positives of a step: a scalar."""


class L3(Term):
    """`l3_penalty` of both tables."""

    name = "l3"
    every_row = True

    def value(self, model: Model, positives: Positives) -> Tensor:
        return l3_penalty((model.entity, model.relation), positives.sinks)


def l3_penalty(tables: Sequence[Tensor], sinks: Sequence[DeferredGradients | None] = AUTOGRAD) -> Tensor:
    """``sum |x|^3`` over whole tables: the regulariser behind the published DistMult and ComplEx numbers."""
    return torch.stack([kernels.sum_abs_cubed(*table) for table in zip(tables, sinks, strict=False)]).sum()


class N3(Term):
    """`n3_penalty` of the batch's heads, relations and tails."""

    name = "n3"

    def value(self, model: Model, positives: Positives) -> Tensor:
        return n3_penalty(model.factors(positives.rows))


def n3_penalty(factors: Iterable[Tensor]) -> Tensor:
    """``sum |x|^3 / B`` over the coordinates of the batch's own rows (Lacroix et al., 2018): a scalar.

    Coordinates ``[B, P, ...]`` of P parts count by their Euclidean size: the modulus, for the two of a complex number.
    """
    sums = [kernels.sum_moduli_cubed(factor) / len(factor) for factor in factors]
    return torch.stack(sums).sum()


class DURA(Term):
    """`dura_penalty` of the batch's entities and of the queries made of them."""

    name = "dura"
    needs = (Capability.DOT_PRODUCT, Capability.HEAD_QUERIES, Capability.UNBOUNDED_ROWS)

    def value(self, model: Model, positives: Positives) -> Tensor:
        return dura_penalty(*duals(model, positives.rows))


def duals(model: Model, rows: TripleRows) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The rows of heads and tails, and the queries made of them for tails and heads: four tensors ``[B, ...]``."""
    head, relation, tail = rows
    return (head, tail), (model.query(head, relation, "tail").vector, model.query(tail, relation, "head").vector)


def dura_penalty(entities: Iterable[Tensor], queries: Iterable[Tensor]) -> Tensor:
    """``(0.5 sum |e|^2 + 1.5 sum |q|^2) / B`` over rows of entities and of queries, ``[B, ...]`` each: a scalar.

    DURA (Zhang et al., 2020), with the weights that its authors have for ComplEx. A score is the product of a query and
    an entity; as a distance between the two it would have their squares besides, and these are what is kept small.
    """
    return 0.5 * _mean_squares(entities) + 1.5 * _mean_squares(queries)


def _mean_squares(parts: Iterable[Tensor]) -> Tensor:
    return torch.stack([part.square().sum() / len(part) for part in parts]).sum()


class StayPositive(Term):
    """`stay_positive_penalty` of the sum of all scores.

    Args:
        weight: factor on the value.
        power: p.
    """

    name = "stay-positive"
    needs = (Capability.CLOSED_FORM_SUM,)
    whole_tables = ("entity",)
    every_row = True

    def __init__(self, weight: float, power: Annotated[Literal[1, 2], Option("p of |sum of scores|^p")] = 1) -> None:
        super().__init__(weight)
        self.power = power

    def value(self, model: Model, positives: Positives) -> Tensor:
        del positives
        return stay_positive_penalty(model.total_score(), self.power)


def stay_positive_penalty(total: Tensor, power: int) -> Tensor:
    """``|S|^p`` of the sum S of all scores of a graph (Hajimoradlou & Kazemi, 2022): a scalar."""
    return total.abs() if power == 1 else total.abs().pow(power)


class RelationPrediction(Term):
    """`relation_loss` of the batch's positives: not a penalty, but added to a loss in the same way."""

    name = "relation"
    needs = (Capability.LINEAR_IN_RELATION, Capability.UNBOUNDED_ROWS)
    whole_tables = ("relation",)

    def value(self, model: Model, positives: Positives) -> Tensor:
        scores = model.relation_scores(positives.rows)
        return relation_loss(scores, positives.triples[:, RELATION], positives.weight)


def relation_loss(scores: Tensor, relations: Tensor, weight: Tensor) -> Tensor:
    """``-sum_i w_i log softmax_r(s_ir)`` at each triple's own relation (Chen et al., 2021): a scalar.

    Scores ``[B, R]`` of all relations between head and tail, relations int64 ``[B]``, weight ``[B]``.
    """
    return (weight / weight.sum() * cross_entropy(scores, relations, reduction="none")).sum()


PENALTIES: dict[str, type[Term]] = {"l3": L3, "n3": N3, "dura": DURA, "stay-positive": StayPositive}
