"""Training from start to end: when to log, validate, save and stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from eans.errors import Interrupted
from eans.training import Trainer


@dataclass(frozen=True)
class Plan:
    """When to look, save and stop, in steps; 0 means never.

    Attributes:
        log_every: between log records.
        valid_every: between validations.
        checkpoint_every: between checkpoints.
        patience: validations without a better MRR before training stops early.
    """

    log_every: int = 100
    valid_every: int = 0
    checkpoint_every: int = 0
    patience: int = 0


@dataclass
class Progress:
    """Where a fit stands besides the trainer's own state; it is part of the checkpoint.

    Attributes:
        seconds: since the start, validations and checkpoints included; pauses between interruption and resumption not.
        best_mrr, best_step: the best validation so far.
        stale: validations since then.
        logged: the step of the last log record.
    """

    seconds: float = 0.0
    best_mrr: float = -1.0
    best_step: int = 0
    stale: int = 0
    logged: int = 0


@dataclass
class Observer:
    """What `fit` tells the outside world and asks of it; every part is optional.

    Attributes:
        log: receives each log record.
        checkpoint: saves trainer and progress.
        best: saves the weights after a validation better than any before.
        tick: called after every step.
        stop: asked after every step; True saves and ends the fit with `Interrupted`.
    """

    log: Callable[[dict[str, Any]], None] = field(default=lambda _: None)
    checkpoint: Callable[[Trainer, Progress], None] = field(default=lambda _trainer, _progress: None)
    best: Callable[[Trainer], None] = field(default=lambda _: None)
    tick: Callable[[Trainer], None] = field(default=lambda _: None)
    stop: Callable[[], bool] = field(default=lambda: False)


def due(step: int, every: int) -> bool:
    """Is something that happens every so many steps due after this step?"""
    return every > 0 and step % every == 0


def fit(
    trainer: Trainer,
    plan: Plan,
    validate: Callable[[], dict[str, Any]] | None = None,
    progress: Progress | None = None,
    observer: Observer | None = None,
) -> Progress:
    """Train to the end of the schedule, or until validation stops improving.

    Args:
        trainer: new, or with a loaded state.
        plan: cadence of everything but the steps.
        validate: returns ``{"both": {"mrr": ...}, ...}``.
        progress: of the interrupted run, when one is resumed.
        observer: receives records and states.

    Raises:
        Diverged: nothing is saved then; the last checkpoint, which was checked, is the last good state.
        Interrupted: when the observer said stop; the state is saved first.
    """
    progress = progress or Progress()
    observer = observer or Observer()
    steps = trainer.schedule.steps
    clock = time.perf_counter() - progress.seconds
    window = Window(trainer.completed, progress.seconds)
    saved_at = trainer.completed

    def settle() -> None:
        """Nothing is logged, validated or saved before this."""
        trainer.check()
        progress.seconds = time.perf_counter() - clock

    while trainer.completed < steps and not (plan.patience and progress.stale >= plan.patience):
        trainer.step()
        step = trainer.completed
        if due(step, plan.log_every) or step == steps:
            settle()
            observer.log(_record(trainer, progress, window))
            progress.logged, window = step, Window(step, progress.seconds)
        if validate is not None and (due(step, plan.valid_every) or (plan.valid_every and step == steps)):
            settle()
            _validate(trainer, validate, progress, observer)
            # Speed is that of training: what a validation takes is not part of the window.
            window.start += time.perf_counter() - clock - progress.seconds
        observer.tick(trainer)
        stopping = observer.stop()
        if due(step, plan.checkpoint_every) or stopping:
            settle()
            observer.checkpoint(trainer, progress)
            saved_at = step
        if stopping:
            raise Interrupted(f"stopped at step {step} of {steps}")
    if saved_at != trainer.completed:
        settle()
        observer.checkpoint(trainer, progress)
    return progress


@dataclass
class Window:
    """The steps between two log records, as far as this process did them."""

    first: int
    start: float


def _record(trainer: Trainer, progress: Progress, window: Window) -> dict[str, Any]:
    step = trainer.completed
    seconds = max(progress.seconds - window.start, 1e-9)
    return {
        "step": step,
        **trainer.take_means(step - progress.logged),
        "lr": trainer.schedule.rate(step - 1),
        "seconds": round(progress.seconds, 3),
        "triples_per_second": round((step - window.first) * trainer.stream.batch_size / seconds, 1),
    }


def _validate(trainer: Trainer, validate: Callable[[], dict[str, Any]], progress: Progress, observer: Observer) -> None:
    metrics = validate()
    observer.log({"step": trainer.completed, "valid": metrics, "seconds": round(progress.seconds, 3)})
    if metrics["both"]["mrr"] > progress.best_mrr:
        progress.best_mrr, progress.best_step, progress.stale = metrics["both"]["mrr"], trainer.completed, 0
        observer.best(trainer)
    else:
        progress.stale += 1
