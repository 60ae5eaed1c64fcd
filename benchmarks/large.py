"""Training on large graphs with planted structure: ``python -m benchmarks.large 5m --optimizer adagrad``.

Makes the graph (`benchmarks.planted`, in ``runs/planted``) where it is not there yet, trains on it, and ranks a sample
of valid among all entities, filtered by everything known. Beside the model's MRR stand that of the planted structure
and that of the frequency baseline on the same queries: what could be reached, and what needs no model.

A positive is a triple with one side replaced: a step has b of them. Rates are of windows of steps without evaluation;
the fastest says what the machine can do, the median what it did. Each run adds a line to ``records/large.jsonl``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from benchmarks import sparse_ranks
from benchmarks.cells import RECORDS
from benchmarks.planted import FACTS, Planted, load, peak_mb
from eans.devices import choose_device, hardware_name
from eans.evaluation import rank
from eans.experiments import current_commit
from eans.files import atomic_write
from eans.graph import KnowledgeGraph
from eans.optimizer import OPTIMIZERS
from eans.recipes import Recipe
from eans.recipes import load as load_recipe
from eans.recipes.build import build_trainer, passes_over_train, resolve
from eans.training import Trainer

FILE = RECORDS / "large.jsonl"
GRAPHS = Path("runs") / "planted"
WINDOW = 50  # steps
PROTOCOL = "both sides of a sample of valid, all entities as candidates, train, valid and test filtered, realistic ties"


@dataclass(frozen=True)
class Size:
    """What a graph and its training are by default."""

    entities: int
    relations: int
    triples: int
    dim: int
    batch: int
    negatives: int
    steps: int


SIZES = {
    "tiny": Size(3_000, 5, 20_000, 8, 64, 8, 100),  # to try the program
    "100k": Size(100_000, 200, 1_000_000, 64, 1024, 64, 5_000),
    "1m": Size(1_000_000, 200, 10_000_000, 64, 1024, 64, 20_000),
    "5m": Size(5_000_000, 200, 50_000_000, 64, 1024, 64, 20_000),
    "20m": Size(20_000_000, 2_000, 200_000_000, 200, 1024, 256, 400_000),
    "freebase86m": Size(86_054_151, 14_824, 338_586_276, 100, 1024, 256, 700_000),
}


def graph_folder(size: Size, seed: int) -> Path:
    """Where the graph of these sizes is; it is made if need be, in a process whose peak of memory is its own."""
    folder = GRAPHS / f"{size.entities}-{size.relations}-{size.triples}-{seed}"
    if not (folder / FACTS).is_file():
        planted = Planted(size.entities, size.relations, size.triples, seed)
        with get_context("spawn").Pool(1) as pool:
            pool.apply(planted.write, (folder,))
    return folder


def recipe_for(given: argparse.Namespace, size: Size, graph: KnowledgeGraph) -> Recipe:
    """The default recipe of model and method with the sizes that were asked for; nothing is validated on the way."""
    overrides = [
        f"model.dim={size.dim}",
        f"sampler.negatives={size.negatives}",
        f"train.batch_size={size.batch}",
        f"train.steps={size.steps}",
        f"train.optimizer={given.optimizer}",
        f"train.lr={given.lr}",
        f"train.seed={given.seed}",
        "train.lr_decay=linear",
        "train.subsampling=false",
        "train.valid_every=0",
        *given.set,
    ]
    return resolve(load_recipe(f"default/{given.model}/{given.method}", overrides), graph)


def windows(trainer: Trainer, steps: int) -> list[dict[str, float]]:
    """Do all steps; of each window wall-clock seconds and those of the CPU, one step's share."""
    found, batch = list[dict[str, float]](), trainer.stream.batch_size
    while trainer.completed < steps:
        count = min(WINDOW, steps - trainer.completed)
        began, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            trainer.step()
        if trainer.device.type == "cuda":
            torch.cuda.synchronize(trainer.device)
        found.append(
            {"wall": (time.perf_counter() - began) / count, "cpu": (time.process_time() - cpu) / count, "steps": count}
        )
        if len(found) % 20 == 0:
            print(f"step {trainer.completed:,} of {steps:,}: {batch / found[-1]['wall']:,.0f} positives/s", flush=True)
    return found


