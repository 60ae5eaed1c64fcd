"""One trial: a candidate trained for a given time on this device, and the valid MRR that it reaches."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from eans.costs import seconds_per_step
from eans.errors import RunError
from eans.graph import SIDES, KnowledgeGraph
from eans.lifecycle import Lifecycle
from eans.listener import Listener
from eans.recipes import Recipe
from eans.recipes.build import build_trainer, resolve
from eans.run import Run
from eans.stores import MemoryStore
from eans.training import Diverged
from eans.tuning.space import Candidate

# Of a trial's time: what its cost is measured in, and at most so many seconds; what is left for training when
# validations and the final ranking are done.
MEASURED, MOST_MEASURED, TRAINING = 0.03, 2.0, 0.8
MOST_PASSES = 500  # over train, for each side: by then a run has stopped early, or overfits
SMALLER_BELOW, LEAST_DIM = 8.0, 32  # a short trial with fewer passes has half the dimension, down to the least
PRUNED, LATE = "pruned", "stopped: the time is over"
Prune = Callable[[float, int], bool]
NEAR = 0.01  # an MRR of a sample of the valid triples may be so much below that of all
NO_MEMORY = ("not enough memory", "out of memory", "allocate memory")  # PyTorch's words, by device and system
VALIDATIONS = (6, 12, 20)  # in a trial, by rung


@dataclass(frozen=True)
class Cost:
    """What a recipe costs on this graph and device.

    Attributes:
        step: seconds.
        batch_size: positives in a step.
        triples: of train.
    """

    step: float
    batch_size: int
    triples: int

    @property
    def per_pass(self) -> float:
        """Seconds of a pass over train on both sides."""
        return self.step * len(SIDES) * math.ceil(self.triples / self.batch_size)

    def steps(self, seconds: float) -> int:
        """The steps of a trial that lasts so long."""
        most = MOST_PASSES * self.per_pass / self.step
        return max(1, round(min(TRAINING * seconds / self.step, most)))


def measure(recipe: Recipe, graph: KnowledgeGraph, device: torch.device, seconds: float) -> Cost:
    """The cost of a recipe, measured in its first steps for a small part of the time of a trial."""
    resolved = resolve(recipe, graph)
    trainer = build_trainer(resolved, graph, device)
    step = seconds_per_step(trainer, min(MEASURED * seconds, MOST_MEASURED))
    return Cost(step, int(resolved.train.batch_size), len(graph.train))


@dataclass(frozen=True)
class Outcome:
    """What came of a trial.

    Attributes:
        mrr: the best valid MRR, of the sample of valid triples that validations rank.
        steps, seconds: of training; `seconds` of everything, measuring and ranking included, is `took`.
        took: see there.
        dim: of the model, which is less than the candidate's where that is too slow to be tried.
        finish: ranks all valid triples, and gives the run; None where that is known not to be the best.
    """

    mrr: float
    steps: int
    seconds: float
    took: float
    dim: int
    finish: Callable[[], Run] | None

    def better_than(self, best: float) -> Run | None:
        """The run, if its valid MRR is above another one; what is far below is not worth ranking all valid triples."""
        if self.finish is None or self.mrr <= best - NEAR:
            return None
        run = self.finish()
        return run if valid_mrr(run) > best else None


def valid_mrr(run: Run) -> float:
    """That of a run, of all valid triples."""
    mrr: float = run.metrics["valid"]["both"]["mrr"]
    return mrr


class Pruned(RunError):
    """A trial that was stopped because it was worse than others at the same share of their time, or took too long."""


def run_trial(
    candidate: Candidate,
    graph: KnowledgeGraph,
    seconds: float,
    *,
    rung: int,
    seed: int,
    device: torch.device,
    listener: Listener,
    prune: Prune | None = None,
    known: tuple[int, float] | None = None,
    until: float = math.inf,
) -> Outcome:
    """Train a candidate with a schedule that is complete after so many seconds.

    Args:
        candidate: what to train.
        graph: on what; valid decides, test is not looked at.
        seconds: what the trial should take.
        rung: 0 for the first and shortest trials, in which a model may be smaller than the candidate's.
        seed: of the run.
        device: where.
        listener: callbacks; it may stop the trial.
        prune: told the MRR and the number of each validation; True ends the trial.
        known: dimension and seconds of a step of an earlier trial of the candidate, which need not be measured again.
        until: on the clock `time.monotonic`, which all processes share: training stops then, done or not.

    Raises:
        Pruned: as `prune` said, or training took too long.
        Interrupted: as the listener said.
        RunError: it diverged, or did not fit into memory.
    """
    began = time.perf_counter()
    source = graph.source or graph.name
    with affordable():
        recipe = candidate.recipe(source, seed=seed)
        cost = _cost(recipe, graph, device, seconds, known)
        while rung == 0 and TRAINING * seconds < SMALLER_BELOW * cost.per_pass and _halves(recipe):
            recipe = _with_dim(recipe, recipe.model.dim // 2)
            cost = measure(recipe, graph, device, seconds)
        steps = cost.steps(seconds)
        every = max(1, math.ceil(steps / VALIDATIONS[min(rung, len(VALIDATIONS) - 1)]))
        train = recipe.train.model_copy(update={"steps": steps, "valid_every": every})
        recipe = resolve(recipe.model_copy(update={"train": train}), graph)
        run = Lifecycle(
            recipe, graph, build_trainer(recipe, graph, device), MemoryStore(), _watched(listener, prune, until)
        )
        progress = run.train()
    took = time.perf_counter() - began
    dim, trained = recipe.model.dim, run.trainer.completed
    return Outcome(progress.best_mrr, trained, progress.seconds, took, dim, lambda: run.finish(progress, test=False))


def worded(reason: str) -> str:
    """The reason why a trial has no outcome, in the words of a report."""
    return reason if reason in (PRUNED, LATE) else f"failed: {reason}"


@contextmanager
def affordable() -> Iterator[None]:
    """What a trial may fail of, and the search goes on: as one line."""
    try:
        yield
    except Diverged as error:
        raise RunError("diverged") from error
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise RunError("not enough memory") from error
    except RuntimeError as error:
        if any(words in str(error) for words in NO_MEMORY):
            raise RunError("not enough memory") from error
        raise


def _cost(
    recipe: Recipe, graph: KnowledgeGraph, device: torch.device, seconds: float, known: tuple[int, float] | None
) -> Cost:
    if known is None or known[0] != recipe.model.dim:
        return measure(recipe, graph, device, seconds)
    return Cost(known[1], int(resolve(recipe, graph).train.batch_size), len(graph.train))


def _halves(recipe: Recipe) -> bool:
    return bool(recipe.model.dim // 2 >= LEAST_DIM)


def _with_dim(recipe: Recipe, dim: int) -> Recipe:
    return recipe.model_copy(update={"model": recipe.model.model_copy(update={"dim": dim})})


def _watched(listener: Listener, prune: Prune | None, until: float) -> Listener:
    """The listener, with a stop where `prune` or the time says so."""
    count = 0

    def log(record: dict[str, Any]) -> None:
        nonlocal count
        listener.log(record)
        if "valid" in record:
            count += 1
            if prune is not None and prune(record["valid"]["both"]["mrr"], count):
                raise Pruned(PRUNED)

    def tick(step: int) -> None:
        listener.tick(step)
        if time.monotonic() > until:
            raise Pruned(LATE)

    return Listener(listener.start, log, tick, listener.ranking, listener.stop, listener.phase)
