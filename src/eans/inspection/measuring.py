"""Measuring a sampler while a model trains: how hard, how false, how varied and how expensive its negatives are.

A measurement draws negatives for a fixed probe of training triples, on both sides, and scores them. It uses random
numbers of its own, the same in every measurement: the results change with the model and the sampler alone, and training
is not affected.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from eans import kernels
from eans.arguments import whole
from eans.batches import Purpose, mix
from eans.devices import choose_device
from eans.fitting import due
from eans.graph import SIDES, KnowledgeGraph, TripleIndex, column
from eans.inspection.records import Inspection, Measurement
from eans.objective import total
from eans.phases import phase
from eans.progress import Told, of_one, one_of, shown
from eans.recipes import Recipe
from eans.recipes.build import build_trainer
from eans.recipes.choosing import choose_recipe
from eans.runs import RunFolder
from eans.training import Trainer
from eans.types import Side

PROBE = 2048  # triples
MEASUREMENTS = 10  # during training, unless `every` is given
IDLE = 0.01  # of the mean gradient that is possible
WARM_UP = 8  # steps that no clock counts: kernels compile, a GPU records
CLOCKED = 50  # steps after a finished run, unless that takes longer than
PATIENCE = 5.0  # seconds
DRAWINGS = 7  # timed drawings of negatives; their median counts


class Inspector:
    """Measures a trainer's sampler on a probe of training triples.

    Args:
        trainer: is only read.
        graph: the graph it trains on.
        probe: how many training triples; all if there are fewer.
    """

    def __init__(self, trainer: Trainer, graph: KnowledgeGraph, probe: int = PROBE) -> None:
        probe = whole("probe", probe, least=1)
        self.trainer = trainer
        self.generator = torch.Generator(trainer.device)
        # The same probe whatever the seed of training, so that runs are comparable.
        chosen = torch.randperm(len(graph.train), generator=torch.Generator().manual_seed(mix(0, Purpose.INSPECT, 0)))
        self.triples = graph.train[chosen[:probe]].to(trainer.device)
        self.known = graph.known_train.to(trainer.device)
        unused = torch.cat([graph.valid, graph.test])
        self.unused: TripleIndex | None = None
        if len(unused):
            self.unused = TripleIndex(unused, graph.num_entities, graph.num_relations).to(trainer.device)

    def measure(self, step_ms: float | None = None) -> Measurement:
        """Draw, score and count. Batches are as large as in training."""
        with self.trainer.settled():
            return self._measure(step_ms)

    def _measure(self, step_ms: float | None) -> Measurement:
        counts: dict[str, float] = dict.fromkeys(("draws", "open", "gap", "above", "idle"), 0.0)
        counts |= dict.fromkeys(("known", "held_out", "repeats"), 0.0)
        drawn = torch.zeros(self.trainer.model.num_entities, dtype=torch.int64, device=self.trainer.device)
        for number, side in enumerate(SIDES):
            self.generator.manual_seed(mix(0, Purpose.INSPECT, 1 + number))
            for triples in torch.split(self.triples, self.trainer.stream.batch_size):
                self._count(triples, side, counts, drawn)
        draws, unmasked = counts["draws"], counts["open"]

        def share(name: str, of: float = draws) -> float | None:
            return counts[name] / of if of else None

        return Measurement(
            step=self.trainer.completed,
            gap=share("gap", unmasked),
            above=share("above", unmasked),
            idle=share("idle", unmasked) if self.trainer.loss.gradient_bound is not None else None,
            masked=1.0 - unmasked / draws if draws else None,
            known=share("known"),
            held_out=share("held_out") if self.unused is not None else None,
            entities=float((drawn > 0).double().mean()) if draws else None,
            effective=_effective(drawn) if draws else None,
            repeats=share("repeats"),
            sampling_ms=self._sampling_ms(),
            step_ms=step_ms,
            memory=self.trainer.sampler.memory(),
        )

    @torch.no_grad()
    def _count(self, triples: Tensor, side: Side, counts: dict[str, float], drawn: Tensor) -> None:
        """Add the draws for triples ``[B, 3]`` to the counts, and to `drawn` ``[E]`` how often each entity came."""
        loss, sampler = self.trainer.loss, self.trainer.sampler
        negatives = sampler.sample(triples, side, self.generator)
        entities, masked, *_ = negatives
        if not entities.numel():
            return
        scores = self.trainer.scores(triples, side, negatives)
        proposal = sampler.log_proposal(triples, side, entities) if loss.needs_proposal else None
        negative = scores.negative.detach().requires_grad_()
        with torch.enable_grad():
            weight = torch.ones_like(scores.positive)
            terms = loss(scores._replace(negative=negative), masked, weight, proposal)
            (gradient,) = torch.autograd.grad(total(terms), negative)
        # The rows share a weight of one, so B times the gradient is that of a row by itself.
        idle = gradient.abs() * entities.numel() < IDLE * (loss.gradient_bound or 0.0)
        unmasked = ~masked
        difference = scores.negative - scores.positive[:, None]
        # The positive drawn as its own negative is not above itself, whatever two kernels round to.
        other = entities != triples[:, column(side), None]
        known = self.known.contains_candidates(triples, side, entities)
        found: dict[str, float | Tensor] = {
            "draws": entities.numel(),
            "open": unmasked.sum(),
            "gap": torch.where(unmasked, difference, 0.0).double().sum(),
            "above": ((difference > 0) & other & unmasked).sum(),
            "idle": (idle & unmasked).sum(),
            "known": known.sum(),
            "repeats": kernels.repeats(entities).sum(),
        }
        if self.unused is not None:
            found["held_out"] = (self.unused.contains_candidates(triples, side, entities) & ~known).sum()
        for name, value in found.items():
            counts[name] += float(value)
        drawn += torch.bincount(entities.reshape(-1), minlength=len(drawn))

    @torch.no_grad()
    def _sampling_ms(self) -> float:
        """Median milliseconds to draw and label the negatives of one training batch."""
        size = self.trainer.stream.batch_size
        batch = self.triples[torch.arange(size, device=self.triples.device) % len(self.triples)]
        self.generator.manual_seed(mix(0, Purpose.INSPECT, 0))
        found = []
        for number in range(DRAWINGS):
            began = _now(self.trainer.device)
            self.trainer.sampler.sample(batch, SIDES[number % 2], self.generator)
            found.append(1e3 * (_now(self.trainer.device) - began))
        return statistics.median(found)


def _effective(drawn: Tensor) -> float:
    """``exp(entropy) / E`` of how often each entity was drawn ``[E]``."""
    shares = drawn.double() / drawn.sum()
    return float(torch.special.entr(shares).sum().exp() / len(drawn))


def _now(device: torch.device) -> float:
    """Seconds, once the device has nothing left to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def inspect_training(
    recipe: Recipe,
    graph: KnowledgeGraph,
    *,
    limit: int | None = None,
    every: int | None = None,
    probe: int = PROBE,
    device: str = "auto",
    progress: bool | Told = True,
) -> Inspection:
    """Train a resolved recipe and measure its sampler before the first step, during training and at the end.

    Args:
        recipe, graph: what to train on what; validations, checkpoints and the final ranking are left out.
        limit: stop after so many steps of the recipe's, whose rates stay as they are; None for all.
        every: steps between two measurements; None for ten measurements.
        probe: how many training triples to draw negatives for.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        progress: True: a bar on a terminal or in a notebook, otherwise a line now and then on standard error; False:
            nothing; or what to call with (steps done, steps in all).
    """
    limit = whole("limit", limit, least=1) if limit is not None else None
    every = whole("every", every, least=1) if every is not None else None
    with shown(of_one(progress)) as report:
        trainer = build_trainer(recipe, graph, choose_device(device))
        return _inspect(recipe, graph, trainer, limit, every, probe, one_of(report, recipe.name))


