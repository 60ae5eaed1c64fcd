"""Many queries answered, beside PyKEEN on the same CPU: ``python -m benchmarks.prediction``.

Tail queries on the entities and relations of WN18RR, from a Parquet file to a Parquet file with the ten best answers of
each, known ones left out; and in PyKEEN by `predict_target`, a query at a time, and by `predict_t` with `torch.topk`,
which leaves nothing out. Models have their initial tables. Every measurement has a process of its own. Writes
``records/prediction.json``; some five minutes on two cores. PyKEEN is measured where it is installed
(``pip install 'eans[bench]'``).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks.cells import RECORDS
from benchmarks.cpu import THREADS, busy_seconds, child_seconds, wait_until_idle
from benchmarks.speed_record import facts, table
from eans.files import atomic_write

FILE = RECORDS / "prediction.json"
K, DIM, WARM = 10, 200, 1024
# (model, queries of eans, of PyKEEN one at a time, of PyKEEN in batches, queries in each of these)
CELLS = [
    ("rotate", (10_000, 40_000), 32, 128, 8),
    ("transe", (40_000,), 48, 512, 16),
    ("distmult", (40_000,), 96, 2048, 32),
]
SELECTION = (10, 100)


def measure(**request: Any) -> dict[str, Any]:
    """One measurement in a process of its own, begun when the machine is idle."""
    wait_until_idle()
    began, before, own = time.perf_counter(), busy_seconds(), child_seconds()
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.prediction", "--worker", json.dumps(request)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | THREADS)
    if done.returncode:
        raise SystemExit(f"{request}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    others = (busy_seconds() - before) - (child_seconds() - own)
    shown = {**request, **result, "others_busy": round(max(0.0, others) / (time.perf_counter() - began), 2)}
    print(shown, file=sys.stderr, flush=True)
    return shown


def timed(work: Any, queries: int) -> dict[str, Any]:
    """Wall and processor seconds, queries, and the peak of the process's memory."""
    began, processor = time.perf_counter(), time.process_time()
    work()
    seconds = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - processor}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"queries": queries, **{name: round(value, 3) for name, value in seconds.items()}, "peak_mb": round(peak)}


def queries_of(graph: Any, count: int) -> torch.Tensor:
    """Random heads and relations, ``[count, 2]``."""
    generator = torch.Generator().manual_seed(0)
    sizes = (graph.num_entities, graph.num_relations)
    return torch.stack([torch.randint(size, (count,), generator=generator) for size in sizes], 1)


