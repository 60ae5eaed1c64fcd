"""What a training step costs as a graph grows: `python -m benchmarks.graph_sizes`; a few minutes on two cores.

TransE with uniform negatives on random graphs of ever more entities, on a CPU: with Adam, which moves every row of the
table at each step, and with Adagrad, which touches the rows that are used; by this library's kernels and, in the same
process, by plain PyTorch (`EANS_KERNELS=reference`). A line of the record per number of entities.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.cells import RECORDS, write_measured
from benchmarks.gpu_steps import synthetic
from benchmarks.timing import Setting, seconds_of
from eans import kernels
from eans.graph import KnowledgeGraph
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve

FILE = RECORDS / "graph-sizes.jsonl"
ENTITIES = (15_000, 150_000, 1_500_000)
RELATIONS, TRIPLES_PER_ENTITY = 50, 3
RECIPE = "transe/uniform"
DIM, BATCH, NEGATIVES = 100, 1024, 64
OVERRIDES = (f"model.dim={DIM}", f"train.batch_size={BATCH}", f"sampler.negatives={NEGATIVES}")
OPTIMIZERS, IMPLEMENTATIONS = ("adam", "adagrad"), ("numba", "reference")
WARM_UP, REPEATS = 3, 25


def step_ms(graph: KnowledgeGraph, optimizer: str, implementation: str, repeats: int) -> float:
    """Median milliseconds of a step."""
    with kernels.chosen(implementation):
        recipe = load(RECIPE, [*OVERRIDES, f"train.optimizer={optimizer}"], data=graph.name)
        trainer = build_trainer(resolve(recipe, graph), graph)
        for _ in range(WARM_UP):
            trainer.step()
        return 1e3 * statistics.median(seconds_of(trainer.step, Setting(torch.device("cpu")), repeats))


def measured(entities: int, repeats: int) -> dict[str, Any]:
    """The line of one graph: milliseconds by optimizer and implementation."""
    graph = synthetic("random", entities, RELATIONS, TRIPLES_PER_ENTITY * entities, 100)
    found: dict[str, Any] = {"entities": entities, "recipe": RECIPE, "overrides": list(OVERRIDES)}
    for optimizer in OPTIMIZERS:
        for implementation in IMPLEMENTATIONS:
            found[f"{optimizer} {implementation}"] = round(step_ms(graph, optimizer, implementation, repeats), 2)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--entities", type=int, nargs="+", default=list(ENTITIES))
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--out", type=Path, default=FILE)
    options = parser.parse_args(arguments)
    if min(*options.entities, options.repeats) < 1:
        parser.error("--entities and --repeats must be at least 1")
    lines = []
    for entities in options.entities:
        lines.append(measured(entities, options.repeats))
        print(lines[-1], flush=True)
    write_measured(options.out, lines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
