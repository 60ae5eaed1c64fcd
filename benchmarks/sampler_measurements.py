"""What the negatives of every sampler are like: `python -m benchmarks.sampler_measurements`.

TransE on the bundled graph with each method's own recipe and the steps of the comparison, measured as by
`eans inspect sampler`, from the first step to the last. The record keeps every measurement but no times: those are in
the record of costs, made on an idle machine. A method that has its measurements already is not trained again.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.cells import RECORDS
from benchmarks.compare_all_samplers import COMMON, GRAPH, Entry, entries, sampler_of
from eans.data import load as load_graph
from eans.experiments import current_commit
from eans.files import atomic_write
from eans.inspection import inspect_training
from eans.recipes import load
from eans.recipes.build import resolve

FILE = RECORDS / "wordnet-core-sampler-looks.json"
FORMAT = 1
MODEL = "transe"
CLOCKS = ("sampling_ms", "step_ms")


def rows() -> list[Entry]:
    """The methods that draw negatives."""
    return [entry for entry in entries() if entry.exists(MODEL) and sampler_of(entry.recipe(MODEL)) != "none"]


def inspect(entry: Entry, more: tuple[str, ...] = (), device: str = "auto") -> dict[str, Any]:
    """Train an entry and measure its sampler during training."""
    graph = load_graph(GRAPH)
    overrides = (*entry.overrides, *COMMON, *more)
    recipe = resolve(load(entry.recipe(MODEL), overrides, strict=False), graph)
    found = inspect_training(recipe, graph, device=device).to_dict()
    measurements = [
        {key: value for key, value in measurement.items() if key not in CLOCKS} for measurement in found["measurements"]
    ]
    return {**found, "overrides": list(overrides), "commit": current_commit(), "measurements": measurements}


def read(file: Path = FILE) -> dict[str, dict[str, Any]]:
    """Inspections by title; those of earlier versions have their measurements as ``looks``."""
    found = json.loads(file.read_text("utf-8"))["inspections"] if file.is_file() else {}
    return {
        title: {"measurements" if key == "looks" else key: value for key, value in inspection.items()}
        for title, inspection in found.items()
    }


def keep(title: str, inspection: dict[str, Any], file: Path = FILE) -> None:
    """Add an inspection to the record, or replace it."""
    record = {"format": FORMAT, "inspections": {**read(file), title: inspection}}
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(file, (json.dumps(record, indent=1) + "\n").encode())


def main(arguments: list[str] | None = None) -> None:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--records", type=Path, default=FILE)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every method; repeatable")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for entry in rows():
        if entry.title not in read(options.records):
            keep(entry.title, inspect(entry, tuple(options.set), options.device), options.records)
            print(f"measured {entry.title}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