def eans_worker(model: str, count: int) -> dict[str, Any]:
    """From file to file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import eans
    from eans.batch_prediction import predict_many
    from eans.models import MODELS

    graph = eans.load("wn18rr")
    built = MODELS[model](graph.num_entities, graph.num_relations, DIM)
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "queries.parquet", Path(folder) / "answers.parquet"
        for size in (WARM, count):
            asked = queries_of(graph, size)
            names = graph.entities.labels_of(asked[:, 0]), graph.relations.labels_of(asked[:, 1])
            columns = {"head": names[0], "relation": names[1], "tail": pa.nulls(size, pa.large_string())}
            pq.write_table(pa.table(columns), source)
            found = timed(lambda: predict_many(built, graph, source, k=K, out=out, progress=False), size)
    return found


def pykeen_worker(model: str, count: int, batch: int) -> dict[str, Any]:
    """`predict_target` for each query, or for ``batch > 1`` scores of all tails and the best of them."""
    import eans
    from benchmarks.cpu_peers import _pykeen_model

    graph = eans.load("wn18rr")
    built, factory = _pykeen_model(graph, model, DIM)
    built.eval()
    asked = queries_of(graph, count)

    def one_at_a_time(queries: torch.Tensor) -> None:
        from pykeen.predict import predict_target
        from pykeen.triples import TriplesFactory

        ids = [{label: index for index, label in enumerate(known)} for known in (graph.entities, graph.relations)]
        make: Any = TriplesFactory
        named = make(factory.mapped_triples, *ids)
        for head, relation in queries.tolist():
            predictions = predict_target(built, head=head, relation=relation, triples_factory=named)
            predictions.filter_triples(factory.mapped_triples).df.head(K)

    def in_batches(queries: torch.Tensor) -> None:
        with torch.inference_mode():
            for part in torch.split(queries, batch):
                torch.topk(built.predict_t(part), K)

    work = in_batches if batch > 1 else one_at_a_time
    work(asked[:batch])
    return timed(lambda: work(asked), count)


def selection_worker(k: int) -> dict[str, Any]:
    """Microseconds for each row of scores: the kernel, and `torch.topk`."""
    from eans import kernels

    scores, nothing = torch.randn(WARM, 40_943), torch.zeros(WARM, dtype=torch.int64)
    ways: dict[str, Callable[[], object]] = {
        "eans": lambda: kernels.best(scores, k, nothing, nothing, nothing),
        "torch": lambda: torch.topk(scores, k),
    }
    found = {}
    for name, work in ways.items():
        work()
        rounds = [timed(work, WARM)["seconds"] for _ in range(5)]
        found[f"{name}_us"] = round(1e6 * sorted(rounds)[2] / WARM, 1)
    return {"k": k, **found}


Worker = Callable[..., dict[str, Any]]
WORKERS: dict[str, Worker] = {"eans": eans_worker, "pykeen": pykeen_worker, "selection": selection_worker}


def lines(record: dict[str, Any]) -> list[list[str]]:
    """A header and a row for each measurement; a million queries by the clock, and by processor time on all cores."""
    threads = record["hardware"]["threads"]
    header = ["model, d = 200", "by", "queries", "ms each", "processor ms", "a million, minutes"]
    header += [f"on {threads} idle cores", "peak MB", "others busy"]
    rows = []
    for cell in record["cells"]:
        single = cell.get("batch") == 1
        way = "eans" if cell["library"] == "eans" else f"PyKEEN {'predict_target' if single else 'predict_t, topk'}"
        each, work = (1e3 * cell[name] / cell["queries"] for name in ("seconds", "cpu_seconds"))
        minutes = [f"{1e3 * value / 60:,.1f}" for value in (each, work / threads)]
        numbers = [f"{cell['queries']:,}", f"{each:.2f}", f"{work:.2f}", *minutes, f"{cell['peak_mb']:,}"]
        rows.append([cell["model"], way, *numbers, f"{cell['others_busy']:.1f}"])
    return [header, *rows]


def page(record: dict[str, Any]) -> str:
    """The section of docs/explanation/performance.md."""
    header, *rows = lines(record)
    marks = ["---" if place < 2 else "---:" for place in range(len(header))]
    body = "\n".join(f"| {' | '.join(cells)} |" for cells in (header, *rows)).split("\n", 1)
    origin = f"{record['hardware']['name']}; commit `{record['commit'][:12]}`, {record['date'][:10]}."
    chosen = " and ".join(
        f"{cell['eans_us']:.0f} us for k = {cell['k']} (`torch.topk`: {cell['torch_us']:.0f})"
        for cell in record["selection"]
    )
    found = f"{body[0]}\n|{'|'.join(marks)}|\n{body[1]}"
    return f"{origin}\n\n{found}\n\nOf that, selecting the best of 40,943 scores takes {chosen}."


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.prediction", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=FILE, help="the record to write")
    arguments = parser.parse_args()
    if arguments.worker:
        request = json.loads(arguments.worker)
        print(json.dumps(WORKERS[request.pop("library")](**request)))
        return
    cells = []
    for model, counts, single, many, batch in CELLS:
        cells += [measure(library="eans", model=model, count=count) for count in counts]
        if find_spec("pykeen"):
            cells += [
                measure(library="pykeen", model=model, count=count, batch=size)
                for count, size in ((single, 1), (many, batch))
            ]
    selections = [measure(library="selection", k=k) for k in SELECTION]
    record = {**facts(torch.device("cpu")), "k": K, "dim": DIM, "cells": cells, "selection": selections}
    atomic_write(arguments.out, (json.dumps(record, indent=1) + "\n").encode())
    header, *rows = lines(record)
    print(table(header, rows))


if __name__ == "__main__":
    main()
