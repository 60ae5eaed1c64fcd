"""What a small training step costs on a CPU: `python -m benchmarks.small_steps`; two minutes on two cores.

A step of the default recipes on the bundled graph is a hundred small operations besides the compiled loops. It is
measured as it is (PyTorch's operations on one thread), with all of PyTorch's threads woken for each operation, and by
plain PyTorch (`EANS_KERNELS=reference`): in turn in one process, and with threads that wait asleep or awake
(``OMP_WAIT_POLICY``, which is read when PyTorch is loaded, so each in a process of its own).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import eans
from benchmarks.cells import RECORDS, write_measured
from benchmarks.timing import Setting, seconds_of
from eans import kernels
from eans.kernels import numba_threads
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve

FILE = RECORDS / "small-steps.jsonl"
MODELS = ("transe", "transd", "distmult", "complex", "rotate")
POLICIES = {"PASSIVE": "asleep", "ACTIVE": "awake"}
WAYS = ("eans", "all threads", "PyTorch")
WARM_UP, REPEATS = 5, 150


@contextmanager
def working(way: str) -> Iterator[None]:
    """Inside, steps are made in one of the `WAYS`."""
    limit = numba_threads.SHARED_FROM
    if way == "all threads":
        numba_threads.SHARED_FROM = 0
    try:
        with kernels.chosen("reference" if way == "PyTorch" else "numba"):
            yield
    finally:
        numba_threads.SHARED_FROM = limit


def step_ms(model: str, repeats: int) -> dict[str, float]:
    """Median milliseconds of a step of a model, by way; ways take turns, as a machine is not always equally fast."""
    graph = eans.load("wordnet-core")
    trainers = {}
    for way in WAYS:
        with working(way):
            trainers[way] = build_trainer(resolve(load(f"{model}/eans", data=graph.name), graph), graph)
            for _ in range(WARM_UP):
                trainers[way].step()
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(repeats):
        for way, trainer in trainers.items():
            with working(way):
                seconds[way] += seconds_of(trainer.step, Setting(torch.device("cpu")), 1)
    return {way: round(1e3 * statistics.median(times), 2) for way, times in seconds.items()}


def measured(policy: str, models: list[str], repeats: int) -> list[dict[str, Any]]:
    """A line for each model, from a process whose threads wait as `policy` says."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.small_steps", "--models", *models, "--repeats", str(repeats), "--here"],
        env={**os.environ, "OMP_WAIT_POLICY": policy},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [{"waiting": POLICIES[policy], **json.loads(line)} for line in done.stdout.splitlines()]


def main(arguments: list[str] | None = None) -> int:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--here", action="store_true", help="print lines of this process alone, and write no record")
    options = parser.parse_args(arguments)
    if options.repeats < 1:
        parser.error("--repeats must be at least 1")
    if options.here:
        for model in options.models:
            print(json.dumps({"recipe": f"{model}/eans", "ms": step_ms(model, options.repeats)}), flush=True)
        return 0
    lines = [line for policy in POLICIES for line in measured(policy, options.models, options.repeats)]
    write_measured(options.out, lines)
    for line in lines:
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
