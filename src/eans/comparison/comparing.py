"""`compare`: methods on one graph, at an equal budget, over several seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eans import data
from eans.arguments import flag, whole
from eans.comparison.figure import draw
from eans.comparison.methods import Method, affordable_steps, methods_of
from eans.comparison.result import Comparison, Outcome
from eans.costs import seconds_of
from eans.devices import choose_device
from eans.errors import RunError, UsageError
from eans.experiments import Experiment, Record, RecordStore, run, run_with_display
from eans.experiments.ranks import KeepRanks, ranks_of
from eans.files import as_path, atomic_write, make_folder
from eans.recipes.choosing import given_graph

if TYPE_CHECKING:
    from eans.graph import KnowledgeGraph, Split


def compare(
    graph: KnowledgeGraph,
    methods: Sequence[str],
    *,
    out: str | Path,
    seeds: int = 5,
    budget: str | float | None = None,
    steps: int | None = None,
    test: bool = False,
    device: str = "auto",
    workers: int = 1,
    progress: bool = True,
    overrides: Sequence[str] = (),
) -> Comparison:
    """Train each method with each seed, and say how sure the differences between their MRRs are.

    The same call continues what was interrupted; a run that has its record already is not made again.

    Args:
        graph: to train and rank on.
        methods: two or more, ``RECIPE[,KEY=VALUE...]``: ``"rotate/eans+adv"``, ``"transe/adv,sampler.negatives=16"``,
            or a recipe file.
        out: folder for records, tables and the figure.
        seeds: runs of each method; fewer than two say nothing about the method, only about the trained models.
        budget: training time of each run, such as ``"2m"``; how many steps that makes is measured for each method.
        steps: training steps of each run, instead. Without either, each recipe's own.
        test: rank the test triples instead of valid, when all choices have been made.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        workers: runs at a time.
        progress: show runs as they go on.
        overrides: recipe keys for all methods, ``"section.key=value"`` each.
    """
    graph, progress, test = given_graph(graph), flag("progress", progress), flag("test", test)
    if find_spec("scipy") is None:
        raise UsageError("comparing needs SciPy, which the extra 'compare' brings: pip install 'eans[compare]'")
    split: Split = "test" if test else "valid"
    if not len(graph.split(split)):
        raise UsageError(f"graph '{graph.name}' has no {split} triples to compare on")
    seeds, workers = whole("seeds", seeds, 1), whole("workers", workers, 1)
    steps = whole("steps", steps, 1) if steps is not None else None
    seconds = seconds_of(budget) if budget is not None else None
    if seconds is not None and steps is not None:
        raise UsageError("give the training time or the steps of a run, budget or steps, not both")
    choose_device(device)
    folder = as_path(out, "out")
    make_folder(folder)
    found = methods_of(methods, _name_of(graph, folder), overrides)
    if steps is not None:
        found = [method.with_steps(steps) for method in found]
    store = RecordStore(folder / "records")
    if seconds is not None:
        found = _with_budget(found, graph, seconds, device, store)
    plan = [method.experiment(seed) for seed in range(seeds) for method in found]
    # Valid metrics come with every record; test is ranked only if it is compared.
    make: dict[str, Any] = {"device": device, "workers": workers, "test": test, "extra": KeepRanks(split)}
    failed = run_with_display(plan, store, **make) if progress else []
    records = store.read(plan) if progress else run(plan, store, **make)
    if missing := [experiment.key for experiment in plan if experiment not in records]:
        reason = f" ({failed[0][1]})" if failed else ""
        raise RunError(
            f"{len(missing)} of {len(plan)} runs failed, {missing[0]} first{reason}; call again to repeat them"
        )
    outcomes = [_outcome(method, records, seeds, split) for method in found]
    protocol = {"graph": graph.name, "split": split, "seeds": seeds, "budget": budget, "steps": steps}
    first = records[plan[0]]
    protocol |= {name: first[name] for name in ("hardware", "commit", "versions")} | dict(first["protocol"])
    comparison = Comparison(outcomes, protocol)
    save(comparison, folder)
    return comparison


def save(comparison: Comparison, folder: Path) -> None:
    """Write ``comparison.json``, ``comparison.md`` and, where matplotlib is installed, the figure."""
    atomic_write(folder / "comparison.json", f"{json.dumps(comparison.to_dict(), indent=2)}\n".encode())
    tables = [comparison.table().markdown(), comparison.differences().markdown()]
    atomic_write(folder / "comparison.md", "\n\n".join([comparison.text(), *tables, ""]).encode())
    if find_spec("matplotlib") is not None:
        draw(comparison, folder)


def _name_of(graph: KnowledgeGraph, folder: Path) -> str:
    """By what the runs load the graph: its name if it has one, otherwise a copy in the folder."""
    if data.is_registered(graph.source):
        return graph.source
    copy = folder / "graph"
    data.save_folder(graph, copy)
    return str(copy.resolve())


def _with_budget(
    methods: list[Method], graph: KnowledgeGraph, seconds: float, device: str, store: RecordStore
) -> list[Method]:
    """The methods with the steps that they do in this time; those of earlier records of this comparison stay."""
    earlier = {_without_steps(record.experiment): record for record in store.read().values()}
    found = []
    for method in methods:
        record = earlier.get((method.recipe, method.overrides))
        steps = record["steps"] if record is not None else affordable_steps(method, graph, seconds, device)
        found.append(method.with_steps(steps))
    return found


def _without_steps(experiment: Experiment) -> tuple[str, tuple[str, ...]]:
    return experiment.recipe, tuple(text for text in experiment.overrides if not text.startswith("train.steps="))


def _outcome(method: Method, records: Mapping[Experiment, Record], seeds: int, split: Split) -> Outcome:
    runs = [records[method.experiment(seed)] for seed in range(seeds)]
    ranks = np.stack([ranks_of(record, split) for record in runs])
    return Outcome(
        method.name,
        method.recipe,
        method.overrides,
        steps=[record["steps"] for record in runs],
        seconds=[record["seconds"] for record in runs],
        metrics=[record[split]["both"] for record in runs],
        scores=(1 / ranks).mean(axis=2),
    )
