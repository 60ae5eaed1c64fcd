"""The methods of a comparison: recipes with overrides, and the steps that each has at an equal budget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eans.arguments import texts
from eans.costs import seconds_per_step
from eans.devices import choose_device
from eans.errors import UsageError
from eans.experiments import Experiment, to_the_end
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve

if TYPE_CHECKING:
    from eans.graph import KnowledgeGraph

# Seconds of steps that a method's cost is measured on, at least and at most, and the share of the budget between.
LEAST, MOST, SHARE = 1.0, 5.0, 0.05


@dataclass(frozen=True)
class Method:
    """One of the methods that are compared.

    Attributes:
        name: as it was given.
        recipe: its full name, or a file.
        overrides: ``section.key=value``.
    """

    name: str
    recipe: str
    overrides: tuple[str, ...]

    def with_steps(self, steps: int) -> Method:
        """The method with so many training steps."""
        return replace(self, overrides=(*self.overrides, f"train.steps={steps}"))

    def experiment(self, seed: int) -> Experiment:
        """Its run with a seed."""
        return Experiment(self.recipe, self.overrides, seed)


def methods_of(methods: Iterable[str], data: str, settings: Iterable[str] = ()) -> list[Method]:
    """Methods from ``RECIPE[,KEY=VALUE...]``.

    Args:
        methods: at least two different ones; a recipe is a file, or a name such as ``rotate/eans+adv``, which is
            completed for the graph.
        data: the name of the graph, or its folder.
        settings: overrides for all; those of a single method come after them.
    """
    found = []
    settings = texts("overrides", settings, "recipe keys, 'section.key=value' each")
    for text in dict.fromkeys(texts("methods", methods, "recipes, such as 'rotate/eans+adv'")):
        name, *own = (part.strip() for part in text.split(","))
        overrides = (f"data.name={data}", *settings, *own)
        recipe = load(name, overrides, data, strict=False)
        load(name, [f"data.name={data}", *own], data)  # a key that this method does not have is a mistake
        found.append(Method(text, recipe.name, overrides))
    if len(found) < 2:
        raise UsageError("a comparison needs at least two different methods, such as rotate/eans+adv and rotate/adv")
    return found


def affordable_steps(method: Method, graph: KnowledgeGraph, seconds: float, device: str) -> int:
    """The training steps that the method does in so many seconds on this device, as measured in its first steps."""
    recipe = to_the_end(load(method.recipe, method.overrides, strict=False))
    trainer = build_trainer(resolve(recipe, graph), graph, choose_device(device))
    cost = seconds_per_step(trainer, min(max(LEAST, SHARE * seconds), MOST))
    return max(1, round(seconds / cost))
