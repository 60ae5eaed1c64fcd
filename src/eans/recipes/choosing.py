"""Which recipe: from model and sampler, a name or a file, to a resolved recipe for a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from eans.arguments import optional_text, shown
from eans.errors import UsageError
from eans.graph import KnowledgeGraph
from eans.recipes.build import resolve
from eans.recipes.keys import full_key
from eans.recipes.library import default_for, load
from eans.recipes.schema import Recipe


def given_graph(graph: object) -> KnowledgeGraph:
    """The argument `graph` of a function."""
    if not isinstance(graph, KnowledgeGraph):
        raise UsageError(
            f"{shown(graph)} is not a graph; make one with eans.load(...) or KnowledgeGraph.from_labels(...)"
        )
    return graph


def choose_recipe(
    graph: KnowledgeGraph, model: str | None, sampler: str | None, recipe: str | None, settings: Mapping[str, Any]
) -> Recipe:
    """The resolved recipe behind the arguments of `eans.train`."""
    graph = given_graph(graph)
    model, sampler = optional_text("model", model), optional_text("sampler", sampler)
    if recipe is not None and (model is not None or sampler is not None):
        raise UsageError("give either a recipe, or a model and a sampler")
    if recipe is None:
        dataset, default_model, default_method = default_for(graph.source or graph.name, model).split("/")
        recipe = f"{dataset}/{model or default_model}/{sampler or default_method}"
    return resolve(
        load(recipe, {full_key(key): value for key, value in settings.items()}, data=graph.source or graph.name), graph
    )


def recipe_and_graph(
    recipe: str | Path | None, data: str | None, overrides: Sequence[str], read: Callable[[str], KnowledgeGraph]
) -> tuple[Recipe, KnowledgeGraph]:
    """A resolved recipe, and the graph that it is for.

    Args:
        recipe: name or file; None for the default of the graph.
        data: name or folder of the graph; None for the recipe's.
        overrides: ``section.key=value``.
        read: called with the name or folder, which is empty for the bundled graph.
    """
    if recipe is None:
        data = data or load("default", overrides).data.name
        graph = read(data)
        return resolve(load(default_for(graph.source or graph.name), overrides, data or None), graph), graph
    loaded = load(recipe, overrides, data)
    graph = read(loaded.data.name)
    return resolve(loaded, graph), graph
