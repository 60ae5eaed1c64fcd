"""From a recipe and a graph to the parts of a run. The only place that knows both names and classes."""

from __future__ import annotations

import math
from typing import Any

import torch

from eans import compatibility
from eans.batches import BatchStream, Purpose, mix
from eans.errors import UsageError
from eans.graph import KnowledgeGraph
from eans.losses import LOSSES, Loss
from eans.models import MODELS, Model
from eans.objective import Objective
from eans.optimizer import OptimizerName
from eans.options import AUTO, options_of
from eans.penalties import PENALTIES, RelationPrediction, Term
from eans.phases import phase
from eans.recipes.parts import NO_PENALTY, PENALTY, PartSection
from eans.recipes.schema import Recipe
from eans.samplers import SAMPLERS, Sampler
from eans.training import Schedule, Settings, Trainer

AUTO_PASSES = 100
AUTO_STEPS = (2_000, 100_000)
BATCH_SIZES = (16, 512)
LEAST_PASSES, LARGEST_BATCH = 20, 16_384  # of a graph of which AUTO_STEPS with BATCH_SIZES would be fewer passes
# Of `auto`: validations in a run, the steps between two at least, those without a better MRR before training stops, and
# the share of the steps that is done anyway where the learning rate has no drop.
VALIDATIONS, LEAST_BETWEEN_VALIDATIONS, PATIENCE, PATIENCE_FROM = 20, 100, 5, 0.5
VALID_TRIPLES = (100, 1_000)
VALIDATION_SHARE, STEP_COST = 0.1, 10
MOST_REPEATS = 1000  # of a triple inside one batch
LARGE = 1_000_000  # entities from which `auto` takes an optimizer whose step does not pass over all of them


def _options(kind: type, section: PartSection, prefix: str = "") -> dict[str, Any]:
    """The section's options of a class, as arguments of its constructor."""
    values = {name: getattr(section, prefix + name) for name in options_of(kind)}
    return {name: value for name, value in values.items() if value != AUTO}


def _with(section: PartSection, values: dict[str, Any]) -> PartSection:
    """The section with these values for what is ``auto``."""
    open_ones = {key for key, value in section.model_dump().items() if value == AUTO}
    return section.model_copy(update={key: value for key, value in values.items() if key in open_ones})


def resolve(recipe: Recipe, graph: KnowledgeGraph) -> Recipe:
    """Replace every ``auto`` by the number it stands for on this graph, and check names and combinations."""
    model_class = MODELS[recipe.model.name]
    sampler_class = SAMPLERS[recipe.sampler.name]
    loss_class = LOSSES[recipe.loss.name]
    compatibility.check_negatives(loss_class, sampler_class, recipe.sampler.false_negatives)
    if recipe.loss.penalty != NO_PENALTY and not recipe.loss.penalty_weight:
        raise UsageError(f"loss.penalty '{recipe.loss.penalty}' does nothing while loss.penalty_weight is 0; set it")
    if recipe.train.subsampling_power != Recipe().train.subsampling_power and not recipe.train.subsampling:
        raise UsageError(
            "train.subsampling_power does nothing without weights: set train.subsampling to true, query or answer, or "
            f"train.subsampling_power to {Recipe().train.subsampling_power}"
        )

    loss = _with(recipe.loss, loss_class.automatic(model_class.default_margin()))
    model = _with(recipe.model, model_class.automatic(recipe.model.model_dump(), getattr(loss, "margin", 0.0)))
    sampler = _with(recipe.sampler, sampler_class.automatic(recipe.sampler.model_dump(), graph))
    batch_size = automatic_batch_size(len(graph.train))
    if isinstance(recipe.train.batch_size, int):
        batch_size = recipe.train.batch_size
    if batch_size > MOST_REPEATS * len(graph.train):
        raise UsageError(f"train.batch_size is {batch_size}, but the graph has {len(graph.train)} triples; choose less")
    steps = recipe.train.steps
    if steps == "auto":
        steps = min(max(uncapped_steps(graph, batch_size), AUTO_STEPS[0]), AUTO_STEPS[1])
    validation = _validation(recipe, graph, int(steps), batch_size)
    optimizer = _optimizer(recipe, graph)
    return recipe.model_copy(
        update={
            "data": recipe.data.model_copy(update={"name": graph.source or recipe.data.name or graph.name}),
            "model": model,
            "sampler": sampler,
            "loss": loss,
            "train": recipe.train.model_copy(
                update={"steps": steps, "batch_size": batch_size, "optimizer": optimizer, **validation}
            ),
        }
    )


