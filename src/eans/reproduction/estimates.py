"""How long a run will take: what its recipe makes of a step, at the speed that records of similar runs show.

A step costs what its pairs of positives and candidates cost, and what does not depend on them: dense Adam touches every
row of the tables, and a step that does next to nothing takes its time too. All are counted in one unit, one number of a
candidate's row that is compared with one query.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

from eans import data
from eans.errors import EansError
from eans.models import MODELS, Model
from eans.recipes import Recipe, load
from eans.reproduction.records import Record, RunSpec
from eans.reproduction.sharing import SHARING_GAIN, has_few_negatives

IN_PRODUCT = 1 / 32  # units per number of a candidate that is part of a matrix product
MOVED = 1.6  # times as much where a kernel moves candidates before it compares them (TransD)
# EANS compares a row, which is read once, with three queries; for dot products two of them fold into one.
THREE_QUERIES, TWO_QUERIES = 2.0, 1.2


class Costs(NamedTuple):
    """Units per step and per parameter.

    A GPU does so many pairs at once that what else there is counts for more. Chosen by the records of whole runs on an
    H200, and by `records/cpu-speed.json`.
    """

    step: float
    parameter: float


ON_A_GPU, ON_A_CPU = Costs(1.6e8, 15.0), Costs(3e6, 8.0)


class Estimate(NamedTuple):
    """A guess.

    Attributes:
        seconds: until the run is done, if it has the device to itself.
        similar: made from runs with other settings.
        hardware: made from records of this hardware.
    """

    seconds: float
    similar: bool
    hardware: str


def estimate(spec: RunSpec, records: Mapping[RunSpec, Record], hardware: str, saved: int = 0) -> Estimate | None:
    """How long a run takes of which `saved` steps are done; None where no record says anything.

    The nearest records count: those of this hardware before others, and by `NEARNESS`.
    """
    if not steps_of(spec):
        return None
    for here in (True, False):
        known = [record for record in records.values() if (record["hardware"] == hardware) is here]
        for trait in NEARNESS:
            near = [record for record in known if trait(record.spec) == trait(spec) and steps_of(record.spec)]
            if near:
                machine = statistics.mode(record["hardware"] for record in near)
                there = [record for record in near if record["hardware"] == machine]
                units = units_left(spec, saved, costs(there[0]))
                speed = statistics.median(_per_unit(record) for record in there)
                return Estimate(units * speed, trait is not NEARNESS[0], machine)
    return None


def steps_of(spec: RunSpec) -> int:
    """How many; 0 where its recipe does not tell."""
    return steps_and_units(spec, ON_A_GPU)[0]


def units_left(spec: RunSpec, saved: int = 0, of: Costs = ON_A_GPU) -> float:
    """What a run costs of which `saved` steps are done already; nothing where its recipe does not tell."""
    steps, units = steps_and_units(spec, of)
    return max(0, steps - saved) * units


def costs(record: Record) -> Costs:
    """Those of the device that a record is of."""
    return ON_A_CPU if record.get("device") == "cpu" else ON_A_GPU


def _graph_and_method(spec: RunSpec) -> str:
    """Self-adversarial weights cost next to nothing."""
    graph, _, method = spec.recipe.partition("/")
    return f"{graph}/{method.rpartition('/')[2].removesuffix('+adv')}"


# What two runs may share by which they take alike, the best likeness first.
NEARNESS: tuple[Callable[[RunSpec], str], ...] = (
    lambda spec: spec.settings,
    lambda spec: spec.recipe,
    _graph_and_method,
    lambda spec: spec.recipe.rpartition("/")[0],  # graph and model
    lambda _: "anything",
)


@cache
def steps_and_units(spec: RunSpec, of: Costs) -> tuple[int, float]:
    """The steps of a run, and what each costs; no steps where its recipe is unknown or leaves them to the graph."""
    try:
        recipe = load(spec.recipe, spec.overrides)
        entities = _entities(recipe.data.name or data.bundled_name())
    except EansError:
        return 0, 0.0
    if recipe.train.steps == "auto" or recipe.train.batch_size == "auto" or recipe.model.name not in MODELS:
        return 0, 0.0
    return recipe.train.steps, _units(recipe, recipe.train.batch_size, entities, of)


@cache
def _entities(graph: str) -> int:
    return data.sizes(graph).entities


def _units(recipe: Recipe, batch: int, entities: int, of: Costs) -> float:
    """What a step costs."""
    model, sampler = MODELS[recipe.model.name], recipe.sampler
    candidates = entities * IN_PRODUCT if sampler.name == "all" else sampler.negatives
    if sampler.name == "nscaching":  # to renew a cache, its entities and others are scored
        candidates += sampler.cache_size + sampler.cache_candidates
    queries = 1.0
    if recipe.loss.name == "substitution":
        queries = TWO_QUERIES if model.comparison == "dot" else THREE_QUERIES
    if model.candidate_scalars is not Model.candidate_scalars:
        queries *= MOVED
    pairs = batch * candidates * model.candidate_width * recipe.model.dim * queries
    return of.step + of.parameter * entities * model.entity_width * recipe.model.dim + pairs


def _per_unit(record: Record) -> float:
    """Seconds per unit, as if the run had had the device to itself; runs that shared it count by their share."""
    steps, units = steps_and_units(record.spec, costs(record))
    gained = record.beside > 1 and str(record.get("device")).startswith("cuda") and has_few_negatives(record.spec)
    gain = SHARING_GAIN if gained else 1.0
    return record.total_seconds * gain / (record.beside * int(record.get("steps", steps)) * units)
