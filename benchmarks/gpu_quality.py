"""Section *quality* of `benchmarks.gpu`: whole runs, with a curve of training seconds against validation MRR.

Each run is one record on a line of ``records/fast.jsonl``. Its curve counts the seconds of training alone; what the
validations took is reported beside it. A run that has its record already is not run again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import eans
from benchmarks.cells import RECORDS, parse, read_records
from benchmarks.speed_record import Record
from benchmarks.timing import Setting
from eans.experiments import Experiment, describe, to_the_end
from eans.lifecycle import start
from eans.listener import Listener
from eans.recipes import load
from eans.recipes.build import resolve

FILE = RECORDS / "fast.jsonl"
VALIDATIONS = 25
QUICK = ("model.dim=8", "sampler.negatives=2", "train.steps=20", "train.batch_size=16", "train.valid_triples=20")


class Stopwatch:
    """Listens to a run and takes the validations out of its seconds.

    A validation record carries the run's seconds just before the validation, and arrives just after it.
    """

    def __init__(self) -> None:
        self.began = 0.0
        self.validating = 0.0
        self.curve: list[Record] = []
        self.listener = Listener(start=self.start, log=self.log)

    def start(self, *_: Any) -> None:
        """The clock of the run starts."""
        self.began = time.perf_counter()

    def log(self, record: Record) -> None:
        """Keep a validation with the training seconds up to it."""
        if "valid" not in record:
            return
        now = time.perf_counter() - self.began
        # The seconds of a record are rounded; no time runs backwards for that.
        seconds = max(record["seconds"] - self.validating, self.curve[-1]["seconds"] if self.curve else 0.0)
        self.curve.append({"step": record["step"], "seconds": round(seconds, 3), "mrr": record["valid"]["both"]["mrr"]})
        self.validating += now - record["seconds"]


def run(cell: Experiment, setting: Setting) -> Record:
    """Train and evaluate one cell in full and return its record."""
    overrides = [*cell.overrides, *(QUICK if setting.quick else ()), f"train.seed={cell.seed}"]
    recipe = to_the_end(load(cell.recipe, overrides))
    graph = eans.load(recipe.data.name)
    recipe = resolve(recipe, graph)
    if not recipe.train.valid_every:
        every = max(1, int(recipe.train.steps) // VALIDATIONS)
        recipe = recipe.model_copy(update={"train": recipe.train.model_copy(update={"valid_every": every})})
    watch = Stopwatch()
    began = time.perf_counter()
    finished = start(recipe, graph, device=str(setting.device), listener=watch.listener)
    record = describe(cell, finished)
    return {
        "key": cell.key,
        **record,
        "seconds": round(record["seconds"] - watch.validating, 3),
        "validation_seconds": round(watch.validating, 3),
        "setup_seconds": round(watch.began - began, 3),
        "negatives": recipe.sampler.negatives,
        "curve": watch.curve,
    }


def measure_quality(names: Iterable[str], seed: int, setting: Setting, file: Path | None) -> Record:
    """Run ``recipe[:override]...`` each and append the records to `file`; None prints only."""
    done = {record["key"] for record in read_records(file)} if file is not None else set()
    keys = []
    for cell in (parse(name, seed) for name in names):
        keys.append(cell.key)
        if cell.key in done:
            print(f"{cell.key}: has its record already", flush=True)
            continue
        record = run(cell, setting)
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(record) + "\n")
        both = record["test"]["both"]
        print(
            f"{cell.key}: test MRR {both['mrr']:.4f} Hits@10 {both['hits@10']:.4f}, {record['seconds']:.1f} s training"
            f" ({record['validation_seconds']:.1f} s validations beside it, {record['setup_seconds']:.1f} s set-up)",
            flush=True,
        )
    return {"runs": keys}
