"""What a search finds in a given time: `python -m benchmarks.search wordnet-core=15m umls=3m kinships=3m`.

Each search is a folder below ``runs/search``; what is complete there is not made again. A record of each in
``records/search.jsonl``: the recipe that was found, its metrics, and how many trials led there. Test is ranked once,
for the winner.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

from benchmarks.cells import RECORDS
from eans.data import load
from eans.experiments import Table, current_commit
from eans.files import atomic_write
from eans.run import Run
from eans.tuning import tune

FILE = RECORDS / "search.jsonl"
FOLDER = Path("runs") / "search"
SIDES = ("both", "head", "tail")


def record(run: Run, budget: str) -> dict[str, Any]:
    """A finished search, from its folder."""
    assert run.folder is not None
    trials = list(csv.DictReader((run.folder / "study" / "trials.csv").read_text("utf-8").splitlines()))
    facts = run.metrics["training"]
    return {
        "graph": run.graph.name,
        "budget": budget,
        "trials": len(trials),
        "seconds": round(sum(float(trial["seconds"]) for trial in trials), 1),
        "method": run.recipe.name.removeprefix("default/"),
        "recipe": run.recipe.model_dump(exclude={"name"}),
        "steps": facts["steps"],
        **{split: {side: run.metrics[split][side] for side in SIDES} for split in ("valid", "test")},
        "protocol": {key: run.metrics["protocol"][key] for key in ("ties", "candidates", "split_sha256")},
        **{key: facts[key] for key in ("hardware", "device", "eans_version", "torch_version")},
        "commit": current_commit(),
    }


def page_table(records: list[dict[str, Any]]) -> Table:
    """What the page on searching shows."""
    rows = [
        [line["graph"], line["budget"], str(line["trials"]), line["method"], *_metrics(line, "valid", "mrr"),
         *_metrics(line, "test", "mrr", "hits@1", "hits@10")]
        for line in records
    ]  # fmt: skip
    header = ["graph", "time", "trials", "method", "valid MRR", "test MRR", "test Hits@1", "test Hits@10"]
    return Table(header, rows, 4)


def _metrics(line: dict[str, Any], split: str, *names: str) -> list[str]:
    return [f"{line[split]['both'][name]:.3f}" for name in names]


def main() -> None:
    """Search what is named, and print the table of all records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("searches", nargs="+", metavar="GRAPH=TIME")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    lines = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()] if FILE.is_file() else []
    for text in given.searches:
        name, _, budget = text.partition("=")
        run = tune(load(name), budget, out=FOLDER / f"{name}-{budget}", device=given.device)
        new = record(run, budget)
        same = ("graph", "budget", "hardware")
        lines = [line for line in lines if [line[key] for key in same] != [new[key] for key in same]] + [new]
        atomic_write(FILE, "".join(f"{json.dumps(line)}\n" for line in lines).encode())
    print(page_table(lines).markdown())


if __name__ == "__main__":
    main()
