"""Every sampler at an equal budget on the bundled graph: `python -m benchmarks.compare_all_samplers`.

TransE, ComplEx and RotatE, three seeds, equal steps; DistMult with a few, beside training without negatives, which the
others cannot do. The budget is the number of candidate scores per positive and
step, and it is measured, not claimed: `scored` counts them while a few steps are done, and `negatives_for` gives each
method as many negatives as fit into the budget beside what its sampler scores for itself.

- A candidate counts once, however many queries its row is compared with (EANS compares up to three).
- NSCaching scores cache and newcomers when it renews a cache: (N1 + N2) / (lazy + 1) candidates per step and positive.
- KBGAN's generator scores its pool twice, to draw and to learn from the reward; both count, though the generator is
  smaller than the model. First steps in which a generator only learns the graph (`sampler.pretrain_steps`) do not.
- The sampler `all` scores every entity, far more than the budget; it is there for what more could be had.
- What is no score of a candidate does not count: K-means, walks, IGAN's softmax over all entities. The table of costs
  (``--costs``, see `sampler_costs`) shows the time of everything. It is measured by itself, on an idle machine: these
  runs go several at a time, and their seconds say nothing.

A method that this version does not have, or not for a model, is left out; a sampler that `METHODS` does not mention is
compared under its own name. Prints Markdown tables of what the records under ``records/`` hold.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.cells import RECORDS, read_records, run_missing, spread
from eans.data import load as load_graph
from eans.experiments import Experiment
from eans.models import Model
from eans.recipes import all_keys, load, names
from eans.recipes.build import build_trainer, resolve
from eans.recipes.migration import renamed
from eans.samplers import SAMPLERS
from eans.training import Trainer

FILE = RECORDS / "wordnet-core-all-samplers.jsonl"
GRAPH = "wordnet-core"
MODELS = ("transe", "complex", "rotate")
BUDGET = 64
# For every run: half the steps of the recipes, and a third of them to pre-train generators, as there.
COMMON = ("train.steps=1500", "sampler.pretrain_steps=500")
# (The keys of format 1: records are found by them.)
# What a row is called: the method of the recipes, and what makes it a variant of its own.
METHODS: dict[str, tuple[str, tuple[str, ...]]] = {
    "uniform": ("uniform", ()),
    "self-adversarial": ("adv", ()),
    "softmax": ("softmax", ()),
    "all entities": ("all", ()),
    "all entities, N3": ("all+n3", ()),
    "Bernoulli": ("bernoulli", ()),
    "frequency": ("frequency", ()),
    "frequency, by place": ("frequency", ("sampler.counted_in=place",)),
    "pseudo-typed": ("frequency", ("sampler.counted_in=place", "sampler.frequency_power=0")),
    "NSCaching": ("nscaching", ()),
    "KBGAN": ("kbgan", ()),
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
# What leaves room for negatives in the budget, where the sampler scores candidates of its own.
FITTED: dict[str, tuple[str, ...]] = {
    "NSCaching": ("sampler.cache_size=32", "sampler.cache_candidates=32", "sampler.cache_lazy=1"),
    "KBGAN": ("sampler.pool=16",),
}
# Models that are compared in these rows only.
SELECTED: dict[str, tuple[str, ...]] = {
    "distmult": ("uniform", "self-adversarial", "all entities", "all entities, N3", "EANS", "Stay Positive")
}
# While scores are counted: small, and past the steps in which a generator only learns the graph.
COUNTING = {"model.dim": 4, "train.batch_size": 64, "sampler.pretrain_steps": 0, "sampler.clusters": 5}
COUNTED_STEPS = 16


@dataclass(frozen=True)
class Entry:
    """A row of the tables.

    Attributes:
        title: what it is called.
        method: of the recipes.
        overrides: settings that make it what it is.
        fitted: settings that fit it into the budget.
    """

    title: str
    method: str
    overrides: tuple[str, ...]
    fitted: tuple[str, ...] = ()

    def recipe(self, model: str) -> str:
        return f"{GRAPH}/{model}/{self.method}"

    def exists(self, model: str) -> bool:
        """Does this version have the method for the model, and every setting?"""
        known = {renamed(text.partition("=")[0]) for text in (*self.overrides, *self.fitted)} <= set(all_keys())
        return known and self.recipe(model) in names()


@cache
def sampler_of(recipe: str) -> str:
    """The sampler of a recipe."""
    return load(recipe).sampler.name


def entries() -> list[Entry]:
    """`METHODS`, and samplers that none of them uses."""
    listed = [Entry(title, *settings, FITTED.get(title, ())) for title, settings in METHODS.items()]
    used = {sampler_of(entry.recipe(model)) for entry in listed for model in MODELS if entry.exists(model)}
    used |= {method for method, _ in METHODS.values()} | {"none"}  # "none" draws nothing that could be compared
    return listed + [Entry(name, name, ()) for name in SAMPLERS if name not in used]


def pairs() -> list[tuple[str, Entry]]:
    """The rows of each model: all that it has, or those of `SELECTED`."""
    all_of_them = entries()
    chosen = [(model, entry) for model in MODELS for entry in all_of_them]
    chosen += [(model, entry) for model, titles in SELECTED.items() for entry in all_of_them if entry.title in titles]
    return [(model, entry) for model, entry in chosen if entry.exists(model)]


@contextmanager
def counting() -> Iterator[list[int]]:
    """A list that collects how many candidates every model in the program scores inside the block."""
    found: list[int] = []
    compare, with_all, of_all = Model.compare_candidates, Model.products_with_all, Model.scores_of_all

    def counted(self: Model, queries: list[Any], entities: Tensor, *sinks: Any) -> Tensor:
        found.append(entities.numel())
        return compare(self, queries, entities, *sinks)

    def products(self: Model, queries: list[Any], *sinks: Any) -> list[Tensor]:
        found.append(len(queries[0].vector) * self.num_entities)
        return with_all(self, queries, *sinks)

    def counted_all(self: Model, triples: Tensor, side: Any) -> Tensor:
        found.append(len(triples) * self.num_entities)
        return of_all(self, triples, side)

    patched: Any = Model
    patched.compare_candidates, patched.products_with_all, patched.scores_of_all = (
        counted,
        products,
        counted_all,
    )
    try:
        yield found
    finally:
        patched.compare_candidates, patched.products_with_all, patched.scores_of_all = compare, with_all, of_all


graph_of = cache(load_graph)  # a trainer leaves its graph as it is


def built(entry: Entry, model: str, settings: dict[str, Any], device: str = "cpu") -> Trainer:
    """The trainer of an entry, with settings as far as this version has them."""
    graph = graph_of(GRAPH)
    more = [f"{key}={value}" for key, value in settings.items() if key in all_keys()]
    recipe = load(entry.recipe(model), (*entry.overrides, *entry.fitted, *more), strict=False)
    return build_trainer(resolve(recipe, graph), graph, device)


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
    """The most negatives whose step scores no more than `budget` candidates per positive; at least 1, if any.

    0 for samplers that are not asked for a number.
    """
    if not load(entry.recipe(model)).sampler.negatives:
        return 0
    if scored(entry, model, budget) <= budget:  # most score nothing but their negatives
        return budget
    low, high = 1, budget - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if scored(entry, model, middle) <= budget else (low, middle - 1)
    return max(low, 1)


def cell(entry: Entry, model: str, budget: int, seed: int, more: tuple[str, ...] = COMMON) -> Experiment:
    """The run of an entry."""
    number = f"sampler.negatives={negatives_for(entry, model, budget)}"
    return Experiment(entry.recipe(model), (number, *entry.overrides, *entry.fitted, *more), seed)


def runs_of(
    records: list[dict[str, Any]], entry: Entry, model: str, budget: int, seeds: int, more: tuple[str, ...] = COMMON
) -> list[dict[str, Any]]:
    """The records of an entry, in the order of the seeds that have one."""
    keys = [cell(entry, model, budget, seed, more).key for seed in range(seeds)]
    return sorted((record for record in records if record["key"] in keys), key=lambda record: keys.index(record["key"]))


def table(records: list[dict[str, Any]], budget: int, seeds: int, more: tuple[str, ...] = COMMON) -> str:
    """Markdown: a row per method and model; mean and standard deviation over the seeds that have a record."""
    lines = [
        "| negatives | model | n | candidates | MRR | Hits@10 | seeds |",
        "|---|---|---:|---:|---|---|---:|",
    ]
    for model, entry in pairs():
        runs = runs_of(records, entry, model, budget, seeds, more)
        if not runs:
            continue
        n = negatives_for(entry, model, budget)
        metrics = [spread([run["test"]["both"][name] for run in runs]) for name in ("mrr", "hits@10")]
        lines.append(
            f"| {entry.title} | {model} | {n} | {scored(entry, model, n):.0f} | {' | '.join(metrics)} | {len(runs)} |"
        )
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
    parser.add_argument("--costs", action="store_true", help="measure the cost of steps instead; on an idle machine")
    parser.add_argument("--cost-steps", type=int, default=250, help="one period of the orderings, or several")
    parser.add_argument("--cost-records", type=Path, default=None)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.costs:
        from benchmarks import sampler_costs

        device = "cuda" if options.device == "auto" and torch.cuda.is_available() else options.device
        part = sampler_costs.measure(options.budget, options.cost_steps, "cpu" if device == "auto" else device)
        sampler_costs.keep(part, options.cost_records or sampler_costs.FILE)
        print(sampler_costs.table(part))
        return
    more = (*COMMON, *options.set)
    left_out = {entry.title for entry in entries()} - {entry.title for _, entry in pairs()}
    for title in sorted(left_out):
        print(f"left out, not in this version or for these models: {title}", file=sys.stderr)
    if not options.table_only:
        # Seed by seed, so that a series that is cut short has as many of every row.
        cells = [
            cell(entry, model, options.budget, seed, more) for seed in range(options.seeds) for model, entry in pairs()
        ]
        for _ in run_missing(cells, options.records, options.device, options.workers):
            pass
    print(table(read_records(options.records), options.budget, options.seeds, more))


if __name__ == "__main__":
    main()
