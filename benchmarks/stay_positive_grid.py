"""How Stay Positive's settings for the bundled graph were chosen: `python -m benchmarks.stay_positive_grid`.

On MRR of the validation triples alone; the test triples are never looked at. First a grid of short runs (a third of the
steps) over scale, shift and weight; then one setting at a time around the best of it; last, the best of both stages at
full length. The initial range turned out to matter most, so what Stay Positive is compared with gets a choice of it
too, and so does ComplEx. A trial that has its line in ``records/stay-positive-grid.jsonl`` is not run again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from benchmarks.cells import RECORDS, read_records
from eans.data import load as load_graph
from eans.evaluation import rank
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve
from eans.reproduction.records import RunSpec, current_commit

GRAPH = "wordnet-core"
FILE = RECORDS / "stay-positive-grid.jsonl"
MODELS = ("simple", "distmult")
METHOD = "stay-positive"
SHORT = ("train.steps=1000",)
Settings = dict[str, str]
GRID: dict[str, tuple[str, ...]] = {
    "model.score_scale": ("5.0", "10.0", "20.0"),
    "model.score_shift": ("-2.5", "-5.0", "-10.0"),
    "loss.penalty_weight": ("1e-9", "1e-8", "1e-7"),
}
# Tried one at a time, with the best of the grid for all else.
AROUND: tuple[Settings, ...] = (
    {"train.lr": "0.002"},
    {"train.lr": "0.02"},
    {"train.lr": "0.05"},
    {"model.init_range": "0.001"},
    {"model.init_range": "0.003"},
    {"model.init_range": "0.01"},
    {"model.init_range": "0.03"},
    {"model.init_range": "0.05"},
    {"model.init_range": "0.1"},
    {"model.init_range": "0.5"},
    {"model.bounded": "false", "model.score_scale": "1.0", "model.score_shift": "0.0"},
)
FINALISTS = 2
# Initial ranges of dot products with negatives, as `compare_all_samplers` runs them.
STARTS: dict[str, tuple[str, ...]] = {
    "distmult/uniform": ("auto", "0.1", "0.01", "0.001"),
    "distmult/adv": ("auto", "0.1", "0.01", "0.001"),
    "distmult/eans": ("auto", "0.01"),
    "complex/uniform": ("auto", "0.1", "0.01"),
    "complex/eans": ("auto", "0.01"),
}


def trial(model: str, settings: Settings, short: bool = True) -> RunSpec:
    """A run of the method with these settings."""
    written = tuple(f"{key}={value}" for key, value in settings.items())
    return RunSpec(f"{GRAPH}/{model}/{METHOD}", (*written, *(SHORT if short else ())))


def settings_of(record: dict[str, Any]) -> Settings:
    """What was tried, without the number of steps."""
    pairs = (text.partition("=") for text in record["overrides"])
    return {key: value for key, _, value in pairs if key != "train.steps"}


def grid() -> list[Settings]:
    """Every combination."""
    return [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]


def ranked(records: list[dict[str, Any]], model: str) -> list[dict[str, Any]]:
    """The short trials of a model, the best first."""
    recipe = f"{GRAPH}/{model}/{METHOD}"
    short = [record for record in records if record["recipe"] == recipe and SHORT[0] in record["overrides"]]
    return sorted(short, key=lambda record: record["valid"]["mrr"], reverse=True)


def run_trial(cell: RunSpec) -> dict[str, Any]:
    """Train and rank the validation triples."""
    torch.set_num_threads(1)
    graph = load_graph(GRAPH)
    trainer = build_trainer(resolve(load(cell.recipe, [*cell.overrides, f"train.seed={cell.seed}"]), graph), graph)
    while trainer.completed < trainer.schedule.steps:
        trainer.step()
    trainer.check()
    both = rank(trainer.model, graph, "valid").summary()["both"]
    return {
        "key": cell.key,
        "recipe": cell.recipe,
        "overrides": list(cell.overrides),
        "seed": cell.seed,
        "commit": current_commit(),
        "steps": trainer.completed,
        "valid": {name: round(both[name], 5) for name in ("mrr", "hits@10", "mr")},
    }


def run_trials(cells: list[RunSpec], file: Path, workers: int) -> None:
    """Run those that have no line yet, and write one for each."""
    done = {record["key"] for record in read_records(file)}
    missing = [cell for cell in cells if cell.key not in done]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for future in as_completed([pool.submit(run_trial, cell) for cell in missing]):
            record = future.result()
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(record) + "\n")
            print(f"valid MRR {record['valid']['mrr']:.4f}  {record['key']}", file=sys.stderr, flush=True)


def main() -> None:
    """Run all stages, then print the winners."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="runs at a time")
    parser.add_argument("--records", type=Path, default=FILE)
    options = parser.parse_args()
    file: Path = options.records
    first = [trial(model, settings) for model in MODELS for settings in grid()]
    run_trials(first, file, options.workers)
    keys = {cell.key for cell in first}
    stage = [record for record in read_records(file) if record["key"] in keys]
    best = {model: settings_of(ranked(stage, model)[0]) for model in MODELS}
    run_trials([trial(model, {**best[model], **other}) for model in MODELS for other in AROUND], file, options.workers)
    chosen = {model: [settings_of(record) for record in ranked(read_records(file), model)] for model in MODELS}
    last = [trial(model, settings, short=False) for model in MODELS for settings in chosen[model][:FINALISTS]]
    run_trials(last, file, options.workers)
    starts = [
        RunSpec(f"{GRAPH}/{name}", ("sampler.negatives=64", f"model.init_range={start}", "train.steps=1500"))
        for name, ranges in STARTS.items()
        for start in ranges
    ]
    run_trials(starts, file, options.workers)
    found = {record["key"]: record["valid"]["mrr"] for record in read_records(file)}
    for cell in sorted([*last, *starts], key=lambda cell: (cell.recipe, -found[cell.key])):
        print(f"{found[cell.key]:.4f}  {cell.key}")


if __name__ == "__main__":
    main()
