"""Run recipes and keep a record of each: recipe, seed, commit, hardware, seconds, metrics and learning curve.

A record is one JSON object on one line of a file under ``records/``. A cell that has its record already is not run
again, so an interrupted series continues where it stopped.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from eans.experiments import Experiment
from paper.published import read_published

RECORDS = Path(__file__).resolve().parent.parent / "records"


def parse(text: str, seed: int) -> Experiment:
    """``recipe[:override]...`` -> a run."""
    recipe, *overrides = text.split(":")
    return Experiment(recipe, tuple(overrides), seed)


def published() -> dict[str, tuple[float, float]]:
    """MRR and Hits@10 that the paper's main table prints, by recipe."""
    return {cell.run().recipe: (cell["mrr"], cell["hits10"]) for cell in read_published() if cell.table == "main"}


def recipe_of(record: dict[str, Any]) -> str:
    """The recipe that a record stands for: also the dataset's `fast` one, if the overrides make just that."""
    from eans.recipes import load, names

    fast = f"{record['recipe'].rpartition('/')[0]}/fast"
    if not record["overrides"] or fast not in names():
        return str(record["recipe"])
    asked, known = load(record["recipe"], record["overrides"], strict=False), load(fast)
    return fast if asked.model_copy(update={"name": fast}) == known else str(record["recipe"])


def negatives_of(record: dict[str, Any]) -> int:
    """How many negatives the run drew per positive."""
    from eans.recipes import load

    return int(load(record["recipe"], record["overrides"], strict=False).sampler.negatives)


def spread(values: list[float]) -> str:
    """``mean ± sample standard deviation``."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.3f} ± {deviation:.3f}"


def read_records(file: Path) -> list[dict[str, Any]]:
    """All records of a file, in order."""
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.is_file() else []


def run_cell(cell: Experiment, device: str) -> dict[str, Any]:
    """Train and evaluate one cell in memory and return its record."""
    import torch

    from eans.experiments import describe, prepare
    from eans.lifecycle import start

    torch.set_num_threads(1)
    recipe, graph = prepare(cell)
    return {"key": cell.key, **describe(cell, start(recipe, graph, device=device))}


def run_missing(cells: Iterable[Experiment], file: Path, device: str, workers: int) -> Iterator[dict[str, Any]]:
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
