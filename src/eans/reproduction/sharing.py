"""How many runs are done at a time: what `--workers` says, or as many as a GPU gains by."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from eans.recipes import load
from eans.reproduction.plan import PlannedRun
from eans.reproduction.records import RunSpec

FEW_NEGATIVES = 16  # with so many, or fewer, a training step does not fill a large GPU
AT_A_TIME = 4
# How much sooner such runs are done if they share a GPU under CUDA MPS. With one negative a run took 44 s alone, and
# four took about 100 s together (records of TransE on FB15k-237); with more negatives there is less to gain.
SHARING_GAIN = 1.7


def with_workers(runs: Sequence[PlannedRun], workers: int | None, sharing: bool) -> list[PlannedRun]:
    """The runs in the order in which to do them, each with how many may be done at a time.

    Args:
        runs: in the order of the plan.
        workers: how many, whatever they are; None: several only where that gains something. Then those of one seed that
            go together come first, so that they find company.
        sharing: small runs gain by sharing the device.
    """
    if workers is not None:
        return [dataclasses.replace(run, at_a_time=min(workers, len(runs))) for run in runs]
    small = [run for run in runs if sharing and has_few_negatives(run.spec)]
    together = [dataclasses.replace(run, at_a_time=min(AT_A_TIME, len(small))) for run in small]
    return sorted([*together, *(run for run in runs if run not in small)], key=lambda run: run.spec.seed)


def has_few_negatives(spec: RunSpec) -> bool:
    """Are its steps too small to fill a GPU?"""
    sampler = load(spec.recipe, spec.overrides).sampler
    return sampler.name != "all" and sampler.negatives <= FEW_NEGATIVES


def gain(run: PlannedRun, sharing: bool) -> float:
    """How much sooner a run is done, counted by its share of the device, for being done beside others."""
    return SHARING_GAIN if sharing and run.at_a_time > 1 and has_few_negatives(run.spec) else 1.0


def mps_is_running() -> bool:
    """Is there a control daemon of NVIDIA's Multi-Process Service? Without one, processes on a GPU take turns."""
    folder = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps")
    pipe = folder / "control"
    try:
        return pipe.is_fifo() or pipe.is_socket()
    except OSError:
        return False


def in_words(runs: Sequence[PlannedRun]) -> str:
    """``"one at a time"``, ``"4 at a time"``, or how many of them so and how many so."""
    counts: dict[int, int] = {}
    for run in runs:
        counts[run.at_a_time] = counts.get(run.at_a_time, 0) + 1
    words = {number: "one at a time" if number == 1 else f"{number} at a time" for number in counts}
    if len(counts) < 2:
        return "".join(words.values())
    small = f" with at most {FEW_NEGATIVES} negatives"
    return ", ".join(
        f"{counts[number]}{small if number > 1 else ''} {words[number]}" for number in sorted(counts)[::-1]
    )
