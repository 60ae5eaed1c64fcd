"""What a run says of itself: what is trained on what, the plan, where it is, how long the rest takes, how it ended."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any

from eans.graph import KnowledgeGraph
from eans.listener import Listener
from eans.phases import COMPILING
from eans.progress import FIRST, INTERVAL, Display, duration
from eans.recipes import Recipe
from eans.recipes.build import AUTO_PASSES, AUTO_STEPS, LARGEST_BATCH, passes_over_train, uncapped_steps
from eans.training import Trainer

REDRAW = 0.1  # seconds after which what is shown is brought up to date
TRAINING = "training"  # the task
SELF_ADVERSARIAL = " + self-adversarial"


@dataclass
class Mark:
    """From where on loss and speed are measured while there is no new log record.

    Attributes:
        step: the steps done by then.
        loss: the running sum of the losses there.
        time: of `time.monotonic`.
        timed: the steps done at `time`: more than `step` where the first ones took longer, because of what is compiled.
    """

    step: int
    loss: float
    time: float
    timed: int


class TrainingDisplay:
    """Shows a run while it trains: the plan, then a bar or lines with loss, valid MRR, speed and the time left.

    Args:
        inner: another listener, which is told the same.
        stream, interval: see `eans.progress.Display`.
    """

    def __init__(
        self, inner: Listener | None = None, stream: IO[str] | None = None, interval: float = INTERVAL
    ) -> None:
        self.inner = inner or Listener()
        self.display = Display(stream, interval, keep=(TRAINING,))
        self.display.mention(TRAINING)
        self.trainer: Trainer | None = None
        self.steps = 0
        self.mark = Mark(0, 0.0, 0.0, 0)
        self.loss: float | None = None
        self.speed: float | None = None
        self.valid = ""
        self.first_tick: float | None = None
        self.first_step = 0
        self.next_look = 0.0
        self.estimated = False

    def __enter__(self) -> TrainingDisplay:
        self.display.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.display.__exit__(kind, error, trace)

    def listener(self) -> Listener:
        """What to give to `eans.lifecycle.start` or `continue_run`."""
        return Listener(self._start, self._log, self._tick, self._ranking, self.inner.stop, self._phase)

    def _start(self, recipe: Recipe, graph: KnowledgeGraph, trainer: Trainer) -> None:
        self.trainer, self.steps = trainer, trainer.schedule.steps
        self.display.say(repr(graph))
        self.display.say(headline(recipe, trainer))
        for line in plan(recipe, graph):
            self.display.say(line)
        if trainer.completed:
            self.display.say(f"resuming at step {trainer.completed:,}")
        self._remember(trainer.completed)
        if trainer.completed < self.steps:
            self.display.advance(TRAINING, trainer.completed, self.steps, steps=True)
        if trainer.device.type == "cuda":  # where nobody says so
            self.display.phase(COMPILING)
        self.inner.start(recipe, graph, trainer)

    def _phase(self, name: str) -> None:
        self.display.phase(name)
        self.inner.phase(name)

    def _ranking(self, split: str, done: int, total: int) -> None:
        self.display.advance(f"ranking {split}", done, total)
        self.inner.ranking(split, done, total)

    def _log(self, record: dict[str, Any]) -> None:
        if "valid" in record:
            both = record["valid"]["both"]
            self.valid = f"valid MRR {both['mrr']:.4f}"
            self.display.say(f"step {record['step']:,}: {self.valid}, Hits@10 {both['hits@10']:.4f}")
            self._remember(record["step"])
        else:
            self.loss, self.speed = record["loss"], record["triples_per_second"]
            self.mark = Mark(record["step"], 0.0, time.monotonic(), record["step"])
        self.next_look = 0.0
        self.inner.log(record)

    def _tick(self, step: int) -> None:
        now = time.monotonic()
        if now >= self.next_look or step == self.steps:
            self._look(step, now)
        self.inner.tick(step)

    def _look(self, step: int, now: float) -> None:
        """Bring what is shown up to date; some ten times a second at most."""
        self.next_look = now + REDRAW
        measurable = self.first_tick is not None and step > self.mark.timed
        if measurable and now - self.mark.time >= FIRST * self.display.interval:
            self._measure(step, now)
        note = "  ".join(part for part in (self._loss(), self.valid, self._speed()) if part)
        last = step == self.steps
        if last and not self.display.live:
            self.display.say(f"step {step:,}/{self.steps:,}  {note}")
        self.display.advance(TRAINING, step, self.steps, note, steps=True)
        if last:
            return
        if self.first_tick is None:  # the first step compiles, and does what comes only now and then
            self.first_tick, self.first_step = now, step
            self.mark.time, self.mark.timed = now, step
            self.display.phase("")
            self.display.time_from_here(TRAINING)
        elif not self.estimated and now - self.first_tick >= FIRST * self.display.interval:
            self._estimate(step, now)

    def _estimate(self, step: int, now: float) -> None:
        """Say once how long the run takes, by the first steps."""
        self.estimated = True
        per_step = (now - (self.first_tick or now)) / (step - self.first_step)
        self.display.say(
            f"about {duration(per_step * (self.steps - step))} to go, at {self._batch / per_step:,.0f} triples/s"
        )

    @property
    def _batch(self) -> int:
        return self.trainer.stream.batch_size if self.trainer is not None else 0

    def _remember(self, step: int) -> None:
        loss = self.trainer.loss_since_record() if self.trainer is not None else 0.0
        self.mark = Mark(step, loss, time.monotonic(), step)

    def _measure(self, step: int, now: float) -> None:
        """Loss and speed since the last record, which was some time ago; a GPU is waited for."""
        if self.trainer is not None:
            self.loss = (self.trainer.loss_since_record() - self.mark.loss) / (step - self.mark.step)
            self.speed = (step - self.mark.timed) * self._batch / (now - self.mark.time)

    def _loss(self) -> str:
        return f"loss {self.loss:.4f}" if self.loss is not None else ""

    def _speed(self) -> str:
        return f"{self.speed:,.0f} triples/s" if self.speed is not None else ""


def headline(recipe: Recipe, trainer: Trainer) -> str:
    """Model, negatives, loss and the rest in a line."""
    model, sampler, loss = recipe.model, recipe.sampler, recipe.loss
    weights = sum(parameter.numel() for parameter in trainer.model.parameters())
    weighted = SELF_ADVERSARIAL if getattr(loss, "adversarial_temperature", 0.0) > 0 else ""
    return (
        f"{model.name} d={model.dim} ({weights:,} parameters), {sampler.name}{weighted} negatives"
        f" n={trainer.sampler.negatives}, {loss.name} loss, b={recipe.train.batch_size}, seed {recipe.train.seed},"
        f" {trainer.device}"
    )


def plan(recipe: Recipe, graph: KnowledgeGraph) -> list[str]:
    """How long training goes on, what that means for the graph, and what decides about its end."""
    section = recipe.train
    steps, batch = int(section.steps), int(section.batch_size)
    passes = f"{_number(passes_over_train(steps, batch, graph))} passes over train per side"
    wanted = uncapped_steps(graph, batch)
    if wanted > steps == AUTO_STEPS[1]:  # be it by auto or because somebody said so
        larger, keys = "", "train.steps"
        if batch == LARGEST_BATCH:
            larger, keys = f" and at batches of {batch:,}", "train.steps or train.batch_size"
        passes += (
            f"; auto is capped there{larger}, {AUTO_PASSES} passes would take {wanted:,} steps: set {keys} for more"
        )
    lines = [f"{steps:,} steps of {batch:,} triples ({passes})"]
    if section.valid_every:
        count = min(int(section.valid_triples) or len(graph.valid), len(graph.valid))
        kept = "best weights kept" if section.keep == "best" else "last weights kept"
        patience = f"stops early after {section.patience} without a better MRR" if section.patience else ""
        validated = f"validation every {section.valid_every:,} steps on {count:,} triples"
        lines.append(", ".join(part for part in (validated, kept, patience) if part))
    return lines


def _number(passes: float) -> str:
    return f"{passes:,.0f}" if passes >= 10 else f"{passes:.1f}" if passes >= 1 else f"{passes:.2g}"


def summary(recipe: Recipe, facts: dict[str, Any]) -> str:
    """How training ended: ``metrics["training"]`` of a run in words."""
    steps, planned = facts["steps"], int(recipe.train.steps)
    early = f" of {planned:,}" if steps < planned else ""
    line = f"trained {steps:,}{early} steps in {facts['seconds']:,.1f} s on {facts['device']}"
    if early:
        line += f"; stopped early: {recipe.train.patience} validations without a better MRR"
    kept = facts.get("kept_step")
    if kept is not None and kept < steps:
        line += f"; weights of step {kept:,}, the best valid MRR"
    return line