def rates(found: list[dict[str, float]], batch: int) -> dict[str, float]:
    """Positives a second, and a second of the CPU; the first window is left out, in which kernels are compiled."""
    full = [window for window in found if window["steps"] == found[0]["steps"]]
    rest = full[1:] or full
    wall, cpu = ([window[name] for window in rest] for name in ("wall", "cpu"))
    return {
        "fastest": round(batch / min(wall)),
        "median": round(batch / statistics.median(wall)),
        "median_per_cpu_second": round(batch / statistics.median(cpu)),
        "ms_fastest": round(1e3 * min(wall), 3),
        "ms_median": round(1e3 * statistics.median(wall), 3),
        "cpu_ms_median": round(1e3 * statistics.median(cpu), 3),
    }


def measure(given: argparse.Namespace, size: Size) -> dict[str, Any]:
    """Train, rank, and say what it took."""
    commit = current_commit()  # of what runs, whatever becomes of the files meanwhile
    device, folder = choose_device(given.device), graph_folder(size, given.seed)
    clock, seconds, peaks = _Clock(), dict[str, float](), dict[str, float]()

    def done(what: str) -> None:
        seconds[what], peaks[what] = clock.lap(), round(peak_mb())

    structure, graph = load(folder)
    done("load")
    recipe = recipe_for(given, size, graph)
    trainer = build_trainer(recipe, graph, device)
    done("build")
    found = windows(trainer, size.steps)
    trainer.check()
    trainer.finish()
    done("train")
    graph.known  # noqa: B018
    done("filter")
    metrics = rank(trainer.model, graph, "valid", limit=given.limit).summary()["both"]
    done("rank")
    best = sparse_ranks.planted(structure, graph, "valid", given.limit)
    frequent = sparse_ranks.frequency(graph, "valid", given.limit)
    done("baselines")
    tensors, _ = trainer.state()
    return {
        "size": given.size,
        "recipe": recipe.name,
        "optimizer": given.optimizer,
        "lr": given.lr,
        "set": given.set,
        **asdict(size),
        "seed": given.seed,
        "train": len(graph.train),
        "passes": round(passes_over_train(size.steps, size.batch, graph), 3),
        "device": str(device),
        "hardware": hardware_name(device),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1),
        "positives_per_second": rates(found, size.batch),
        "seconds": seconds,
        "peak_mb": peaks,
        "peak_gpu_mb": round(torch.cuda.max_memory_allocated(device) / 2**20) if device.type == "cuda" else None,
        "bytes": {
            "state": sum(value.nbytes for value in tensors.values()),
            "model": sum(value.nbytes for name, value in tensors.items() if name.startswith("model.")),
            "optimizer": sum(value.nbytes for name, value in tensors.items() if name.startswith("optimizer.")),
        },
        "graph": json.loads((folder / FACTS).read_text("utf-8")),
        "protocol": f"{PROTOCOL}; {min(given.limit, len(graph.valid))} triples",
        "valid": {"model": metrics, "planted": best.to_dict(), "frequency": frequent.to_dict()},
        "commit": commit,
    }


class _Clock:
    def __init__(self) -> None:
        self.last = time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last time."""
        before, self.last = self.last, time.perf_counter()
        return round(self.last - before, 2)


def main(arguments: list[str] | None = None) -> None:
    """Run, print, and add the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", choices=SIZES)
    parser.add_argument("--model", default="complex")
    parser.add_argument("--method", default="softmax", help="of the recipes: softmax, uniform, adv, eans+adv, ...")
    parser.add_argument("--optimizer", default="row-adagrad", choices=OPTIMIZERS)
    parser.add_argument("--lr", type=float, default=0.1)
    for name in ("entities", "relations", "triples", "dim", "batch", "negatives", "steps"):
        parser.add_argument(f"--{name}", type=int, help="that of the size, unless it is given")
    parser.add_argument("--limit", type=int, default=1000, help="triples of valid that are ranked")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], help="a key of the recipe, section.key=value")
    parser.add_argument("--out", type=Path, default=FILE)
    given = parser.parse_args(arguments)
    sizes = asdict(SIZES[given.size])
    size = Size(
        **{name: value if getattr(given, name) is None else getattr(given, name) for name, value in sizes.items()}
    )
    record = measure(given, size)
    print(json.dumps(record, indent=2))
    before = given.out.read_bytes() if given.out.is_file() else b""
    atomic_write(given.out, before + (json.dumps(record) + "\n").encode())


if __name__ == "__main__":
    main()
