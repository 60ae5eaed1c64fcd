"""The loop of a search: many short trials, the best anew for longer, the best of these for the longest."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import torch

from eans.errors import EansError, Interrupted, RunError
from eans.graph import KnowledgeGraph
from eans.listener import Listener
from eans.phases import phase
from eans.progress import Display, duration
from eans.run import Run
from eans.tuning.plan import FACTORS, SHARES, TRIALS, Plan
from eans.tuning.space import Candidate
from eans.tuning.study import Entry, Study
from eans.tuning.trial import Outcome, Prune, Pruned, run_trial

BEST = "best"  # the folder of the best run so far
FITS = 0.8  # a trial is begun if so much of its time is left


class Search:
    """A search that can go on where it was interrupted.

    Args:
        graph: to train on.
        study: its trials so far.
        plan: how its time is spent.
        budget: seconds in all.
        seeds: how often the winner is trained; for all but the first time is reserved.
        device: where.
        folder: for the best run so far.
        listener: callbacks of the runs.
        display: shows how far it is.
        began: on the clock `time.monotonic`.

    Attributes:
        interrupted: it was asked to stop.
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        study: Study,
        plan: Plan,
        budget: float,
        seeds: int,
        device: torch.device,
        folder: Path,
        listener: Listener,
        display: Display | None,
        began: float,
    ) -> None:
        self.graph, self.study, self.plan, self.device = graph, study, plan, device
        self.budget = budget * TRIALS / (TRIALS + FACTORS[-1] * (seeds - 1))
        self.listener, self.display, self.folder = listener, display, folder / BEST
        self.interrupted = False
        self._earlier = sum(entry.took for entry in study.entries())
        self._began = began
        self._best: Run | None = Run.load(self.folder, str(device)) if self.folder.is_dir() else None
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
            if not self.study.entries():  # one trial there is, however long measuring took
                self._explore()
            while self.left > FITS * self.plan.seconds[0]:
                self._bracket()
        except (Interrupted, KeyboardInterrupt):
            self.interrupted = True
            self._say("stopped: the best run so far is kept")
        if self._best is None:
            reasons = [str(entry.facts.get("reason", "")) for entry in self.study.entries()]
            raise RunError(
                f"no trial has ended{f' well: {reasons[0]}' if reasons else ''}; give it more time"
            ) from None
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

    def _bracket(self) -> None:
        """Rung 0 for a share of the time that is left, then rung 1, then rung 2."""
        start, left = self.used, self.left
        while self.used < start + SHARES[0] * left and self.left > FITS * self.plan.seconds[0]:
            self._explore()
        self._save()
        began = {rung: len(self.study.entries(rung)) for rung in (1, 2)}
        while self.used < start + SHARES[1] * left and self._promote(1):
            pass
        # Two, or until the time is over: where all of them stop early, the rest is better spent on other candidates.
        while len(self.study.entries(2)) < began[2] + 2 and self._promote(2):
            pass

    def _explore(self) -> None:
        """A candidate that Optuna proposes, in rung 0."""
        trial, candidate = self.study.ask()

        def prune(mrr: float, validation: int) -> bool:
            trial.report(mrr, validation)
            return trial.should_prune()

        began = time.monotonic()
        outcome, reason = self._tried(trial.number, candidate, 0, self.plan.seconds[0], prune)
        self.study.told(trial, outcome, time.monotonic() - began, reason)

    def _promote(self, rung: int) -> bool:
        """Try the best candidate of the rung below that this one lacks; False if there is none, or no time."""
        seconds = self.plan.seconds[rung]
        tried = self.study.entries(rung)
        below = self.study.best(rung - 1, tuple(entry.number for entry in tried))
        if not below or self.left < FITS * seconds * (1 if tried else 0.3):
            return False
        entry = _next(below, tried)
        began = time.monotonic()
        known = entry.facts["dim"], entry.facts["seconds"] / entry.facts["steps"]
        outcome, reason = self._tried(entry.number, entry.candidate, rung, min(seconds, self.left), known=known)
        self.study.add(rung, entry, outcome, time.monotonic() - began, reason)
        return True

    def _tried(
        self,
        number: int,
        candidate: Candidate,
        rung: int,
        seconds: float,
        prune: Prune | None = None,
        known: tuple[int, float] | None = None,
    ) -> tuple[Outcome | None, str]:
        """Run a trial; what came out, or why nothing did."""
        shown = self._shown(f"trial {number}, {candidate.method}")
        try:
            outcome = run_trial(
                candidate, self.graph, seconds, rung=rung, seed=self.plan.seed, device=self.device, listener=shown,
                prune=prune, known=known,
            )  # fmt: skip
        except Interrupted:
            raise
        except Pruned as error:
            self._say(self._line(number, candidate, rung, str(error)))
            return None, str(error)
        except EansError as error:
            self._say(self._line(number, candidate, rung, f"failed: {error}"))
            return None, str(error)
        mark = self._keep(outcome)
        result = f"{outcome.mrr:.4f}{mark:<1}  {duration(outcome.took):>6}"
        self._say(self._line(number, candidate, rung, result))
        return outcome, ""

    def _keep(self, outcome: Outcome) -> str:
        """Keep the run of an outcome if it is the best so far; a star if so."""
        if self._best is not None and outcome.mrr <= self._mrr_of(self._best) - 0.01:
            return ""  # of a sample, which is not worth ranking all valid triples
        with phase("ranking valid"):
            run = outcome.finish()
        if self._best is not None and self._mrr_of(run) <= self._mrr_of(self._best):
            return ""
        self._best, self._saved = run, False
        if self.study.entries(1):
            self._save()
        return "*"

    @staticmethod
    def _mrr_of(run: Run) -> float:
        mrr: float = run.metrics["valid"]["both"]["mrr"]
        return mrr

    def _save(self) -> None:
        """Write the best run so far, unless it is written."""
        if self._best is not None and not self._saved:
            shutil.rmtree(self.folder, ignore_errors=True)
            self._best.save(self.folder)
            self._saved = True

    def _line(self, number: int, candidate: Candidate, rung: int, result: str) -> str:
        clock = f"{int(self.used) // 60}:{int(self.used) % 60:02d}"
        return f"{clock:>6}  {number:>5}  {rung:>4}  {candidate.method:<16}  {result:<15}  {candidate.text()}"

    def _say(self, line: str) -> None:
        if self.display is not None:
            self.display.say(line)

    def _shown(self, name: str) -> Listener:
        """The listener of a trial: tells the display how far the search is."""
        total = round(self.budget)
        best = (
            f"best valid MRR {self._mrr_of(self._best):.4f} ({self._best.recipe.name.removeprefix('default/')})"
            if self._best
            else ""
        )

        def tick(step: int) -> None:
            self.listener.tick(step)
            if self.display is not None:
                note = "; ".join(part for part in (best, name) if part)
                self.display.advance("search", min(round(self.used), total - 1), total, note)

        listener = self.listener
        return Listener(listener.start, listener.log, tick, listener.ranking, listener.stop, listener.phase)


def _next(below: list[Entry], tried: list[Entry]) -> Entry:
    """The best; but the second is of another method than the first, as short trials do not tell all about methods."""
    if len(tried) == 1:
        others = [entry for entry in below if entry.candidate.method != tried[0].candidate.method]
        return (others or below)[0]
    return below[0]
