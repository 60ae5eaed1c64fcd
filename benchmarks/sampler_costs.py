"""What a step with each sampler costs: `python -m benchmarks.compare_all_samplers --costs [--device cuda]`.

The rows and numbers of negatives of the comparison, each for some hundred steps, on a machine that does nothing else.
The record holds one part for each hardware; measuring again replaces the part of the same hardware.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.cells import RECORDS
from benchmarks.compare_all_samplers import built, negatives_for, pairs, scored
from benchmarks.cpu import busy_seconds
from benchmarks.speed_record import facts
from eans.data import load as load_graph
from eans.errors import UsageError
from eans.files import atomic_write
from eans.inspection import Inspector
from eans.training import Trainer

FILE = RECORDS / "wordnet-core-sampler-costs.json"
FORMAT = 1
WARM_UP = 10
TURNS = 10
PROBE = 512  # triples, enough to time the drawing of a batch
Part = dict[str, Any]


def step_ms(trainers: list[Trainer], steps: int) -> list[float]:
    """Mean milliseconds of a step of each, with all that the sampler does after it.

    They take turns, so that a machine that becomes slower becomes slower for all.
    """

    def now(trainer: Trainer) -> float:
        if trainer.device.type == "cuda":
            torch.cuda.synchronize(trainer.device)
        return time.perf_counter()

    totals = [0.0] * len(trainers)
    for turn in range(-1, TURNS):
        for index, trainer in enumerate(trainers):
            began = now(trainer)
            for _ in range(WARM_UP if turn < 0 else steps // TURNS):
                trainer.step()
            if turn >= 0:
                totals[index] += now(trainer) - began
    return [1e3 * total / (TURNS * (steps // TURNS)) for total in totals]


def measure(budget: int, steps: int, device: str) -> Part:
    """Milliseconds of a step, and of drawing its negatives alone, for every row of the comparison."""
    graph, rows = load_graph("wordnet-core"), pairs()
    numbers = {(model, entry): negatives_for(entry, model, budget) for model, entry in rows}  # counted before the clock
    load_before = os.getloadavg()[0]
    began, busy, own = time.perf_counter(), busy_seconds(), time.process_time()
    cells: dict[str, dict[str, float]] = {}
    for model in dict.fromkeys(model for model, _ in rows):
        shown = [entry for other, entry in rows if other == model]
        settings = [{"sampler.negatives": numbers[model, entry], "sampler.pretrain_steps": 0} for entry in shown]
        trainers = [built(entry, model, setting, device) for entry, setting in zip(shown, settings, strict=True)]
        times = step_ms(trainers, max(steps, TURNS))
        for entry, trainer, ms in zip(shown, trainers, times, strict=True):
            n = numbers[model, entry]
            cells[f"{model}/{entry.title}"] = {
                "negatives": n,
                "candidates": scored(entry, model, n),
                "ms": round(ms, 4),
                "sampling_ms": round(Inspector(trainer, graph, PROBE).measure().sampling_ms, 4),
                "sampler_bytes": trainer.sampler.memory(),
            }
    passed = time.perf_counter() - began
    others = (busy_seconds() - busy) - (time.process_time() - own)
    return {
        **facts(torch.device(device)),
        "budget": budget,
        "steps": steps,
        "seconds": round(passed, 1),
        "load_before": round(load_before, 2),
        "others_busy": round(max(0.0, others) / passed, 2),
        "cells": cells,
    }


def read(file: Path = FILE) -> list[Part]:
    """The parts of the record, one for each hardware; none where there is no file."""
    record: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() else {"format": FORMAT, "parts": []}
    if record.get("format") != FORMAT:
        raise UsageError(f"{file}: not a record of costs of format {FORMAT}; choose another --cost-records")
    return list(record["parts"])


def keep(part: Part, file: Path = FILE) -> None:
    """Write a part into the record, in the place of the one of the same hardware."""
    name = part["hardware"]["name"]
    others = [other for other in read(file) if other["hardware"]["name"] != name]
    parts = sorted([*others, part], key=lambda one: str(one["hardware"]["name"]))
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(file, (json.dumps({"format": FORMAT, "parts": parts}, indent=1) + "\n").encode())


def cost(part: Part, model: str, title: str) -> str:
    """``"1.23x (4.56 ms)"``: the multiple of a step with uniform negatives, and the time; ``-`` if not measured."""
    here, uniform = (part["cells"].get(f"{model}/{name}") for name in (title, "uniform"))
    return f"{here['ms'] / uniform['ms']:.2f}x ({here['ms']:.2f} ms)" if here and uniform else "-"


def origin(part: Part) -> str:
    """Where, when and with what, in a line."""
    versions = part["versions"]
    busy = part["others_busy"]
    disturbed = f"; other programs kept {busy:.1f} processors busy meanwhile" if busy >= 0.1 else ""
    threads = part["hardware"].get("threads")
    where = part["hardware"]["name"] + (f", {threads} thread{'s' if threads > 1 else ''}" if threads else "")
    return (
        f"{where}; PyTorch {versions['torch']}, Python {versions['python']}; {part['steps']} steps each;"
        f" commit `{part['commit'][:12]}`, {part['date'][:10]}{disturbed}."
    )


def table(part: Part) -> str:
    """Markdown: time per step as multiples of the uniform sampler's with the same number of scored candidates."""
    found = [key.partition("/") for key in part["cells"]]
    models = list(dict.fromkeys(model for model, _, _ in found))
    lines = [f"| time per step | {' | '.join(models)} |", f"|---|{'---:|' * len(models)}"]
    for title in dict.fromkeys(title for _, _, title in found):
        lines.append(f"| {title} | {' | '.join(cost(part, model, title) for model in models)} |")
    return "\n".join(lines)
