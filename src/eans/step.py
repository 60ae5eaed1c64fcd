"""One training step, from top to bottom: batch, negatives, scores, loss, update, observe."""

from __future__ import annotations

import torch
from torch import Tensor

from eans.batches import BatchStream, Purpose, mix
from eans.cuda_graphs import CapturedWork
from eans.errors import RunError
from eans.execution import Execution
from eans.graph import HEAD, TAIL
from eans.models import Model, learning
from eans.objective import LossSums, Objective, total
from eans.optimizer import Optimizer
from eans.samplers import Sampler
from eans.types import Batch, LossTerms, Negatives, Scores, Side, StepOutcome


class Diverged(RunError):
    """The loss is no longer a finite number."""


def diverged(step: int, rate: float) -> Diverged:
    """What to raise at a step, counted from 1, with a learning rate."""
    return Diverged(
        f"the loss is not finite by step {step} (train.lr = {rate:g}); "
        "lower train.lr, or check loss.penalty_weight and model.init_range"
    )


class SettledModel:
    """The model as samplers see it where the optimizer is lazy: what they read is up to date (`Optimizer.settle`)."""

    def __init__(self, model: Model, optimizer: Optimizer) -> None:
        self.model, self.optimizer = model, optimizer

    def entity_features(self) -> Tensor:
        """See `eans.types.TrainedModel`."""
        self.optimizer.settle()
        return self.model.entity_features()

    def scores_of_candidates(self, triples: Tensor, side: Side, entities: Tensor) -> Tensor:
        """See `eans.types.TrainedModel`."""
        self.optimizer.settle(rows_of(triples, entities))
        return self.model.scores_of_candidates(triples, side, entities)


def rows_of(triples: Tensor, entities: Tensor) -> Tensor:
    """The rows of the entity table that scores of triples ``[B, 3]`` and candidates ``[B, N]`` are made of: ``[M]``."""
    return torch.cat((entities.reshape(-1), triples[:, HEAD], triples[:, TAIL]))


class Step:
    """Does one step after the other, and adds up the loss terms in `sums`.

    Args:
        model, sampler, objective, stream, optimizer: the parts.
        execution: how they run on the device.
        dropout: share of the numbers of a query that a step leaves out.
    """

    def __init__(
        self,
        model: Model,
        sampler: Sampler,
        objective: Objective,
        stream: BatchStream,
        optimizer: Optimizer,
        execution: Execution,
        dropout: float = 0.0,
    ) -> None:
        self.model, self.sampler, self.objective, self.stream = model, sampler, objective, stream
        self.optimizer, self.execution, self.dropout = optimizer, execution, dropout
        self.sums = LossSums(objective.names, execution.device)
        self.generator = torch.Generator(execution.device)
        self.work = CapturedWork(self._compute, self.generator, execution.device, model.capturable)
        self.number = 0  # of the step, counted from 1

    def __call__(self, number: int) -> LossTerms:
        """Do the step with this number, counted from 1; returns its loss terms.

        Raises:
            Diverged: on a CPU, before the update, when the loss is not finite. A GPU would have to wait for each
                step to know.
        """
        self.number = number
        if self.execution.observes != self.sampler.steady:  # other work than what was captured
            self.execution.observes = self.sampler.steady
            self.work.forget()
        rows, side = self.stream.rows(number - 1)
        self._seed(Purpose.DRAW, number - 1)
        batch, negatives, scores, terms = self.work(rows, side)  # `_compute`, or the replay of its CUDA graph
        if not self.execution.observes:
            self._seed(Purpose.OBSERVE, number)
            self._observe(batch, negatives, scores)
        return terms  # type: ignore[no-any-return]

    def _compute(self, rows: Tensor, side: Side) -> tuple[Batch, Negatives, Scores, LossTerms]:
        """Everything that the device does in a step, for training triples int64 ``[B]``."""
        self.optimizer.zero_grad()
        with self.execution.small_operations(), learning(self.model, self.generator):
            batch = self.stream.batch(rows, side, self.execution.places)
            negatives = self.sampler.sample(batch.triples, batch.side, self.generator, self.execution.side_stream)
            if self.optimizer.lazy:
                self.optimizer.prepare(rows_of(batch.triples, negatives.entities))
            kept = self.model.dropout(len(rows), self.dropout, self.generator) if self.dropout else None

            positives = self.model.positives(batch, self.execution.sinks)
            entities = None if self.sampler.all_entities else negatives.entities
            needs = self.objective.loss.needs_substitution
            scores = self.model.step_scores(positives.rows, positives.side, entities, needs, kept, positives.sinks)
            self.execution.side_stream.join()

            log_proposal = None
            if self.objective.loss.needs_proposal:
                log_proposal = self.sampler.log_proposal(batch.triples, batch.side, negatives.entities)
            terms = self.objective(self.model, positives, scores, negatives, log_proposal)
            loss = total(terms)
            if self.execution.device.type == "cpu" and not bool(torch.isfinite(loss)):
                raise diverged(self.number, float(self.optimizer.rate))

            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            self.sums.add(loss, terms)
        if self.execution.observes:  # what a sampler does then may be of any size
            self._observe(batch, negatives, scores)
        return batch, negatives, scores.detach(), {name: term.detach() for name, term in terms.items()}

    def _seed(self, purpose: Purpose, count: int) -> None:
        self.generator.manual_seed(mix(self.stream.seed, purpose, count))

    def _observe(self, batch: Batch, negatives: Negatives, scores: Scores) -> None:
        """Show the finished step to the sampler."""
        model = SettledModel(self.model, self.optimizer) if self.optimizer.lazy else self.model
        self.sampler.observe(
            StepOutcome(self.number, model, batch.triples, batch.side, negatives, scores, self.generator)
        )
