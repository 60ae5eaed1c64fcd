"""What a run of the table score-gap leaves besides its metrics: the scores of its negatives at some steps, and its
final order of entities.

Both are kept in the run folder until the run is done, so that an interruption loses nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from eans import KnowledgeGraph, Listener, Recipe, Run, Trainer
from eans.experiments import Watch
from eans.files import atomic_write
from eans.inspection import Analyst
from paper.order import describe_order

# The means of the table score-gap are over the 1,000 steps before an analysis. So often on the way, and at both ends,
# so many of the batches that come next are scored: close to what a log of all batches would show, each before it is
# learnt.
SPAN, EVERY, BATCHES = 1_000, 20, 4
MEANS = ("positive_score", "negative_score")
DIGITS = 6


class Watcher(Watch):
    """Analyses a run at some steps and at the last one, and its means more often on the way to each.

    Attributes:
        found: analyses by step, each with the ``seconds`` it took.
        glances: `Analyst.look_ahead` by step, on the way; these too have ``seconds``.
        order: the final order of entities, if the sampler has one.
    """

    def __init__(self, folder: Path, steps: Sequence[int]) -> None:
        super().__init__(Listener(start=self._start, tick=self._tick))
        self.steps = steps
        self.file = folder / "notes.json"
        content = json.loads(self.file.read_text("utf-8")) if self.file.is_file() else {}
        self.found: dict[int, dict[str, Any]] = {
            found["step"]: found for found in content.get("analyses", content.get("looks", []))
        }
        self.glances: dict[int, dict[str, Any]] = {glance["step"]: glance for glance in content.get("ahead", [])}
        self.order: dict[str, Any] | None = content.get("order")
        self.analyst: Analyst | None = None

    @property
    def seconds(self) -> float:
        """What the analyses took; the clock of training ran on."""
        return sum(float(seen["seconds"]) for seen in (*self.found.values(), *self.glances.values()))

    def fields(self, run: Run) -> dict[str, Any]:
        """What the record gets."""
        del run
        analysis = {"analysis": [self.found[step] for step in sorted(self.found)]}
        return analysis if self.order is None else analysis | {"order": self.order}

    def _save(self) -> None:
        content = {"analyses": list(self.found.values()), "ahead": list(self.glances.values()), "order": self.order}
        atomic_write(self.file, (json.dumps(content) + "\n").encode())

    def _start(self, _: Recipe, graph: KnowledgeGraph, trainer: Trainer) -> None:
        for seen in (self.found, self.glances):  # a run that continues from a step comes to the later ones again
            for later in [step for step in seen if step > trainer.completed]:
                del seen[later]
        self.analyst = Analyst(trainer, graph)
        if not trainer.completed:
            self._glance(self.analyst, 0)
            self.glances[0]["seconds"] = 0.0  # the clock of training does not run yet

    def _tick(self, step: int) -> None:
        assert self.analyst is not None
        ends = (*self.steps, self.analyst.trainer.schedule.steps)
        if step % EVERY == 0 and any(end - SPAN <= step <= end for end in ends):
            self._glance(self.analyst, step)
        if step in ends:
            self._analyse(self.analyst, step)

    def _glance(self, analyst: Analyst, step: int) -> None:
        began = when_done(analyst.trainer.device)
        glance: dict[str, Any] = {"step": step, **analyst.look_ahead(BATCHES), "seconds": 0.0}
        self.glances[step] = glance
        self._save()
        glance["seconds"] = round(time.perf_counter() - began, 3)

    def _analyse(self, analyst: Analyst, step: int) -> None:
        began = when_done(analyst.trainer.device)
        found = {**analyst.analyse(), "logged": self._logged(step)}
        if step == analyst.trainer.schedule.steps:
            self.order = describe_order(analyst.trainer)
        self.found[step] = {**rounded(found), "seconds": round(time.perf_counter() - began, 3)}
        self._save()

    def _logged(self, end: int) -> dict[str, float] | None:
        """What a log of the steps before `end` would show; None if a glance is missing, or there are no negatives.

        By the trapezoidal rule: a glance stands for the steps on both sides of it, at an end for those of one side.
        """
        start = max(0, end - SPAN)
        wanted = [step for step in range(start, end + 1) if step % EVERY == 0]
        near = [self.glances[step] for step in wanted if step in self.glances]
        if len(near) < len(wanted) or any(glance[name] is None for glance in near for name in MEANS):
            return None
        weights = [0.5 if step in (start, end) else 1.0 for step in wanted]
        return {name: fmean((glance[name] for glance in near), weights) for name in MEANS}


def when_done(device: torch.device) -> float:
    """The time once the device is done: steps that it still has to do are no part of an analysis."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def rounded(value: Any) -> Any:
    """Numbers to six significant digits, wherever they stand."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: rounded(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(inner) for inner in value]
    return value
