"""How far a set of runs has come, and how long the rest takes: by estimates, and more and more by what is seen."""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import fmean

from eans.reproduction.records import RunSpec


class Forecast:
    """The work of all runs, done and left.

    Work is in estimated seconds, or in any other unit if that is not believed. A run without an estimate counts like
    the mean of the others. What was estimated is believed as much as so many seconds of watching: in the beginning it
    is all there is, later the speed that was seen decides.
    """

    def __init__(self, work: Mapping[RunSpec, float | None], belief: float) -> None:
        known = [value for value in work.values() if value is not None]
        usual = fmean(known) if known else 1.0
        self.work = {spec: usual if value is None else value for spec, value in work.items()}
        self.shares = dict.fromkeys(work, 0.0)
        self.first_steps: dict[RunSpec, int] = {}
        self.belief = belief if known else 0.0
        self.began = time.monotonic()

    def advance(self, spec: RunSpec, step: int, steps: int) -> None:
        """A run has come to a step; what it had done when it was first heard of was not estimated."""
        first = self.first_steps.setdefault(spec, step)
        self.shares[spec] = (step - first) / max(1, steps - first)

    def finish(self, spec: RunSpec) -> None:
        """A run was made here."""
        self.shares[spec] = 1.0

    def drop(self, spec: RunSpec) -> None:
        """A run will not be made here, or not to its end: what is left of it is no work any more."""
        self.work[spec] *= self.shares[spec]
        self.shares[spec] = 1.0

    @property
    def total(self) -> float:
        """All the work."""
        return sum(self.work.values())

    @property
    def done(self) -> float:
        """That part of it which is done."""
        return sum(self.work[spec] * share for spec, share in self.shares.items())

    def seconds_left(self) -> float | None:
        """Until all is done; None while there is nothing to tell it by."""
        done, elapsed = self.done, time.monotonic() - self.began
        if self.belief + done <= 0:
            return None
        return (self.total - done) * (self.belief + elapsed) / (self.belief + done)
