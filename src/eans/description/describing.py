"""`describe`: all that is said of a graph, as plain numbers and words that JSON can hold, as text and as a page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eans._version import __version__
from eans.arguments import flag
from eans.description import structure
from eans.description.estimates import costs, suggested
from eans.description.sections import sections
from eans.description.text import show, written
from eans.devices import choose_device
from eans.evaluation import baselines
from eans.graph import KnowledgeGraph
from eans.phases import phase
from eans.progress import shown
from eans.recipes.choosing import given_graph

if TYPE_CHECKING:
    from rich.console import Console

FORMAT = 1  # of `Description.facts`; grows when a key changes its meaning or goes away
MOST_SCORES = 1_000_000_000  # of a baseline and a split: what cannot be ranked with so many is a sample
LEAST_RANKED = 100


@dataclass(frozen=True)
class Description:
    """What `describe` has found: ``print`` writes it as text.

    Attributes:
        facts: numbers and words by name; see the page on describing a graph.
    """

    facts: Mapping[str, Any]

    def __str__(self) -> str:
        return written(sections(self.facts))

    def show(self, console: Console) -> None:
        """Print what ``print`` prints, on a console that may be a terminal."""
        show(sections(self.facts), console)

    def __repr__(self) -> str:
        return f"Description of {self.facts['graph']['name']}"

    def to_json(self) -> str:
        """All facts as JSON."""
        return json.dumps(self.facts, indent=2, ensure_ascii=False)

    def html(self) -> str:
        """One HTML page that needs nothing else; needs matplotlib, the extra ``figures``."""
        from eans.description.page import render

        return render(self.facts)


def describe(
    graph: KnowledgeGraph, *, estimate: bool = True, device: str = "auto", progress: bool = True
) -> Description:
    """Describe a graph before anything is trained on it.

    Sizes, degrees, connected components, relations with their categories and patterns, leakage between splits,
    baselines that need no model, the recipe that `eans.train` takes by default, and what that costs on this machine.

    Args:
        graph: what to describe.
        estimate: measure a few training steps and a few rankings, to estimate time and memory.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``: where baselines are ranked and steps measured.
        progress: say on standard error what is being done if it takes long.
    """
    graph, estimate, chosen = given_graph(graph), flag("estimate", estimate), choose_device(device)
    with shown(flag("progress", progress)):
        with phase("counting"):
            patterns = structure.patterns(graph)
            facts: dict[str, Any] = {
                "format": FORMAT,
                "eans_version": __version__,
                "graph": structure.counts(graph),
                "degrees": structure.degrees(graph),
                "components": structure.components(graph),
                "relations": structure.relations(graph, patterns),
                "leakage": structure.leakage(graph, patterns),
            }
        with phase("ranking baselines"):
            facts["baselines"] = {split: _baselines(graph, split, chosen) for split in structure.HELD_OUT}
        recipe, facts["recipe"] = suggested(graph)
        facts["costs"] = costs(recipe, graph, chosen) if estimate else None
    return Description(facts)


def _baselines(graph: KnowledgeGraph, split: Any, device: Any) -> dict[str, Any]:
    """Metrics by baseline, and how many triples they are of; no metrics for a split without triples."""
    total = len(graph.split(split))
    affordable = max(LEAST_RANKED, MOST_SCORES // (2 * graph.num_entities))
    limit = affordable if affordable < total else 0
    metrics = baselines(graph, split, limit=limit, device=device) if total else {}
    return {"triples": limit or total, "metrics": metrics}
