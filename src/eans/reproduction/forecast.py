"""How far a set of runs has come, and how long the rest takes: by estimates, and more and more by what is seen."""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import fmean

from eans.reproduction.records import RunSpec

# What has to be seen of the work, or for how many seconds, before its speed says anything about the rest.
ENOUGH_SHARE, ENOUGH_SECONDS = 0.05, 10.0


class Pace:
    """The speed of some work since its first step; what came before that step, such as starting a process, is none."""

    def __init__(self) -> None:
        self.began: float | None = None
        self.before = self.done = 0.0

    def see(self, done: float) -> None:
        """So much is done by now."""
        if self.began is None and done > 0:
            self.began, self.before = time.monotonic(), done
        self.done = done

    def seconds_left(self, total: float, belief: float = 0.0) -> float | None:
        """Until all is done; None while too little was seen to tell.

        Args:
            total: all the work.
            belief: so many seconds of watching would say as much as the work itself, which is then in seconds.
        """
        elapsed = 0.0 if self.began is None else time.monotonic() - self.began
        seen = self.done - self.before
        if not belief and (seen <= 0 or (seen < ENOUGH_SHARE * total and elapsed < ENOUGH_SECONDS)):
            return None
        return (total - self.done) * (belief + elapsed) / (belief + seen)


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
        self.pace, self.paces = Pace(), {spec: Pace() for spec in work}

    def advance(self, spec: RunSpec, step: int, steps: int) -> None:
        """A run has come to a step; what it had done when it was first heard of was not estimated."""
        first = self.first_steps.setdefault(spec, step)
        self._set_share(spec, (step - first) / max(1, steps - first))

    def finish(self, spec: RunSpec) -> None:
        """A run was made here."""
        self._set_share(spec, 1.0)

    def drop(self, spec: RunSpec) -> None:
        """A run will not be made here, or not to its end: what is left of it is no work any more."""
        self.work[spec] *= self.shares[spec]
        self._set_share(spec, 1.0)

    def _set_share(self, spec: RunSpec, share: float) -> None:
        self.shares[spec] = share
        self.paces[spec].see(share)
        self.pace.see(self.done)

    @property
    def total(self) -> float:
        """All the work."""
        return sum(self.work.values())

    @property
    def done(self) -> float:
        """That part of it which is done."""
        return sum(self.work[spec] * share for spec, share in self.shares.items())

    def seconds_left(self) -> float | None:
        """Until all is done, or the slowest of those that train; None while there is nothing to tell it by."""
        left = self.pace.seconds_left(self.total, self.belief)
        if left is None:
            return None
        training = [self.seconds_left_of(spec) or 0.0 for spec, share in self.shares.items() if share < 1]
        return max([left, *training])  # with one of several at a time left, the speed of all is not that of the rest

    def seconds_left_of(self, spec: RunSpec) -> float | None:
        """Until a run is trained, by its own speed, which those beside it take part in; None if that is not known."""
        return self.paces[spec].seconds_left(1.0)
