"""What the negatives of every sampler are like: `python -m benchmarks.sampler_looks`.

TransE on the bundled graph with each method's own recipe and the steps of the comparison, as `eans inspect sampler`
looks at it, from the first step to the last. The record keeps every look but no times: those are in the record of
costs, measured on an idle machine. A method that has its looks already is not trained again.
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
    """Train an entry and look at it on the way."""
    graph = load_graph(GRAPH)
    overrides = (*entry.overrides, *COMMON, *more)
    recipe = resolve(load(entry.recipe(MODEL), overrides, strict=False), graph)
    found = inspect_training(recipe, graph, device=device).to_dict()
    looks = [{key: value for key, value in look.items() if key not in CLOCKS} for look in found["looks"]]
    return {**found, "overrides": list(overrides), "commit": current_commit(), "looks": looks}


def read(file: Path = FILE) -> dict[str, dict[str, Any]]:
    """Inspections by title."""
    return dict(json.loads(file.read_text("utf-8"))["inspections"]) if file.is_file() else {}


def keep(title: str, inspection: dict[str, Any], file: Path = FILE) -> None:
    """Add an inspection to the record, or replace it."""
    record = {"format": FORMAT, "inspections": {**read(file), title: inspection}}
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(file, (json.dumps(record, indent=1) + "\n").encode())


def main(arguments: list[str] | None = None) -> None:
    """Look at what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--records", type=Path, default=FILE)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for every method; repeatable")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for entry in rows():
        if entry.title not in read(options.records):
            keep(entry.title, inspect(entry, tuple(options.set), options.device), options.records)
            print(f"looked at {entry.title}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
