"""From a recipe and a graph to the parts of a run. The only place that knows both names and classes."""

from __future__ import annotations

import inspect
import math
from typing import Any, TypeVar

import torch

from eans.batches import BatchStream, Purpose, mix
from eans.errors import UsageError, did_you_mean
from eans.fitting import Plan
from eans.graph import TAIL, KnowledgeGraph
from eans.losses import LOSSES, LogSigmoid
from eans.models import MODELS, Model
from eans.recipes.schema import Recipe, Section
from eans.samplers import SAMPLERS, Sampler
from eans.samplers.eans import default_clusters, default_sigma
from eans.training import Schedule, Trainer

AUTO_PASSES = 100
AUTO_STEPS = (2_000, 100_000)
BATCH_SIZES = (16, 512)
MOST_REPEATS = 1000  # of a triple inside one batch

Part = TypeVar("Part")


def _choose(kind: str, name: str, registry: dict[str, Part]) -> Part:
    if name not in registry:
        raise UsageError(f"unknown {kind}.name '{name}'{did_you_mean(name, registry)} (one of {', '.join(registry)})")
    return registry[name]


def _options(part: type, section: Section) -> dict[str, Any]:
    """The section's values that the class, or one it inherits from, takes as arguments of the same name."""
    constructors = (base.__init__ for base in part.__mro__ if "__init__" in vars(base))  # type: ignore[misc]
    accepted = {name for constructor in constructors for name in inspect.signature(constructor).parameters}
    return {name: value for name, value in section.model_dump().items() if name in accepted}


def resolve(recipe: Recipe, graph: KnowledgeGraph) -> Recipe:
    """Replace every ``auto`` by the number it stands for on this graph, and check names and combinations."""
    model_class = _choose("model", recipe.model.name, MODELS)
    sampler_class = _choose("sampler", recipe.sampler.name, SAMPLERS)
    loss_class = _choose("loss", recipe.loss.name, LOSSES)
    if loss_class.needs_negatives and not (sampler_class.draws or sampler_class.whole):
        raise UsageError(
            f"loss.name '{recipe.loss.name}' compares positives with negatives, and sampler.name "
            f"'{recipe.sampler.name}' has none; set loss.name=logsigmoid or another sampler.name"
        )
    if loss_class is LOSSES["substitution"] and recipe.sampler.false_negatives != "mask":
        raise UsageError(
            "loss.name 'substitution' learns from labelled false negatives: set sampler.false_negatives=mask"
        )
    if recipe.loss.penalty != "none" and not recipe.loss.penalty_weight:
        raise UsageError(f"loss.penalty '{recipe.loss.penalty}' does nothing while loss.penalty_weight is 0; set it")
    if recipe.train.subsampling_power != Recipe().train.subsampling_power and not recipe.train.subsampling:
        raise UsageError(
            "train.subsampling_power does nothing without weights: set train.subsampling to true, query or answer, or "
            f"train.subsampling_power to {Recipe().train.subsampling_power}"
        )
    if recipe.train.keep == "best" and not recipe.train.valid_every:
        raise UsageError("train.keep 'best' needs validations: set train.valid_every")
    if recipe.train.patience and not recipe.train.valid_every:
        raise UsageError("train.patience needs validations: set train.valid_every")
    if recipe.train.valid_every and not len(graph.valid):
        raise UsageError(f"train.valid_every is set, but graph '{graph.name}' has no valid triples")

    margin, init_range = recipe.loss.margin, recipe.model.init_range
    if margin == "auto":
        margin = model_class.default_margin() or loss_class.least_margin
    if init_range == "auto":
        init_range = model_class.default_range(recipe.model.dim, margin)
    relation_dim = recipe.model.dim if recipe.model.relation_dim == "auto" else recipe.model.relation_dim
    clusters, sigma = recipe.sampler.clusters, recipe.sampler.sigma
    if clusters == "auto":
        clusters = default_clusters(graph.num_entities)
    if sigma == "auto":
        sigma = default_sigma(graph.num_entities, clusters)
    batch_size = min(max(len(graph.train) // 4, BATCH_SIZES[0]), BATCH_SIZES[1])
    if isinstance(recipe.train.batch_size, int):
        batch_size = recipe.train.batch_size
    if batch_size > MOST_REPEATS * len(graph.train):
        raise UsageError(f"train.batch_size is {batch_size}, but the graph has {len(graph.train)} triples; choose less")
    steps = recipe.train.steps
    if steps == "auto":
        passes = 2 * AUTO_PASSES * math.ceil(len(graph.train) / batch_size)
        steps = min(max(passes, AUTO_STEPS[0]), AUTO_STEPS[1])
    return recipe.model_copy(
        update={
            "data": recipe.data.model_copy(update={"name": graph.source or recipe.data.name or graph.name}),
            "model": recipe.model.model_copy(update={"init_range": init_range, "relation_dim": relation_dim}),
            "sampler": recipe.sampler.model_copy(update={"clusters": clusters, "sigma": sigma}),
            "loss": recipe.loss.model_copy(update={"margin": margin}),
            "train": recipe.train.model_copy(update={"steps": steps, "batch_size": batch_size}),
        }
    )


def build_model(recipe: Recipe, graph: KnowledgeGraph) -> Model:
    """The model with its initial tables, which depend on the seed alone and not on the device."""
    section = recipe.model
    generator = torch.Generator().manual_seed(mix(recipe.train.seed, Purpose.INITIALISE, 0))
    model = MODELS[section.name]
    return model(graph.num_entities, graph.num_relations, generator=generator, **_options(model, section))


def build_sampler(recipe: Recipe, graph: KnowledgeGraph) -> Sampler:
    """The sampler, with the options that it knows."""
    sampler = SAMPLERS[recipe.sampler.name]
    return sampler(graph, **_options(sampler, recipe.sampler))


def build_loss(recipe: Recipe) -> LogSigmoid:
    """The loss."""
    loss = LOSSES[recipe.loss.name]
    return loss(**_options(loss, recipe.loss))


def build_trainer(recipe: Recipe, graph: KnowledgeGraph, device: torch.device | str = "cpu") -> Trainer:
    """Everything, on the device. The recipe must be resolved."""
    section = recipe.train
    loss = build_loss(recipe)
    model = build_model(recipe, graph).to(device)
    sampler = build_sampler(recipe, graph)
    sampler.place(device)
    if loss.needs_proposal:  # a sampler that cannot say how likely its draws are refuses now, not in the first step
        triples = graph.train[:1].to(device)
        sampler.log_proposal(triples, "tail", triples[:, TAIL:])
    schedule = Schedule(
        steps=int(section.steps),
        lr=section.lr,
        lr_decay=section.lr_decay,
        lr_drop=section.lr_drop,
        lr_drop_at=section.lr_drop_at,
        reset_optimizer=section.reset_optimizer,
    )
    return Trainer(
        model,
        sampler,
        loss,
        BatchStream(
            graph, int(section.batch_size), section.seed, section.subsampling, device, section.subsampling_power
        ),
        schedule,
        penalty=recipe.loss.penalty,
        penalty_weight=recipe.loss.penalty_weight,
        seed=section.seed,
        rows=section.rows,
        device=device,
        penalty_power=recipe.loss.penalty_power,
        relation_weight=recipe.loss.relation_weight,
        optimizer=section.optimizer,
        dropout=section.dropout,
    )


def build_plan(recipe: Recipe) -> Plan:
    """The cadence of logs, validations and checkpoints."""
    section = recipe.train
    return Plan(section.log_every, section.valid_every, section.checkpoint_every, section.patience)