def automatic_batch_size(triples: int) -> int:
    """A quarter of train within `BATCH_SIZES`; as many of the largest as give `LEAST_PASSES` for each side where the
    most steps would be fewer, up to `LARGEST_BATCH`.
    """
    usual = min(max(triples // 4, BATCH_SIZES[0]), BATCH_SIZES[1])
    needed = 2 * LEAST_PASSES * triples / AUTO_STEPS[1]
    return usual if needed <= usual else min(math.ceil(needed / usual) * usual, LARGEST_BATCH)


def _optimizer(recipe: Recipe, graph: KnowledgeGraph) -> OptimizerName:
    """Adam, whose steps pass over all entities; where these are many, and the gradient is not one of all, lazily.

    Rates are those of Adam, so that Adagrad is nothing to choose without being asked.
    """
    if recipe.train.optimizer != "auto":
        return recipe.train.optimizer
    terms = [PENALTIES[recipe.loss.penalty]] if recipe.loss.penalty != NO_PENALTY else []
    model, sampler = MODELS[recipe.model.name], SAMPLERS[recipe.sampler.name]
    whole = compatibility.gradient_of_every_row(model, sampler, terms) or getattr(recipe.model, "bounded", False)
    return "adam" if whole or graph.num_entities < LARGE else "lazy-adam"


def uncapped_steps(graph: KnowledgeGraph, batch_size: int) -> int:
    """The steps that ``auto`` wants: so many passes over train for each side."""
    return 2 * AUTO_PASSES * math.ceil(len(graph.train) / batch_size)


def passes_over_train(steps: int, batch_size: int, graph: KnowledgeGraph) -> float:
    """How often each training triple is a positive of each side."""
    return steps / 2 / math.ceil(len(graph.train) / batch_size)


def _validation(recipe: Recipe, graph: KnowledgeGraph, steps: int, batch_size: int) -> dict[str, Any]:
    """When training is validated, on how many triples, and what follows from that."""
    section = recipe.train
    every, patience, keep, start = section.valid_every, section.patience, section.keep, section.patience_from
    if every == "auto":
        interval = max(LEAST_BETWEEN_VALIDATIONS, math.ceil(steps / VALIDATIONS))
        every = interval if len(graph.valid) and interval < steps else 0
    elif every and not len(graph.valid):
        raise UsageError(f"train.valid_every is set, but graph '{graph.name}' has no valid triples")
    for key, wanted in (("keep 'best'", keep == "best"), ("patience", patience not in ("auto", 0))):
        if wanted and not every:
            fix = "set train.valid_every" if len(graph.valid) else f"graph '{graph.name}' has no valid triples"
            raise UsageError(f"train.{key} needs validations: {fix}")
    triples = section.valid_triples
    if triples == "auto":
        triples = _valid_triples(recipe, graph, int(every), batch_size) if every else 0
    if start == "auto":
        drops = section.lr_decay == "drop" and section.lr_drop != 1.0
        start = section.lr_drop_at if drops else PATIENCE_FROM
    return {
        "valid_every": every,
        "valid_triples": triples,
        "patience": (PATIENCE if every else 0) if patience == "auto" else patience,
        "patience_from": start,
        "keep": ("best" if every else "last") if keep == "auto" else keep,
    }


def _valid_triples(recipe: Recipe, graph: KnowledgeGraph, every: int, batch_size: int) -> int:
    """So many that validating takes about a tenth of the time of the steps between; 0 for all.

    Counted in comparisons, so that it is the same on every machine. A triple is compared with all entities on both
    sides. A step costs about ten for each candidate and, for the optimizer, ten for each entity: as measured with
    RotatE on the bundled graph, where a comparison costs most.
    """
    size = graph.num_entities
    candidates = batch_size * (size if SAMPLERS[recipe.sampler.name].all_entities else recipe.sampler.negatives + 1)
    affordable = VALIDATION_SHARE * every * STEP_COST * (candidates + size) / (2 * size)
    triples = round(min(max(affordable, VALID_TRIPLES[0]), VALID_TRIPLES[1]))
    return triples if triples < len(graph.valid) else 0


def build_model(recipe: Recipe, graph: KnowledgeGraph) -> Model:
    """The model with its initial tables, which depend on the seed alone and not on the device."""
    section = recipe.model
    generator = torch.Generator().manual_seed(mix(recipe.train.seed, Purpose.INITIALISE, 0))
    model = MODELS[section.name]
    built = model(graph.num_entities, graph.num_relations, generator=generator, **_options(model, section))
    built.vocabulary = graph.vocabulary_sha256
    return built


def build_sampler(recipe: Recipe, graph: KnowledgeGraph) -> Sampler:
    """The sampler, with the options that it knows."""
    sampler = SAMPLERS[recipe.sampler.name]
    return sampler(graph, **_options(sampler, recipe.sampler))


def build_loss(recipe: Recipe) -> Loss:
    """The loss."""
    loss = LOSSES[recipe.loss.name]
    return loss(**_options(loss, recipe.loss))


def build_objective(recipe: Recipe) -> Objective:
    """The loss, and what is added to it."""
    section = recipe.loss
    terms: list[Term] = []
    if section.penalty != NO_PENALTY:
        penalty = PENALTIES[section.penalty]
        terms.append(penalty(**_options(penalty, section, PENALTY)))
    if section.relation_weight:
        terms.append(RelationPrediction(section.relation_weight))
    return Objective(build_loss(recipe), terms)


def build_trainer(recipe: Recipe, graph: KnowledgeGraph, device: torch.device | str = "cpu") -> Trainer:
    """Everything, on the device. The recipe must be resolved."""
    section = recipe.train
    model = build_model(recipe, graph).to(device)
    with phase("preparing sampler"):
        sampler = build_sampler(recipe, graph)
        sampler.place(device)
    stream = BatchStream(
        graph, int(section.batch_size), section.seed, section.subsampling, device, section.subsampling_power
    )
    schedule = Schedule(
        steps=int(section.steps),
        lr=section.lr,
        lr_decay=section.lr_decay,
        lr_drop=section.lr_drop,
        lr_drop_at=section.lr_drop_at,
        reset_optimizer=section.reset_optimizer,
    )
    settings = Settings(_optimizer(recipe, graph), section.rows, section.dropout)
    return Trainer(model, sampler, build_objective(recipe), stream, schedule, settings)
