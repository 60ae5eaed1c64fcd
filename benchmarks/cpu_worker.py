"""One measurement of `benchmarks.cpu` in a process of its own: ``python -m benchmarks.cpu_worker '{"task": ...}'``.

The last line of its output is a JSON object. A process of its own, because peak memory is that of a process, and what
one library leaves behind (memory pools, threads) should not speed up or slow down the other.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import eans
from eans import kernels
from eans.evaluation import rank
from eans.graph import KnowledgeGraph
from eans.recipes import load
from eans.recipes.build import build_model, build_trainer, resolve
from eans.recipes.schema import Recipe

WARM_STEPS = 2
# Eager PyTorch keeps some eight tensors [B, N, D] at a time; larger ones than this do not fit everywhere.
MOST_EAGER_BYTES = 1 << 30


def peak_megabytes() -> float:
    """The most memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def settings(graph: KnowledgeGraph, model: str, method: str, dim: int, batch: int, negatives: int) -> Recipe:
    """The FB15k-237 recipe of `model` and `method` at other sizes: no penalty, false negatives labelled."""
    overrides = [
        f"model.dim={dim}",
        f"sampler.negatives={negatives}",
        f"train.batch_size={batch}",
        "sampler.false_negatives=mask",
        "loss.penalty=none",
        "train.steps=1000000",
    ]
    return resolve(load(f"fb15k-237/{model}/{method}", overrides), graph)


def timed(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def steps(library: str, graph: str, model: str, method: str, size: list[int], count: int) -> dict[str, Any]:
    """`count` whole training steps; `size` is (dim, batch, negatives)."""
    loaded = eans.load(graph)
    imported = peak_megabytes()
    if library == "pykeen":
        from benchmarks.cpu_peers import pykeen_steps

        dim, batch, negatives = size
        seconds = pykeen_steps(loaded, model, dim, batch, negatives, warm=1, steps=count)
    else:
        trainer = build_trainer(settings(loaded, model, method, *size), loaded)
        for _ in range(WARM_STEPS):  # the first compiles, or loads what was compiled, and puts the entities in order
            trainer.step()
        seconds = [timed(trainer.step) for _ in range(count)]
    return {"seconds": seconds, "peak_mb": peak_megabytes(), "start_mb": imported}


def ranking(library: str, graph: str, model: str, dim: int, count: int) -> dict[str, Any]:
    """Filtered ranking of `count` test triples, both sides, by an untrained model."""
    loaded = eans.load(graph)
    triples = loaded.test[torch.linspace(0, len(loaded.test) - 1, count, dtype=torch.float64).long()]
    if library == "pykeen":
        from benchmarks.cpu_peers import pykeen_ranking

        seconds = pykeen_ranking(loaded, model, dim, triples)
    else:
        network = build_model(settings(loaded, model, "adv", dim, 1024, 1), loaded)
        rank(network, loaded, "test", limit=2)
        seconds = timed(lambda: rank(network, loaded, "test", limit=count))
    return {"seconds": [seconds], "triples": count, "peak_mb": peak_megabytes()}


def sweep(graph: str, model: str, queries: int, dims: list[int], seconds: float) -> dict[str, Any]:
    """Median milliseconds of a step at many sizes: this library, its reference kernels, eager PyTorch; by turns."""
    from benchmarks.cpu_peers import Eager

    loaded = eans.load(graph)
    cells = [(dim, batch, negatives) for dim in dims for negatives in (1, 16, 256) for batch in (128, 1024)]
    rows = []
    for size in cells:
        if 4 * size[0] * size[1] * size[2] * (2 if model == "rotate" else 1) > MOST_EAGER_BYTES:
            continue
        recipe = settings(loaded, model, "eans+adv" if queries == 3 else "adv", *size)
        compiled = build_trainer(recipe, loaded)
        with kernels.chosen("reference"):
            plain = build_trainer(recipe, loaded)
        eager = Eager(loaded, model, *size, queries)

        def reference(trainer: Any = plain) -> None:
            with kernels.chosen("reference"):
                trainer.step()

        contenders: dict[str, Callable[[], object]] = {
            "eans": compiled.step,
            "reference": reference,
            "eager": eager.step,
        }
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for call in contenders.values():
            call()
        end = time.perf_counter() + seconds
        while len(times["eager"]) < 3 or (time.perf_counter() < end and len(times["eager"]) < 25):
            for name, call in contenders.items():
                times[name].append(timed(call))
        medians = {name: 1e3 * statistics.median(values) for name, values in times.items()}
        rows.append({"model": model, "queries": queries, "size": list(size), "turns": len(times["eager"]), **medians})
    return {"rows": rows}


TASKS: dict[str, Callable[..., dict[str, Any]]] = {"steps": steps, "ranking": ranking, "sweep": sweep}


def main() -> None:
    """Do what the argument says, print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("request", type=json.loads, help="a task and its arguments, as a JSON object")
    request = parser.parse_args().request
    print(json.dumps(TASKS[request.pop("task")](**request)))


if __name__ == "__main__":
    main()
