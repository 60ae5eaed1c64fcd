"""What a run leaves besides its metrics: the scores of its negatives at some steps, and its final line of entities.

The notes live in the run folder until the run is done, so that an interrupted run keeps them.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from eans.api import Listener
from eans.files import atomic_write
from eans.graph import KnowledgeGraph
from eans.inspection.analysis import Analyst
from eans.recipes import Recipe
from eans.reproduction.order import describe_order
from eans.training import Trainer

# The means of the table score-gap are over the 1,000 steps before a look. So often on the way, and at both ends, so
# many of the batches that come next are looked at: close to what a log of all batches would show, each before it is
# learnt.
SPAN, EVERY, BATCHES = 1_000, 20, 4
BETWEEN_SAVES = 10.0  # seconds
MEANS = ("positive_score", "negative_score")
DIGITS = 6


class Notes:
    """A small JSON file in a run folder.

    Attributes:
        looks: analyses by step, each with the ``seconds`` it took.
        glances: `Analyst.look_ahead` by step, on the way to the looks; these too have ``seconds``.
        order: the final line of entities, if the sampler has one.
        earlier: seconds of the sessions before this one, as far as they were saved.
        company: how many runs there were, this one included, by how many of the reports said so in those sessions.
    """

    def __init__(self, folder: Path, began: float, company: Callable[[], Mapping[int, int]] = dict) -> None:
        """Read the notes, if there are some.

        Args:
            folder: of the run.
            began: when this session did, by `time.perf_counter`.
            company: of this session, asked when the notes are saved.
        """
        self.began = self.saved_at = began
        self.file = folder / "notes.json"
        content = json.loads(self.file.read_text("utf-8")) if self.file.is_file() else {}
        self.looks: dict[int, dict[str, Any]] = {look["step"]: look for look in content.get("looks", [])}
        self.glances: dict[int, dict[str, Any]] = {glance["step"]: glance for glance in content.get("ahead", [])}
        self.order: dict[str, Any] | None = content.get("order")
        self.earlier: float = content.get("earlier", 0.0)
        self.company = Counter({int(runs): reports for runs, reports in content.get("company", {}).items()})
        self._company_now = company

    @property
    def total_seconds(self) -> float:
        """Of all sessions, up to now."""
        return self.earlier + time.perf_counter() - self.began

    @property
    def runs_at_a_time(self) -> float:
        """How many runs shared the device, this one included, on average over all sessions."""
        reports = self.company + Counter(self._company_now())
        return round(sum(runs * count for runs, count in reports.items()) / reports.total(), 1) if reports else 1.0

    def save_now_and_then(self) -> None:
        """What a process that is killed should not take with it."""
        if time.perf_counter() - self.saved_at > BETWEEN_SAVES:
            self.save()

    def save(self) -> None:
        """Replace the file; without a folder yet, there is nothing to keep."""
        self.saved_at = time.perf_counter()
        if self.file.parent.is_dir():
            content = {
                "looks": list(self.looks.values()),
                "ahead": list(self.glances.values()),
                "order": self.order,
                "earlier": self.total_seconds,
                "company": self.company + Counter(self._company_now()),
            }
            atomic_write(self.file, (json.dumps(content) + "\n").encode())

    def rewind(self, step: int) -> None:
        """Forget what was seen after a step: a run that goes on from there comes to it again."""
        for seen in (self.looks, self.glances):
            for later in [place for place in seen if place > step]:
                del seen[later]

    @property
    def seconds(self) -> float:
        """What the analyses took; the clock of training ran on."""
        return sum(float(seen["seconds"]) for seen in (*self.looks.values(), *self.glances.values()))


class Watcher:
    """Listens to a run: analyses its negatives when it is time, and passes everything on to another listener.

    It looks at the steps `looks`, if there are any, and at the last one.
    """

    def __init__(self, notes: Notes, looks: Sequence[int], inner: Listener) -> None:
        self.notes, self.looks, self.inner = notes, looks, inner
        self.analyst: Analyst | None = None

    def listener(self) -> Listener:
        """What to give to `eans.api.start` or `resume`."""
        inner = self.inner
        return Listener(self._start, inner.log, self._tick, inner.ranking, inner.stop)

    def _start(self, recipe: Recipe, graph: KnowledgeGraph, trainer: Trainer) -> None:
        self.notes.rewind(trainer.completed)
        if self.looks:
            self.analyst = Analyst(trainer, graph)
            if not trainer.completed:
                self._glance(self.analyst, 0)
                self.notes.glances[0]["seconds"] = 0.0  # the clock of training does not run yet
        self.inner.start(recipe, graph, trainer)

    def _tick(self, step: int) -> None:
        if self.analyst is not None:
            ends = (*self.looks, self.analyst.trainer.schedule.steps)
            if step % EVERY == 0 and any(end - SPAN <= step <= end for end in ends):
                self._glance(self.analyst, step)
            if step in ends:
                self._look(self.analyst, step)
        self.inner.tick(step)
        self.notes.save_now_and_then()

    def _glance(self, analyst: Analyst, step: int) -> None:
        began = when_done(analyst.trainer.device)
        glance: dict[str, Any] = {"step": step, **analyst.look_ahead(BATCHES), "seconds": 0.0}
        self.notes.glances[step] = glance
        self.notes.save()
        glance["seconds"] = round(time.perf_counter() - began, 3)

    def _look(self, analyst: Analyst, step: int) -> None:
        began = when_done(analyst.trainer.device)
        found = {**analyst.analyse(), "logged": self._logged(step)}
        if step == analyst.trainer.schedule.steps:
            self.notes.order = describe_order(analyst.trainer)
        self.notes.looks[step] = {**rounded(found), "seconds": round(time.perf_counter() - began, 3)}
        self.notes.save()

    def _logged(self, end: int) -> dict[str, float] | None:
        """What a log of the steps before `end` would show; None if a glance is missing, or there are no negatives.

        By the trapezoidal rule: a glance stands for the steps on both sides of it, at an end for those of one side.
        """
        start = max(0, end - SPAN)
        wanted = [step for step in range(start, end + 1) if step % EVERY == 0]
        near = [self.notes.glances[step] for step in wanted if step in self.notes.glances]
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
