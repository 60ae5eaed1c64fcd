"""What training on a graph takes on this machine, measured on a few steps and a few ranked triples."""

from __future__ import annotations

import math
import time
from typing import Any

import torch

from eans.costs import seconds_per_step
from eans.description.memory import held
from eans.devices import hardware_name
from eans.evaluation import rank
from eans.graph import KnowledgeGraph, Split
from eans.phases import phase
from eans.ranking import MOST_ROWS, bytes_per_query
from eans.recipes import Recipe, all_keys, default_for, key_groups, load, names
from eans.recipes.build import build_trainer
from eans.recipes.choosing import choose_recipe
from eans.run import MEGABYTE
from eans.run_progress import plan
from eans.training import Trainer

SECONDS = 2.0  # that steps, and rankings, are measured for
FIRST = 16  # triples that are ranked before any is measured: compiles


def suggested(graph: KnowledgeGraph) -> tuple[Recipe, dict[str, Any]]:
    """The recipe that `eans.train` takes where none is named, and what decided about it.

    `choices` are the values that the recipe leaves to the graph, each with its rule.
    """
    recipe = choose_recipe(graph, None, None, None, {})
    source = graph.source or graph.name
    plain = load(default_for(source), data=source).model_dump()
    rules = {
        key.key: key.help.partition("auto: ")[2]
        for group in key_groups()
        for key in group.keys
        if not group.owners or getattr(recipe, key.key.split(".")[0]).name in group.owners.split(" ", 1)[1].split(", ")
    }
    resolved, choices = recipe.model_dump(), []
    for key in all_keys():
        section, _, name = key.partition(".")
        if plain[section].get(name) == "auto":
            choices.append({"key": key, "value": resolved[section][name], "rule": rules[key]})
    own = any(name.startswith(f"{source}/") for name in names())
    model, sampler, train = recipe.model, recipe.sampler, recipe.train
    words = (
        f"{model.name} d={model.dim}, {sampler.name} negatives n={sampler.negatives}, {recipe.loss.name} loss,"
        f" {train.optimizer} lr={train.lr}, b={train.batch_size}"
    )
    settings = {section: values for section, values in resolved.items() if isinstance(values, dict)}
    return recipe, {
        "name": recipe.name,
        "own": own,
        "plan": [words, *plan(recipe, graph)],
        "choices": choices,
        "settings": settings,
    }


def costs(recipe: Recipe, graph: KnowledgeGraph, device: torch.device) -> dict[str, Any]:
    """Seconds and bytes of a run, estimated: a run may stop earlier, and other work on the machine makes it slower.

    `seconds`: of preparing (which compiles, where that was not done before), of a step, of ranking a triple on both
    sides, and of all of training, validating and ranking at the end. `bytes`: what is held all the time, and
    `ranking`, what ranking takes besides.
    """
    began = time.perf_counter()
    trainer = build_trainer(recipe, graph, device)
    preparing = time.perf_counter() - began
    with phase("measuring steps"):
        step = seconds_per_step(trainer, SECONDS)
    section = recipe.train
    held_out = len(graph.valid) + len(graph.test)
    validations = int(section.steps) // int(section.valid_every) if section.valid_every else 0
    ranked = int(section.valid_triples) or len(graph.valid)
    memory = recipe.evaluation.memory_mb * MEGABYTE
    with phase("measuring ranking"):
        triple = _seconds_per_triple(trainer, graph, memory) if held_out else 0.0
    parts = {
        "training": int(section.steps) * step,
        "validating": validations * min(ranked, len(graph.valid)) * triple,
        "ranking": held_out * triple,
    }
    found = held(trainer, graph)
    return {
        "device": str(device),
        "hardware": hardware_name(device),
        "steps": int(section.steps),
        "seconds": {
            "preparing": preparing,
            "per_step": step,
            "per_ranked_triple": triple,
            **parts,
            "all": preparing + sum(parts.values()),
        },
        "bytes": found | {"all": sum(found.values()), "ranking": _bytes_of_ranking(trainer, graph, memory)},
        "parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
    }


def _seconds_per_triple(trainer: Trainer, graph: KnowledgeGraph, memory: int) -> float:
    """What ranking a triple of valid, or of test if there is none, takes on both sides."""
    split: Split = "valid" if len(graph.valid) else "test"

    def timed(limit: int) -> float:
        began = time.perf_counter()
        rank(trainer.model, graph, split, limit=limit, memory=memory)
        return time.perf_counter() - began

    total = len(graph.split(split))
    first = min(FIRST, total)
    timed(first)
    each = timed(first) / first
    number = min(total, max(first, math.floor(SECONDS / each)))
    return timed(number) / number


def _bytes_of_ranking(trainer: Trainer, graph: KnowledgeGraph, memory: int) -> int:
    """The working memory of a block of queries, of which the recipe says how large it may be."""
    rows = min(MOST_ROWS[trainer.device.type], max(len(graph.valid), len(graph.test)))
    each = bytes_per_query(trainer.model)
    return each * max(min(1, rows), min(rows, memory // each))
