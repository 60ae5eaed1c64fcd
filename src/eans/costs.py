"""What training costs on this device: durations as they are typed, and seconds per step as measured."""

from __future__ import annotations

import math
import re
import time
from typing import TYPE_CHECKING

from eans.errors import UsageError

if TYPE_CHECKING:
    from eans.training import Trainer

__all__ = ["seconds_of", "seconds_per_step"]

WARM_UP = 10  # steps that compile, or are slow for other reasons
PARTS = 5  # of the steps that are measured
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds_of(budget: str | float) -> float:
    """``"90s"``, ``"10m"`` or ``"1.5h"`` in seconds; a number is seconds already."""
    matched = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*([smh]?)", str(budget).strip())
    seconds = float(matched[1]) * UNITS[matched[2] or "s"] if matched else 0.0
    if not 0 < seconds < math.inf:
        raise UsageError(f"'{budget}' is not a duration; write for example 90s, 10m or 1.5h")
    return seconds


def seconds_per_step(trainer: Trainer, measured: float) -> float:
    """What a step costs on average; the trainer is of no use afterwards.

    Most steps are measured for about `measured` seconds, without the first ones, which compile, and the fastest part
    counts: other programs make steps slow, and never fast. The one in which the sampler re-orders the entities is
    measured by itself, and counts as often as it comes.
    """
    _timed(trainer, WARM_UP)
    count, elapsed, usual, period = 5, 0.0, math.inf, trainer.sampler.period
    while elapsed < measured:
        took = _timed(trainer, count)
        elapsed, usual = elapsed + took, min(usual, took / count)
        count = max(5, round(measured / PARTS / usual))
    if not period:
        return usual
    trainer.completed = period * (trainer.completed // period + 1)  # what a step does depends on its number alone
    return usual + max(0.0, _timed(trainer, 1) - usual) / period


def _timed(trainer: Trainer, steps: int) -> float:
    began = time.perf_counter()
    for _ in range(steps):
        trainer.step()
    trainer.check()  # waits for the device
    return time.perf_counter() - began
