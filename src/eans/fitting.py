"""Training from start to end: when to log, validate, save and stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eans.errors import Interrupted
from eans.listener import Listener
from eans.recipes import Recipe
from eans.stores import MemoryStore, Progress, RunStore
from eans.training import Trainer


@dataclass(frozen=True)
class Plan:
    """When to validate, save and stop, in steps; 0 means never.

    Attributes:
        log_every: between log records.
        valid_every: between validations.
        checkpoint_every: between checkpoints.
        patience: validations without a better MRR before training stops early.
        patience_from: the step up to which no validation counts for that.
        keep_best: keep the weights of a validation better than any before.
    """

    log_every: int = 100
    valid_every: int = 0
    checkpoint_every: int = 0
    patience: int = 0
    patience_from: int = 0
    keep_best: bool = False

    @classmethod
    def of(cls, recipe: Recipe) -> Plan:
        """That of a resolved recipe."""
        section = recipe.train
        waiting = int(int(section.steps) * float(section.patience_from))
        validations = int(section.valid_every), section.checkpoint_every, int(section.patience), waiting
        return cls(section.log_every, *validations, section.keep == "best")


def due(step: int, every: int) -> bool:
    """Is something that happens every so many steps due after this step?"""
    return every > 0 and step % every == 0


def fit(
    trainer: Trainer,
    plan: Plan,
    validate: Callable[[], dict[str, Any]] | None = None,
    progress: Progress | None = None,
    store: RunStore | None = None,
    listener: Listener | None = None,
) -> Progress:
    """Train to the end of the schedule, or until validation stops improving.

    Args:
        trainer: new, or with a loaded state.
        plan: cadence of everything but the steps.
        validate: returns ``{"both": {"mrr": ...}, ...}``.
        progress: of the interrupted run, when one is resumed.
        store: receives records and states; None keeps them in memory.
        listener: is told of records and steps, and may stop the run.

    Raises:
        Diverged: nothing is saved then; the last checkpoint, which was checked, is the last good state.
        Interrupted: when the listener said stop; the state is saved first.
    """
    progress = progress or Progress()
    store = store if store is not None else MemoryStore()
    listener = listener or Listener()

    def log(record: dict[str, Any]) -> None:
        store.append_log(record)
        listener.log(record)

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
            log(_record(trainer, progress, window))
            progress.logged, window = step, Window(step, progress.seconds)
        if validate is not None and (due(step, plan.valid_every) or (plan.valid_every and step == steps)):
            settle()
            with trainer.settled():
                metrics = validate()
                log({"step": step, "valid": metrics, "seconds": round(progress.seconds, 3)})
                if _is_best(metrics["both"]["mrr"], step, plan, progress) and plan.keep_best:
                    store.save_best(trainer.model)
            # Speed is that of training: what a validation takes is not part of the window.
            window.start += time.perf_counter() - clock - progress.seconds
        listener.tick(step)
        stopping = listener.stop()
        if due(step, plan.checkpoint_every) or stopping:
            settle()
            store.save_checkpoint(trainer, progress)
            saved_at = step
        if stopping:
            raise Interrupted(f"stopped at step {step} of {steps}")
    if saved_at != trainer.completed:
        settle()
        store.save_checkpoint(trainer, progress)
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


def _is_best(mrr: float, step: int, plan: Plan, progress: Progress) -> bool:
    """Is this validation better than all before? `progress` takes it in."""
    if mrr > progress.best_mrr:
        progress.best_mrr, progress.best_step, progress.stale = mrr, step, 0
        return True
    if step > plan.patience_from:
        progress.stale += 1
    return False
