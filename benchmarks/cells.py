"""Run recipes and keep a record of each: recipe, seed, commit, hardware, seconds, metrics and learning curve.

A record is one JSON object on one line of a file under ``records/``. A cell that has its record already is not run
again, so an interrupted series continues where it stopped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eans.api import Run

RECORDS = Path(__file__).resolve().parent.parent / "records"


@dataclass(frozen=True)
class Cell:
    """One run: a recipe name, overrides ``section.key=value`` and a seed."""

    recipe: str
    overrides: tuple[str, ...] = ()
    seed: int = 0

    @property
    def key(self) -> str:
        """What identifies the cell among records."""
        return " ".join([self.recipe, *self.overrides, f"seed={self.seed}"])


def recipe_of(record: dict[str, Any]) -> str:
    """The recipe that a record stands for: also the dataset's `fast` one, if the overrides make just that."""
    from eans.recipes import load, names

    fast = f"{record['recipe'].rpartition('/')[0]}/fast"
    if not record["overrides"] or fast not in names():
        return str(record["recipe"])
    asked, known = load(record["recipe"], record["overrides"]), load(fast)
    return fast if asked.model_copy(update={"name": fast}) == known else str(record["recipe"])


def negatives_of(record: dict[str, Any]) -> int:
    """How many negatives the run drew per positive."""
    from eans.recipes import load

    return load(record["recipe"], record["overrides"]).sampler.negatives


def current_commit() -> str:
    """The commit of the source tree; ``EANS_COMMIT`` stands in where there is no repository."""
    if commit := os.environ.get("EANS_COMMIT"):
        return commit
    answer = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "unknown"


def read_records(file: Path) -> list[dict[str, Any]]:
    """All records of a file, in order."""
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.is_file() else []


def run_cell(cell: Cell, device: str) -> dict[str, Any]:
    """Train and evaluate one cell and return its record."""
    import torch

    import eans
    from eans.api import start
    from eans.recipes import load
    from eans.recipes.build import resolve

    torch.set_num_threads(1)
    recipe = load(cell.recipe, [*cell.overrides, f"train.seed={cell.seed}"])
    graph = eans.load(recipe.data.name)
    recipe = resolve(recipe, graph)
    began = time.perf_counter()
    run = start(recipe, graph, device=device)
    return describe(cell, run, time.perf_counter() - began)


def describe(cell: Cell, run: Run, total_seconds: float) -> dict[str, Any]:
    """The record of a finished run."""
    curve = [
        {"step": record["step"], "seconds": record["seconds"], "mrr": record["valid"]["both"]["mrr"]}
        for record in run.history
        if "valid" in record
    ]
    losses = [record for record in run.history if "loss" in record]
    keep = ("both", "head", "tail")
    return {
        "key": cell.key,
        "recipe": cell.recipe,
        "overrides": list(cell.overrides),
        "seed": cell.seed,
        "commit": current_commit(),
        **{name: run.metrics["training"][name] for name in ("steps", "seconds", "hardware", "torch_version")},
        "total_seconds": round(total_seconds, 1),
        "valid": {side: run.metrics["valid"][side] for side in keep},
        "test": {side: run.metrics["test"][side] for side in keep},
        "protocol": {name: run.metrics["protocol"][name] for name in ("ties", "candidates", "split_sha256")},
        "curve": curve,
        "losses": [record["loss"] for record in (losses[0], losses[-1])],
    }


def run_missing(cells: Iterable[Cell], file: Path, device: str, workers: int) -> Iterator[dict[str, Any]]:
    """Run the cells that have no record yet, several at a time, appending each record as it comes."""
    done = {record["key"] for record in read_records(file)}
    missing = [cell for cell in cells if cell.key not in done]
    file.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(run_cell, cell, device) for cell in missing]
        for count, future in enumerate(as_completed(futures), 1):
            record = future.result()
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(record) + "\n")
            both = record["test"]["both"]
            print(
                f"[{count}/{len(missing)}] {record['key']}: MRR {both['mrr']:.4f} Hits@10 {both['hits@10']:.4f}"
                f" MR {both['mr']:.0f} in {record['seconds']:.0f} s",
                file=sys.stderr,
                flush=True,
            )
            yield record