def _inspect(
    recipe: Recipe,
    graph: KnowledgeGraph,
    trainer: Trainer,
    limit: int | None,
    every: int | None,
    probe: int,
    told: Told | None,
) -> Inspection:
    last = min(limit or trainer.schedule.steps, trainer.schedule.steps)
    every = every or max(1, last // MEASUREMENTS)
    inspector = Inspector(trainer, graph, probe)
    with phase("inspecting"):
        measurements = [inspector.measure()]
    since, began = 0, _now(trainer.device)
    while trainer.completed < last:
        trainer.step()
        if told is not None:
            told(trainer.completed, last)
        if due(trainer.completed, every) or trainer.completed == last:
            ms = 1e3 * (_now(trainer.device) - began) / (trainer.completed - since)
            trainer.check()
            with phase("inspecting"):
                measurements.append(inspector.measure(ms))
            since, began = trainer.completed, _now(trainer.device)
        elif trainer.completed == WARM_UP:
            since, began = WARM_UP, _now(trainer.device)
    probed = len(inspector.triples)
    return Inspection(recipe.name, recipe, graph.name, str(trainer.device), probed, tuple(measurements))


def inspect_sampler(
    graph: KnowledgeGraph,
    model: str | None = None,
    sampler: str | None = None,
    *,
    recipe: str | None = None,
    limit: int | None = None,
    every: int | None = None,
    probe: int = PROBE,
    device: str = "auto",
    progress: bool | Told = True,
    **settings: Any,
) -> Inspection:
    """Train as `train` would and measure the sampler during training; see `Measurement` for what is measured.

    Args:
        graph, model, sampler, recipe, device, settings: as for `train`.
        limit: stop after so many steps; the schedule stays that of the recipe.
        every: steps between two measurements; None for ten measurements.
        probe: how many training triples to draw negatives for.
        progress: True: a bar on a terminal or in a notebook, otherwise a line now and then on standard error; False:
            nothing; or what to call with (steps done, steps in all).
    """
    chosen = choose_recipe(graph, model, sampler, recipe, settings)
    return inspect_training(chosen, graph, limit=limit, every=every, probe=probe, device=device, progress=progress)


def inspect_run(path: str | Path, *, probe: int = PROBE, device: str = "auto", progress: bool = True) -> Inspection:
    """Measure the sampler of a run folder once, with model and sampler as its last checkpoint has them.

    The folder is only read. The time per step is that of a few more steps in memory, which are not kept.
    """
    folder = RunFolder.open(path)
    recipe, graph = folder.recipe(), folder.graph()
    if not folder.checkpoint_file.is_file():
        raise folder.no_weights()
    with shown(progress):
        trainer = build_trainer(recipe, graph, choose_device(device))
        folder.load_state(trainer)
        inspector = Inspector(trainer, graph, probe)
        with phase("inspecting"):
            measurement = replace(inspector.measure(), step_ms=_step_ms(trainer))
    return Inspection(str(path), recipe, graph.name, str(trainer.device), len(inspector.triples), (measurement,))


def _step_ms(trainer: Trainer) -> float:
    """Mean milliseconds of some more steps."""
    for _ in range(WARM_UP):
        trainer.step()
    first, began = trainer.completed, _now(trainer.device)
    while trainer.completed - first < CLOCKED and time.perf_counter() - began < PATIENCE:
        trainer.step()
    return 1e3 * (_now(trainer.device) - began) / (trainer.completed - first)
