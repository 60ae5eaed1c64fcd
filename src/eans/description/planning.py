"""What training would take: memory and time by the sizes of a graph, which need not be there.

Memory is that of `eans.description.growth`. Steps are timed on a graph of random triples as far as it can be afforded;
to that comes what an optimizer that touches every row, or a sampler that orders all entities, takes for the other ones.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from eans._version import __version__
from eans.arguments import flag
from eans.costs import seconds_per_step
from eans.data import Sizes
from eans.description.growth import Growth, growth, shrunk, small_graph, stand_in
from eans.description.memory import STATE
from eans.description.plan_sections import plan_sections
from eans.description.text import show, written
from eans.devices import choose_device, hardware_name
from eans.errors import UsageError
from eans.graph import SPLITS, KnowledgeGraph
from eans.phases import phase
from eans.progress import shown
from eans.ranking import MOST_ROWS
from eans.recipes import Recipe, default_for, load
from eans.recipes.build import build_trainer, resolve
from eans.run import MEGABYTE
from eans.run_progress import plan as plan_of_run
from eans.training import Trainer

if TYPE_CHECKING:
    from rich.console import Console

FORMAT = 1  # of `Plan.facts`; grows when a key changes its meaning or goes away
LIBRARIES = 350 * MEGABYTE  # Python, PyTorch and compiled kernels
SCORES = 4.5  # bytes of a query and an entity while queries are ranked
WHOLE_TABLE = ("adam",)  # optimizers that read and write every row of tables and state in each step
TIMED = 400_000  # entities of the graph on which steps are timed, at most: no cache holds their rows
TIMED_BYTES = 512 * MEGABYTE  # of the table on which they are timed, at most
SECONDS = 2.0  # that they are timed for
COPIED = 256 * MEGABYTE  # to see how fast memory is


@dataclass(frozen=True)
class Plan:
    """What `plan_for` has found: ``print`` writes it as text.

    Attributes:
        facts: numbers and words by name; see the page on describing a graph.
    """

    facts: Mapping[str, Any]

    def __str__(self) -> str:
        return written(plan_sections(self.facts))

    def show(self, console: Console) -> None:
        """Print what ``print`` prints, on a console that may be a terminal."""
        show(plan_sections(self.facts), console)

    def to_json(self) -> str:
        """All facts as JSON."""
        return json.dumps(self.facts, indent=2, ensure_ascii=False)


def plan_for(
    graph: KnowledgeGraph | Sizes,
    recipe: str | None = None,
    overrides: Sequence[str] = (),
    *,
    estimate: bool = True,
    device: str = "auto",
    progress: bool = True,
) -> Plan:
    """Memory and time of training on a graph, or on one of these sizes.

    Args:
        graph: what would be trained on, or how large it is.
        recipe: name or file; the one that `eans.train` takes by default if None.
        overrides: ``section.key=value``.
        estimate: measure what a step takes, for the time.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``: where that is measured. Memory is said for both.
        progress: say on standard error what is being done if it takes long.
    """
    place, estimate = choose_device(device), flag("estimate", estimate)
    sizes = graph
    if isinstance(sizes, KnowledgeGraph):
        counts = (len(sizes.split(split)) for split in SPLITS)
        sizes = Sizes(sizes.num_entities, sizes.num_relations, *counts)
    empty = stand_in(sizes)
    source = graph.source or graph.name if isinstance(graph, KnowledgeGraph) else ""
    resolved = resolve(load(recipe or default_for(source), overrides, source or None), empty)
    with shown(flag("progress", progress)):
        with phase("measuring memory"):
            parts = growth(resolved, sizes)
        row, state = (parts[part].entity for part in ("model", "optimizer"))
        facts = {
            "format": FORMAT,
            "eans_version": __version__,
            "sizes": asdict(sizes),
            "recipe": _about(resolved, empty),
            **memory(resolved, sizes, parts),
            "seconds": _seconds(resolved, sizes, place, row, state) if estimate else None,
        }
    return Plan(facts)


def _about(recipe: Recipe, graph: KnowledgeGraph) -> dict[str, Any]:
    model, sampler, train = recipe.model, recipe.sampler, recipe.train
    return {
        "name": recipe.name,
        "plan": plan_of_run(recipe, graph),
        "model": model.name,
        "dim": model.dim,
        "sampler": sampler.name,
        "negatives": sampler.negatives,
        "optimizer": train.optimizer,
        "batch_size": train.batch_size,
        "steps": train.steps,
    }


def memory(recipe: Recipe, sizes: Sizes, parts: Mapping[str, Growth]) -> dict[str, Any]:
    """Bytes: of each part, of what is there for a moment, at the peak, and of a checkpoint on disk.

    Args:
        recipe, sizes: a resolved recipe, and the sizes of the graph.
        parts: of `eans.description.growth.growth`.
    """
    held = {part: max(0, found.at(sizes)) for part, found in parts.items()}
    scores = math.ceil(SCORES * sizes.entities * MOST_ROWS["cpu"])
    moments = {
        "step": round((parts["model"].entity + 32) * int(recipe.train.batch_size) * (recipe.sampler.negatives + 2)),
        "ranking": min(recipe.evaluation.memory_mb * MEGABYTE, scores),
    }
    state = sum(held[part] for part in STATE)
    return {
        "bytes": {part: {**found._asdict(), "all": held[part]} for part, found in parts.items()},
        "moments": moments,
        "peak": {
            "cpu": LIBRARIES + sum(held.values()) + max(moments.values()),
            "gpu": state + held["graph"] + held["batches"] + max(moments["step"], moments["ranking"]),
            "host_of_gpu": LIBRARIES + held["graph"] + held["labels"] + held["model"],  # where it starts
        },
        "checkpoint": state,
    }


def _seconds(recipe: Recipe, sizes: Sizes, device: torch.device, row: float, state: float) -> dict[str, Any]:
    """Of a step and of all of them; an entity takes `row` bytes in the model and `state` in the optimizer."""
    measured = min(sizes.entities, TIMED, max(1_000, int(TIMED_BYTES / row)))
    rest = sizes.entities - measured
    with phase("measuring steps"):
        graph = small_graph(measured, 8, min(4 * measured, TIMED))
        small = shrunk(recipe, int(recipe.train.batch_size), recipe.sampler.negatives)
        trainer = build_trainer(small, graph, device)
        period, trainer.sampler.period = trainer.sampler.period, 0
        step = seconds_per_step(trainer, SECONDS)
        ordering = _seconds_of_ordering(trainer, period, step) if period else 0.0
        bandwidth = _bandwidth(device)
    whole = 2 * (row + state) * rest / bandwidth if recipe.train.optimizer in WHOLE_TABLE else 0.0
    each = step + whole + (ordering * sizes.entities / measured / period if period else 0.0)
    return {
        "device": str(device),
        "hardware": hardware_name(device),
        "measured": {"entities": measured, "per_step": step, "ordering": ordering, "bytes_per_second": bandwidth},
        "per_step": each,
        "positives_per_second": int(recipe.train.batch_size) / each,
        "training": int(recipe.train.steps) * each,
    }


def _seconds_of_ordering(trainer: Trainer, period: int, step: float) -> float:
    """What a step takes longer in which the sampler works on all entities."""
    trainer.completed = period * (trainer.completed // period + 1)  # what a step does depends on its number alone
    began = time.perf_counter()
    trainer.step()
    trainer.check()  # waits for the device
    return max(0.0, time.perf_counter() - began - step)


def _bandwidth(device: torch.device) -> float:
    """Bytes a second, read and written, of copying a large tensor: the fastest of a few."""
    source = torch.ones(COPIED // 4, device=device)
    target, least = torch.empty_like(source), math.inf
    for _ in range(5):
        began = time.perf_counter()
        target.copy_(source)
        float(target[-1])  # waits for the device
        least = min(least, time.perf_counter() - began)
    return 2 * source.nbytes / least


def parse_sizes(text: str) -> Sizes:
    """``ENTITIES,RELATIONS,TRIPLES``: whole numbers, or such as ``86M`` and ``1.5k``; all triples are train."""
    units = {"k": 1e3, "m": 1e6, "g": 1e9}
    found = []
    for word in text.replace("_", "").split(","):
        number, unit = word.strip().lower(), 1.0
        if number[-1:] in units:
            number, unit = number[:-1], units[number[-1:]]
        try:
            found.append(float(number) * unit)
        except ValueError:
            found.append(0.0)
    if len(found) != 3 or not all(1 <= number < 1 << 62 and number == int(number) for number in found):
        raise UsageError(f"--sizes '{text}' is not ENTITIES,RELATIONS,TRIPLES; write for example 86M,14824,338M")
    entities, relations, triples = map(int, found)
    return Sizes(entities, relations, triples, 0, 0)
