"""The loop of a search: many short trials, the best anew for longer, the best of these for the longest."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eans.errors import Interrupted, RunError
from eans.phases import phase
from eans.progress import Display, duration
from eans.run import Run
from eans.tuning.jobs import Ended, Job, Trial
from eans.tuning.places import Place, Watcher, done
from eans.tuning.plan import FACTORS, SHARES, TRIALS, Plan
from eans.tuning.study import Entry, Study
from eans.tuning.trial import Outcome, valid_mrr, worded

if TYPE_CHECKING:
    import optuna

BEST = "best"  # the folder of the best run so far
FITS = 0.8  # a trial is begun if so much of its time is left


@dataclass
class Running:
    """A trial that is under way.

    Attributes:
        began: on the clock `time.monotonic`.
        asked: Optuna's trial, in rung 0.
        entry: the trial of rung 0 that is repeated, in higher rungs.
        share: of its steps that are done.
    """

    began: float
    asked: optuna.Trial | None = None
    entry: Entry | None = None
    share: float = 0.0


class Search(Watcher):
    """A search that can go on where it was interrupted.

    Args:
        place: where trials are run, and how many at a time.
        study: its trials so far.
        plan: how its time is spent.
        budget: seconds in all.
        seeds: how often the winner is trained; for all but the first time is reserved.
        device: for the best run.
        folder: for the best run so far.
        display: shows how far it is.
        began: on the clock `time.monotonic`.

    Attributes:
        interrupted: it was asked to stop.
    """

    def __init__(
        self,
        place: Place,
        study: Study,
        plan: Plan,
        budget: float,
        seeds: int,
        device: str,
        folder: Path,
        display: Display | None,
        began: float,
    ) -> None:
        self.place, self.study, self.plan = place, study, plan
        self.budget = budget * TRIALS / (TRIALS + FACTORS[-1] * (seeds - 1))
        self.display, self.folder = display, folder / BEST
        self.interrupted = False
        self._earlier = study.used
        self._began = began
        self._running: dict[Job, Running] = {}
        self._best: Run | None = None
        if self.folder.is_dir():
            self._best_is(Run.load(self.folder, device))
        self._saved = self._best is not None

    @property
    def used(self) -> float:
        """Seconds, those of an interrupted search included."""
        return self._earlier + time.monotonic() - self._began

    @property
    def left(self) -> float:
        """Seconds."""
        return self.budget - self.used

    def run(self) -> Run:
        """Search until the time is over or somebody asks to stop; return the best run."""
        for line in self._announcement():
            self._say(line)
        try:
            for job, ended in done(self.place, self._trials(), self):
                self._take(job, ended)
        except (Interrupted, KeyboardInterrupt):
            self.interrupted = True
            if self._best is not None:
                self._say("stopped: the best run so far is kept")
        if self._best is None and self.interrupted:
            raise Interrupted("stopped before a trial has ended; the same call goes on") from None
        if self._best is None:
            reasons = [str(entry.facts.get("reason", "")) for entry in self.study.entries()]
            raise RunError(f"no trial has ended{f' well: {reasons[0]}' if reasons else ''}; give it more time")
        return self._best

    def _announcement(self) -> list[str]:
        """What is tried, for how long, and what is not."""
        first, second, third = (duration(seconds) for seconds in self.plan.seconds)
        lines = [
            f"searching {len(self.plan.step_seconds)} methods for {duration(self.left)} by valid MRR: trials of"
            f" {first}, the best again for {second}, the best of these for {third}"
        ]
        lines += [f"not tried: {method}: {reason}" for method, reason in self.plan.left_out.items()]
        if earlier := self.study.entries():
            lines.append(f"going on after {len(earlier)} trials and {duration(self._earlier)}")
        return [*lines, f"{'time':>6}  trial  rung  {'method':<16}  {'MRR':<7}  {'took':>6}  values (* best so far)"]

    def _trials(self) -> Iterator[Trial | None]:
        """What to try, each decided when there is room for it; None: something under way has to end first."""
        if not self.study.entries():  # one trial there is, however long measuring took
            yield self._proposed()
        while self.left > FITS * self.plan.seconds[0]:
            yield from self._bracket()

    def _bracket(self) -> Iterator[Trial | None]:
        """Rung 0 for a share of the time that is left, then rung 1, then rung 2."""
        start, left = self.used, self.left
        while self.used < start + SHARES[0] * left and self.left > FITS * self.plan.seconds[0]:
            yield self._proposed()
        self._save()
        yield from self._repeated(1, lambda: self.used < start + SHARES[1] * left)
        # Two, or until the time is over: where all of them stop early, the rest is better spent on other candidates.
        enough = len(self._tried(2)) + 2
        yield from self._repeated(2, lambda: len(self._tried(2)) < enough)

    def _proposed(self) -> Trial:
        """A candidate that Optuna proposes, in rung 0."""
        asked, candidate = self.study.ask()
        return self._begun(Trial(asked.number, candidate, 0, self.plan.seconds[0], self._until), asked=asked)

    def _repeated(self, rung: int, wanted: Callable[[], bool]) -> Iterator[Trial | None]:
        """The best candidates of the rung below that this one lacks, as long as there are some, and time for them."""
        while wanted():
            seconds, tried = self.plan.seconds[rung], self._tried(rung)
            below = self.study.best(rung - 1, tuple(entry.number for entry in tried))
            if self.left < FITS * seconds * (1 if tried else 0.3):
                return
            if below:
                yield self._repetition(rung, _next(below, tried), min(seconds, self.left))
            elif any(isinstance(job, Trial) and job.rung == rung - 1 for job in self._running):
                yield None
            else:
                return

    def _repetition(self, rung: int, entry: Entry, seconds: float) -> Trial:
        """A candidate of a lower rung once more; what its steps took is known, if as many trials shared the machine."""
        facts = entry.facts
        known = facts["dim"], facts["seconds"] / facts["steps"]
        shared = facts.get("workers", 1) == self.place.slots
        trial = Trial(entry.number, entry.candidate, rung, seconds, self._until, known if shared else None)
        return self._begun(trial, entry=entry)

    def _tried(self, rung: int) -> list[Entry]:
        """The trials of a higher rung, those under way included, as entries of what they repeat."""
        running = [
            one.entry for job, one in self._running.items() if one.entry and isinstance(job, Trial) and job.rung == rung
        ]
        return [*self.study.entries(rung), *running]

    @property
    def _until(self) -> float:
        """When a trial has to end: with the time of the search, but for the first, which may be the only one."""
        first = self._best is None and not self._running
        return math.inf if first else self._began + self.budget - self._earlier

    def _begun(self, trial: Trial, asked: optuna.Trial | None = None, entry: Entry | None = None) -> Trial:
        self._running[trial] = Running(time.monotonic(), asked, entry)
        return trial

    def prune(self, job: Job, mrr: float, number: int) -> bool:
        """What Optuna says to a validation in rung 0."""
        asked = self._running[job].asked
        assert asked is not None
        asked.report(mrr, number)
        return asked.should_prune()

    def _take(self, job: Job, ended: Ended) -> None:
        """Note how a trial ended, and keep its run if it is the best."""
        assert isinstance(job, Trial)
        outcome, result = ended.outcome, worded(ended.reason)
        if outcome is not None:
            mark = self._keep(outcome)
            result = f"{outcome.mrr:.4f}{mark:<1}  {duration(outcome.took):>6}"
        self._say(self._line(job, result))
        running = self._running.pop(job)
        took = time.monotonic() - running.began
        facts = {"used": round(self.used, 3), "workers": self.place.slots}
        if running.asked is not None:
            self.study.told(running.asked, outcome, took, ended.reason, **facts)
        elif running.entry is not None:
            self.study.add(job.rung, running.entry, outcome, took, ended.reason, **facts)

    def _keep(self, outcome: Outcome) -> str:
        """Keep the run of an outcome if it is the best so far; a star if so."""
        with phase("ranking valid"):
            run = outcome.better_than(valid_mrr(self._best) if self._best is not None else -1.0)
        if run is None:
            return ""
        self._best_is(run)
        self._saved = False
        if self.study.entries(1):
            self._save()
        return "*"

    def _best_is(self, run: Run) -> None:
        self._best = run
        self.place.best_is(valid_mrr(run))

    def _save(self) -> None:
        """Write the best run so far, unless it is written."""
        if self._best is not None and not self._saved:
            shutil.rmtree(self.folder, ignore_errors=True)
            self._best.save(self.folder)
            self._saved = True

    def _line(self, trial: Trial, result: str) -> str:
        clock, candidate = f"{int(self.used) // 60}:{int(self.used) % 60:02d}", trial.candidate
        return (
            f"{clock:>6}  {trial.number:>5}  {trial.rung:>4}  {candidate.method:<16}  {result:<15}  {candidate.text()}"
        )

    def _say(self, line: str) -> None:
        if self.display is not None:
            self.display.say(line)

    def stepped(self, job: Job, share: float) -> None:
        """Show how far the search is, and all trials that are under way."""
        self._running[job].share = share
        if self.display is None:
            return
        total, parts = round(self.budget), list[str]()
        if self._best is not None:
            method = self._best.recipe.name.removeprefix("default/")
            parts.append(f"best valid MRR {valid_mrr(self._best):.4f} ({method})")
        for trial, running in self._running.items():
            if isinstance(trial, Trial):
                parts.append(f"trial {trial.number}, {trial.candidate.method} {running.share:.0%}")
        self.display.advance("search", max(0, min(round(self.used), total - 1)), total, "; ".join(parts))


def _next(below: list[Entry], tried: list[Entry]) -> Entry:
    """The best; but the second is of another method than the first, as short trials do not tell all about methods."""
    if len(tried) == 1:
        others = [entry for entry in below if entry.candidate.method != tried[0].candidate.method]
        return (others or below)[0]
    return below[0]
