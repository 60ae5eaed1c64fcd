"""What a step costs as the graph grows: `python -m benchmarks.large_steps [--sizes ...] [--only row-adagrad]`.

TransE, d = 64, 1,024 positives with 64 uniform negatives, on a CPU, by optimizer and number of entities. The table of a
small graph fits the cache, so that costs are compared with those at 300,000 entities, measured in the same run: all
sizes take turns. Times are those of the processor, of all threads together, and the fastest of several windows, because
other programs may run. A measurement replaces that of the same optimizer and sizes in the record.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import torch

from benchmarks.cells import RECORDS
from benchmarks.speed_record import facts
from eans.files import atomic_write
from eans.graph import KnowledgeGraph, Vocabulary
from eans.optimizer import OPTIMIZERS, OptimizerName
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve
from eans.training import Trainer

FILE = RECORDS / "large-steps.json"
SIZES = (15_000, 300_000, 1_000_000, 5_000_000)
BASE = 300_000
RELATIONS, TRIPLES = 20, 200_000
WARM_UP, STEPS = 6, 10  # before the first window; in a window
SETTINGS: dict[str, Any] = {
    "model.dim": 64,
    "sampler.negatives": 64,
    "train.batch_size": 1024,
    "train.steps": 100_000,
    "train.valid_every": 0,
    "train.patience": 0,
    "train.keep": "last",
}


def graph_of(entities: int) -> KnowledgeGraph:
    """Triples of entities drawn alike, and nothing to be learned."""
    generator = torch.Generator().manual_seed(entities)
    ends, relations = (
        torch.randint(size, (TRIPLES, count), generator=generator) for size, count in ((entities, 2), (RELATIONS, 1))
    )
    triples = torch.cat([ends[:, :1], relations, ends[:, 1:]], dim=1)
    labels, names = (pa.array(np.arange(size)).cast(pa.large_string()) for size in (entities, RELATIONS))
    vocabularies = Vocabulary.of_different(labels, "entity"), Vocabulary.of_different(names, "relation")
    return KnowledgeGraph(f"{entities} entities", *vocabularies, triples, triples[:0], triples[:0])


def built(entities: int, optimizer: str) -> Trainer:
    """A trainer that has done its first steps."""
    graph = graph_of(entities)
    recipe = load("default/transe/uniform", {**SETTINGS, "train.optimizer": optimizer})
    trainer = build_trainer(resolve(recipe, graph), graph)
    for _ in range(WARM_UP):
        trainer.step()
    return trainer


def step_ms(trainers: list[Trainer], windows: int) -> list[float]:
    """Milliseconds of processor time that a step of each takes in its fastest window."""
    fastest = [float("inf")] * len(trainers)
    for _ in range(windows):
        for index, trainer in enumerate(trainers):
            began = time.process_time()
            for _ in range(STEPS):
                trainer.step()
            fastest[index] = min(fastest[index], (time.process_time() - began) / STEPS)
    return [1e3 * seconds for seconds in fastest]


def measure(optimizer: str, sizes: list[int], windows: int) -> dict[str, Any]:
    """One part of the record: milliseconds by size, and their ratios to those at `BASE` entities."""
    load_before = os.getloadavg()[0]
    trainers = [built(size, optimizer) for size in sizes]
    found = dict(zip(sizes, step_ms(trainers, windows), strict=True))
    return {
        "optimizer": optimizer,
        "ms": {str(size): round(ms, 2) for size, ms in found.items()},
        "ratio": {str(size): round(ms / found[BASE], 3) for size, ms in found.items()} if BASE in found else {},
        "windows": windows,
        "threads": torch.get_num_threads(),
        "load": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        **facts(torch.device("cpu")),
    }


def keep(part: dict[str, Any], path: Path) -> None:
    """Put a part into the record, in the place of an earlier one of the same optimizer and sizes."""
    parts = json.loads(path.read_text("utf-8")) if path.is_file() else []
    same = [(other["optimizer"], list(other["ms"])) == (part["optimizer"], list(part["ms"])) for other in parts]
    kept = [other for other, replaced in zip(parts, same, strict=True) if not replaced]
    atomic_write(path, (json.dumps([*kept, part], indent=1) + "\n").encode())


def main() -> None:
    """Measure, print and keep one optimizer after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="numbers of entities")
    parser.add_argument("--only", nargs="+", choices=get_args(OptimizerName), default=list(OPTIMIZERS))
    parser.add_argument("--windows", type=int, default=8, help=f"of {STEPS} steps each")
    parser.add_argument("--out", type=Path, default=FILE)
    given = parser.parse_args()
    for optimizer in given.only:
        part = measure(optimizer, given.sizes, given.windows)
        print(optimizer, part["ms"], part["ratio"], flush=True)
        keep(part, given.out)
        gc.collect()


if __name__ == "__main__":
    main()
