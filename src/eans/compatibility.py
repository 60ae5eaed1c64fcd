"""Do a model, a sampler and an objective fit together? The one place that knows, and that words what does not.

Models, samplers, losses and terms declare what they can and what they need; nothing is tried out. A message names the
recipe's keys, and alternatives come from the registries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from eans.errors import UsageError
from eans.losses import LOSSES, Loss
from eans.models import MODELS, Model
from eans.objective import Objective
from eans.optimizer import OPTIMIZERS, OptimizerName
from eans.penalties import PENALTIES, RelationPrediction, Term
from eans.samplers import SAMPLERS, Sampler
from eans.types import Capability

Part = TypeVar("Part")

_CAN: Mapping[Capability, Callable[[Model | type[Model]], bool]] = {
    Capability.DOT_PRODUCT: lambda model: model.comparison == "dot",
    Capability.LINEAR_IN_RELATION: lambda model: model.linear_in_relation,
    Capability.CLOSED_FORM_SUM: lambda model: model.closed_form_sum,
    Capability.HEAD_QUERIES: lambda model: not model.tails_only,
    Capability.UNBOUNDED_ROWS: lambda model: not model.bounded,
    Capability.GRADIENT_BY_ROWS: lambda model: (
        model.fused and not model.bounded and model.candidate_width == model.entity_width
    ),
}


def can(model: Model | type[Model], needs: Iterable[Capability]) -> bool:
    """Does a model, or do models of a class with their default options, have all these capabilities?"""
    return all(_CAN[capability](model) for capability in needs)


def check(
    model: Model,
    sampler: Sampler,
    objective: Objective,
    *,
    batch_size: int,
    dropout: float = 0.0,
    rounded_rows: bool = False,
    optimizer: OptimizerName = "adam",
) -> None:
    """Raise `UsageError` for a combination that cannot be trained."""
    every_row = gradient_of_every_row(model, sampler, objective.terms)
    if OPTIMIZERS[optimizer].by_rows and every_row:
        dense = [name for name, kind in OPTIMIZERS.items() if not kind.by_rows]
        raise UsageError(
            f"train.optimizer '{optimizer}' updates the rows that a step uses, but {every_row} has a gradient for "
            f"every row of the entity table; set train.optimizer to {_or(dense)}"
        )
    for option, instead, needs in _needs_of_model(sampler, objective, dropout):
        _check_model(model, option, instead, needs)
    if rounded_rows and not can(model, [Capability.UNBOUNDED_ROWS]):
        raise UsageError("train.rows 'bfloat16' does nothing with model.bounded=true; leave it out")
    if batch_size < model.least_batch:
        raise UsageError(
            f"train.batch_size is {batch_size}, but model '{_name(model, MODELS)}' has layers that normalise over the "
            f"batch; set at least {model.least_batch}"
        )
    check_negatives(objective.loss, sampler, sampler.false_negatives)
    if objective.loss.needs_proposal and not sampler.knows_proposal:
        loss = _name(objective.loss, LOSSES)
        plain = " loss.correct_proposal=false," if hasattr(objective.loss, "correct_proposal") else ""
        raise UsageError(
            f"sampler '{_name(sampler, SAMPLERS)}' does not know the probability of its draws, which loss.name "
            f"'{loss}' needs; set{plain} "
            f"sampler.name to {_alternatives(SAMPLERS, lambda kind: kind.knows_proposal)}, or "
            f"loss.name to {_alternatives(LOSSES, lambda kind: not kind.needs_proposal)}"
        )
    need = sampler.working_memory_mb(batch_size)
    if need > sampler.memory_limit_mb:
        raise UsageError(
            f"sampler '{_name(sampler, SAMPLERS)}' needs {math.ceil(need)} MB for {batch_size} positives and "
            f"{model.num_entities} entities, but sampler.memory_limit_mb is {sampler.memory_limit_mb:g}; raise it, "
            "lower train.batch_size, or use another sampler.name"
        )


def gradient_of_every_row(
    model: Model | type[Model], sampler: Sampler | type[Sampler], terms: Iterable[Term | type[Term]]
) -> str:
    """What makes the gradient of the entity table one of all its rows, in words; empty if nothing does.

    Their sum over the table would have to be taken in each step: what an update by rows is there to avoid.
    """
    if not can(model, [Capability.GRADIENT_BY_ROWS]):
        bounded = model.bounded
        return f"model '{_name(model, MODELS)}'{' with model.bounded=true' if bounded else ''}"
    if sampler.all_entities:
        return f"sampler.name '{_name(sampler, SAMPLERS)}'"
    found = next((term for term in terms if term.every_row), None)
    return f"loss.penalty '{_name(found, PENALTIES)}'" if found else ""


def check_negatives(loss: Loss | type[Loss], sampler: Sampler | type[Sampler], false_negatives: str) -> None:
    """Raise `UsageError` unless the sampler has the negatives that the loss needs.

    Classes say as much as their objects here, so a recipe is checked before anything is built.
    """
    if loss.needs_negatives and not (sampler.draws or sampler.all_entities):
        raise UsageError(
            f"loss.name '{_name(loss, LOSSES)}' compares positives with negatives, and sampler.name "
            f"'{_name(sampler, SAMPLERS)}' has none; set loss.name to "
            f"{_alternatives(LOSSES, lambda kind: not kind.needs_negatives)}, or another sampler.name"
        )
    if loss.needs_labels and false_negatives != "mask":
        raise UsageError(
            f"loss.name '{_name(loss, LOSSES)}' learns from labelled false negatives: set sampler.false_negatives=mask"
        )


def _needs_of_model(
    sampler: Sampler, objective: Objective, dropout: float
) -> Iterable[tuple[str, str, tuple[Capability, ...]]]:
    """What is needed of the model, with the option of a recipe that needs it and a value that does not."""
    yield f"sampler.name '{_name(sampler, SAMPLERS)}'", "another sampler.name", sampler.needs
    for term in objective.terms:
        if isinstance(term, RelationPrediction):
            yield "loss.relation_weight", "loss.relation_weight to 0", term.needs
        else:
            yield f"loss.penalty '{_name(term, PENALTIES)}'", "another loss.penalty", term.needs
    if dropout:
        yield "train.dropout", "train.dropout to 0", (Capability.DOT_PRODUCT,)


def _check_model(model: Model, option: str, instead: str, needs: tuple[Capability, ...]) -> None:
    missing = next((capability for capability in needs if not can(model, [capability])), None)
    if missing is None:
        return
    if missing is Capability.UNBOUNDED_ROWS:
        raise UsageError(f"{option} needs model.bounded=false")
    raise UsageError(
        f"model '{_name(model, MODELS)}' {missing.value}, which {option} needs; "
        f"set {instead}, or model.name to {_alternatives(MODELS, lambda kind: can(kind, needs))}"
    )


def _name(part: Part | type[Part], registry: Mapping[str, type[Part]]) -> str:
    """The registered name of a class or of an object's class; else the class's own."""
    kind = part if isinstance(part, type) else type(part)
    return next((name for name, known in registry.items() if known is kind), kind.__name__.lower())


def _alternatives(registry: Mapping[str, type[Part]], fits: Callable[[type[Part]], bool]) -> str:
    """The names of the registered classes that fit: ``'a', 'b' or 'c'``."""
    return _or(name for name, kind in registry.items() if fits(kind))


def _or(names: Iterable[str]) -> str:
    *others, last = [f"'{name}'" for name in names] or ["another"]
    return f"{', '.join(others)} or {last}" if others else last
