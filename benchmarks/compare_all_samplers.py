"""Every sampler at an equal budget on the bundled graph: `python -m benchmarks.compare_all_samplers`.

TransE, ComplEx and RotatE, three seeds, equal steps. The budget is the number of candidate scores per positive and
step, and it is measured, not claimed: `scored` counts them while a few steps are done, and `negatives_for` gives each
method as many negatives as fit into the budget beside what its sampler scores for itself.

- A candidate counts once, however many queries its row is compared with (EANS compares up to three).
- NSCaching scores cache and newcomers when it renews a cache: (N1 + N2) / (lazy + 1) candidates per step and positive.
- KBGAN's generator scores its pool twice, to draw and to learn from the reward; both count, though the generator is
  smaller than the model. First steps in which a generator only learns the graph (`sampler.pretrain_steps`) do not.
- What is no score of a candidate does not count: K-means, walks, IGAN's softmax over all entities. The table of costs
  (``--costs``) shows the time of everything.

A method that this version does not have, or not for a model, is left out; a sampler that `METHODS` does not mention is
compared under its own name. Prints Markdown tables of what the records under ``records/`` hold.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.cells import RECORDS, read_records, run_missing
from benchmarks.compare_samplers import spread
from eans.data import load as load_graph
from eans.models import Model
from eans.recipes import all_keys, load, names
from eans.recipes.build import build_trainer, resolve
from eans.reproduction.records import RunSpec
from eans.samplers import SAMPLERS
from eans.training import Trainer

FILE = RECORDS / "wordnet-core-all-samplers.jsonl"
GRAPH = "wordnet-core"
MODELS = ("transe", "complex", "rotate")
BUDGET = 64
# What a row is called: the method of the recipes, and what it is set to besides the number of negatives.
METHODS: dict[str, tuple[str, tuple[str, ...]]] = {
    "uniform": ("uniform", ()),
    "self-adversarial": ("adv", ()),
    "softmax": ("softmax", ()),
    "Bernoulli": ("bernoulli", ()),
    "NSCaching": (
        "nscaching",
        ("sampler.cache_size=32", "sampler.cache_candidates=32", "sampler.cache_lazy=1"),
    ),
    "KBGAN": ("kbgan", ("sampler.pool=16",)),
    "IGAN": ("igan", ()),
    "SANS": ("sans", ()),
    "SANS + self-adversarial": ("sans+adv", ()),
    "Stay Positive": ("stay-positive", ()),
    "Gaussian": ("gaussian", ()),
    "EANS": ("eans", ()),
    "EANS, block": ("eans", ("sampler.proposal=block",)),
    "EANS, Student": ("eans", ("sampler.proposal=student",)),
    "EANS, 4 orders": ("eans", ("sampler.orders=4",)),
    "EANS + self-adversarial": ("eans+adv", ()),
}
# While scores are counted: small, and past the steps in which a generator only learns the graph.
COUNTING = {"model.dim": 4, "train.batch_size": 64, "sampler.pretrain_steps": 0}
COUNTED_STEPS = 16
WARM_UP = 10
TURNS = 10


@dataclass(frozen=True)
class Entry:
    """A row of the tables: what it is called, the method of the recipes and its settings."""

    title: str
    method: str
    overrides: tuple[str, ...]

    def recipe(self, model: str) -> str:
        return f"{GRAPH}/{model}/{self.method}"

    def exists(self, model: str) -> bool:
        """Does this version have the method for the model, and every setting?"""
        known = {text.partition("=")[0] for text in self.overrides} <= set(all_keys())
        return known and self.recipe(model) in names()


def entries() -> list[Entry]:
    """`METHODS`, and samplers that none of them uses."""
    listed = [Entry(title, *settings) for title, settings in METHODS.items()]
    used = {load(entry.recipe(model)).sampler.name for entry in listed for model in MODELS if entry.exists(model)}
    used |= {method for method, _ in METHODS.values()} | {"none"}  # "none" draws nothing that could be compared
    return listed + [Entry(name, name, ()) for name in SAMPLERS if name not in used]


@contextmanager
def counting() -> Iterator[list[int]]:
    """A list that collects how many candidates every model in the program scores inside the block."""
    found: list[int] = []
    compare, score_all = Model.compare_candidates, Model.score_all

    def counted(self: Model, queries: list[Any], entities: Tensor) -> Tensor:
        found.append(entities.numel())
        return compare(self, queries, entities)

    def counted_all(self: Model, triples: Tensor, side: Any) -> Tensor:
        found.append(len(triples) * self.num_entities)
        return score_all(self, triples, side)

    patched: Any = Model
    patched.compare_candidates, patched.score_all = counted, counted_all
    try:
        yield found
    finally:
        patched.compare_candidates, patched.score_all = compare, score_all


def built(entry: Entry, model: str, settings: dict[str, Any], device: str = "cpu") -> Trainer:
    """The trainer of an entry, with settings as far as this version has them."""
    graph = load_graph(GRAPH)
    recipe = load(entry.recipe(model), entry.overrides)
    sections: dict[str, dict[str, Any]] = {}
    for key, value in settings.items():
        if key in all_keys():
            section, _, name = key.partition(".")
            sections.setdefault(section, {})[name] = value
    changed = {name: getattr(recipe, name).model_copy(update=values) for name, values in sections.items()}
    return build_trainer(resolve(recipe.model_copy(update=changed), graph), graph, device)


@cache
def scored(entry: Entry, model: str, negatives: int) -> float:
    """Candidates scored per positive and step, by the model and by whatever the sampler scores with."""
    trainer = built(entry, model, {**COUNTING, "sampler.negatives": negatives})
    trainer.step()  # what happens once, at the start, is not counted
    with counting() as found:
        for _ in range(COUNTED_STEPS):
            trainer.step()
    return sum(found) / COUNTED_STEPS / trainer.stream.batch_size


@cache
def negatives_for(entry: Entry, model: str, budget: int) -> int:
    """The most negatives whose step scores no more than `budget` candidates per positive; at least 1."""
    low, high = 1, budget
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if scored(entry, model, middle) <= budget else (low, middle - 1)
    return low


def cell(entry: Entry, model: str, budget: int, seed: int, more: tuple[str, ...]) -> RunSpec:
    """The run of an entry."""
    number = f"sampler.negatives={negatives_for(entry, model, budget)}"
    return RunSpec(entry.recipe(model), (number, *entry.overrides, *more), seed)


def table(records: list[dict[str, Any]], budget: int, seeds: int, more: tuple[str, ...] = ()) -> str:
    """Markdown: a row per method and model; mean and standard deviation over the seeds that have a record."""
    found = {record["key"]: record for record in records}
    lines = [
        "| negatives | model | n | candidates | MRR | Hits@10 | seconds | seeds |",
        "|---|---|---:|---:|---|---|---:|---:|",
    ]
    for model in MODELS:
        for entry in entries():
            if not entry.exists(model):
                continue
            keys = [cell(entry, model, budget, seed, more).key for seed in range(seeds)]
            runs = [found[key] for key in keys if key in found]
            if not runs:
                continue
            n = negatives_for(entry, model, budget)
            metrics = [spread([run["test"]["both"][name] for run in runs]) for name in ("mrr", "hits@10")]
            seconds = sum(run["seconds"] for run in runs) / len(runs)
            lines.append(
                f"| {entry.title} | {model} | {n} | {scored(entry, model, n):.0f} | {' | '.join(metrics)} |"
                f" {seconds:.0f} | {len(runs)} |"
            )
    return "\n".join(lines)


def step_ms(trainers: list[Trainer], steps: int) -> list[float]:
    """Mean milliseconds of a step of each, with all that the sampler does after it.

    They take turns, so that a machine that becomes slower becomes slower for all.
    """

    def now(trainer: Trainer) -> float:
        if trainer.device.type == "cuda":
            torch.cuda.synchronize(trainer.device)
        return time.perf_counter()

    totals = [0.0] * len(trainers)
    for turn in range(-1, TURNS):
        for index, trainer in enumerate(trainers):
            began = now(trainer)
            for _ in range(WARM_UP if turn < 0 else steps // TURNS):
                trainer.step()
            if turn >= 0:
                totals[index] += now(trainer) - began
    return [1e3 * total / (TURNS * (steps // TURNS)) for total in totals]


def costs(budget: int, steps: int, device: str) -> str:
    """Markdown: time per step as multiples of the uniform sampler's with the same number of scored candidates."""
    found: dict[tuple[Entry, str], str] = {}
    for model in MODELS:
        shown = [entry for entry in entries() if entry.exists(model)]
        numbers = [{"sampler.negatives": negatives_for(entry, model, budget)} for entry in shown]
        trainers = [
            built(entry, model, {**number, "sampler.pretrain_steps": 0}, device)
            for entry, number in zip(shown, numbers, strict=True)
        ]
        times = step_ms(trainers, max(steps, TURNS))
        for entry, ms in zip(shown, times, strict=True):  # the first entry is uniform
            found[entry, model] = f"{ms / times[0]:.2f}x ({ms:.2f} ms)"
    lines = [f"| time per step | {' | '.join(MODELS)} |", f"|---|{'---:|' * len(MODELS)}"]
    for entry in dict.fromkeys(entry for entry, _ in found):
        lines.append(f"| {entry.title} | {' | '.join(found.get((entry, model), '-') for model in MODELS)} |")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Run what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=2, help="runs at a time")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=int, default=BUDGET, help="candidates scored per positive and step")
    parser.add_argument("--records", type=Path, default=FILE)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every run; repeatable")
    parser.add_argument("--table-only", action="store_true", help="run nothing")
    parser.add_argument("--costs", action="store_true", help="measure the cost of steps instead")
    parser.add_argument("--cost-steps", type=int, default=500)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.costs:
        device = "cuda" if options.device == "auto" and torch.cuda.is_available() else options.device
        print(costs(options.budget, options.cost_steps, "cpu" if device == "auto" else device))
        return
    more = tuple(options.set)
    pairs = [(entry, model) for model in reversed(MODELS) for entry in entries() if entry.exists(model)]
    for title in sorted({entry.title for entry in entries()} - {entry.title for entry, _ in pairs}):
        print(f"left out, not in this version or for these models: {title}", file=sys.stderr)
    if not options.table_only:
        cells = [
            cell(entry, model, options.budget, seed, more) for entry, model in pairs for seed in range(options.seeds)
        ]
        for _ in run_missing(cells, options.records, options.device, options.workers):
            pass
    print(table(read_records(options.records), options.budget, options.seeds, more))


if __name__ == "__main__":
    main()
