"""How long a large graph takes to read, and how much memory: `python -m benchmarks.reading`.

A file of triples is made in a temporary folder and read in a new process, once a format: wall-clock seconds, seconds of
the CPU, and the most memory of that process, PyTorch included. Entities are drawn uniformly, which is the hardest case:
nearly every label of a block is different. Beside it ``TriplesFactory.from_path`` of PyKEEN, if that is installed.
The record is ``records/reading.json``; the load of the machine stands in it, since others' work slows ours.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from benchmarks.cells import RECORDS
from eans.experiments import current_commit
from eans.files import atomic_write

FILE = RECORDS / "reading.json"
TIMED = """
import json, os, resource, sys, time
{imports}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start, cpu = time.perf_counter(), time.process_time()
{read}
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = dict(seconds=seconds, cpu_seconds=cpu, imported_mb=before / 1024, most_mb=most / 1024, triples=len({triples}))
print(json.dumps(found | dict(load=os.getloadavg()[0])))
"""
EANS = {"imports": "import eans; eans.load", "read": "graph = eans.load(sys.argv[1])", "triples": "graph.train"}
EANS_HASHED = EANS | {"read": "graph = eans.load(sys.argv[1]); graph.sha256"}
PYKEEN = {
    "imports": "from pykeen.triples import TriplesFactory",
    "read": "graph = TriplesFactory.from_path(sys.argv[1])",
    "triples": "graph.mapped_triples",
}


def make(folder: Path, triples: int, entities: int, relations: int) -> list[Path]:
    """The same graph as TSV and as Parquet."""
    generator = np.random.default_rng(0)
    names = {"head": "/m/entity_", "relation": "/r/rel_", "tail": "/m/entity_"}
    columns = {}
    for part, start in names.items():
        size = relations if part == "relation" else entities
        labels = pa.array([f"{start}{number:07d}" for number in range(size)])
        columns[part] = labels.take(pa.array(generator.integers(size, size=triples)))
    table = pa.table(columns)
    options = csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    csv.write_csv(table, folder / "graph.tsv", options)
    parquet.write_table(table, folder / "graph.parquet")
    return [folder / "graph.tsv", folder / "graph.parquet"]


def measured(path: Path, how: dict[str, str]) -> dict[str, Any]:
    """Of one reading in a process of its own, with two threads."""
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    program = [sys.executable, "-W", "ignore", "-c", TIMED.format(**how), str(path)]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {name: round(value, 2) for name, value in found.items()}


def main(arguments: list[str] | None = None) -> None:
    """Write the record, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--triples", type=int, default=10_000_000)
    parser.add_argument("--entities", type=int, default=1_000_000)
    parser.add_argument("--relations", type=int, default=200)
    parser.add_argument("--out", type=Path, default=FILE)
    given = parser.parse_args(arguments)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        # In a process of its own: one that is started keeps the peak of its parent as its own.
        sizes = given.triples, given.entities, given.relations
        with get_context("spawn").Pool(1) as pool:
            files = pool.apply(make, (Path(folder), *sizes))
        cases = [("eans", path, EANS) for path in files] + [("eans, with SHA-256", files[0], EANS_HASHED)]
        if importlib.util.find_spec("pykeen") is not None:
            cases.append(("pykeen", files[0], PYKEEN))
        for program, path, how in cases:
            rows.append({"program": program, "format": path.suffix[1:], **measured(path, how)})
            cells = (
                "{program:18}  {format:7}  {seconds:7.2f} s  {cpu_seconds:7.2f} CPU s  {most_mb:6.0f} MB  load {load}"
            )
            print(cells.format(**rows[-1]), flush=True)
    machine = {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    record = {
        "commit": current_commit(),
        "graph": dict(zip(("triples", "entities", "relations"), sizes, strict=True)),
        "hardware": machine,
        "runs": rows,
    }
    atomic_write(given.out, (json.dumps(record, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
