"""One Trainer for every model, sampler and loss.

A step: draw negatives, score, loss, gradients, optimizer, then one call back to the sampler. What a step does depends
only on the seed, the step number and the state in `Trainer.state`, so a resumed run continues to the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from eans import kernels
from eans.batches import Batch, BatchStream, Purpose, mix
from eans.errors import RunError, UsageError
from eans.graph import RELATION, Side
from eans.kernels.aside import Aside
from eans.kernels.cache import outgrows_cache
from eans.losses import LogSigmoid, LossTerms, relation_loss
from eans.models import Model, Scores, TripleRows
from eans.optimizer import OPTIMIZERS, OptimizerName
from eans.penalties import dura_penalty, l3_penalty, n3_penalty, stay_positive_penalty
from eans.recording import RecordedWork
from eans.samplers import Negatives, Sampler, StepOutcome

Penalty = Literal["none", "l3", "n3", "dura", "stay-positive"]
Decay = Literal["drop", "linear"]
Rows = Literal["float32", "bfloat16"]
SHARING_FROM = 64  # negatives
STAGES = 1000  # of a rate that decays: the device is told of a new one only so often
TERMS = ("loss", "positive", "negative", "substitution", "penalty", "relation")


class Diverged(RunError):
    """The loss is no longer a finite number."""


@dataclass(frozen=True)
class Schedule:
    """How long to train and how fast to learn.

    Attributes:
        steps: total number of steps.
        lr: initial learning rate.
        lr_decay: ``"drop"``: one drop; ``"linear"``: down to zero at the end, in a thousand small steps.
        lr_drop: factor on the learning rate after the drop; 1 for none.
        lr_drop_at: where the drop happens, as a share of `steps`.
        reset_optimizer: forget the optimizer's moments at the drop.
    """

    steps: int
    lr: float
    lr_decay: Decay = "drop"
    lr_drop: float = 0.1
    lr_drop_at: float = 0.5
    reset_optimizer: bool = True

    @property
    def drop_step(self) -> int | None:
        """The first step, counted from 0, at the lower rate; None where there is no drop."""
        return int(self.steps * self.lr_drop_at) if self.lr_decay == "drop" and self.lr_drop != 1.0 else None

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        if self.lr_decay == "linear":
            return self.lr * (1.0 - step * STAGES // self.steps / STAGES)
        return self.lr * (self.lr_drop if self.drop_step is not None and step >= self.drop_step else 1.0)


class Trainer:
    """Trains a model in place.

    Args:
        model, sampler, loss, stream: the parts; model and stream must be on `device` already.
        schedule: length and learning rates.
        penalty, penalty_weight: ``"l3"`` on whole tables, ``"n3"`` on the batch's rows, ``"dura"`` on its entities and
            queries, or ``"stay-positive"`` on the sum of the scores of all triples.
        seed: fixes every random number of training.
        rows: ``"bfloat16"``: on a GPU, comparisons read rounded candidate rows, half the bytes, and products with all
            of them round both factors.
        device: where everything lives.
        penalty_power: p of ``"stay-positive"``, ``|sum|^p``.
        relation_weight: of predicting the relation of each positive from its head and tail; 0 for not.
        optimizer: by name, of `eans.optimizer.OPTIMIZERS`.
        dropout: share of the numbers of a query that a step leaves out.
    """

    def __init__(
        self,
        model: Model,
        sampler: Sampler,
        loss: LogSigmoid,
        stream: BatchStream,
        schedule: Schedule,
        *,
        penalty: Penalty = "none",
        penalty_weight: float = 0.0,
        seed: int = 0,
        rows: Rows = "float32",
        device: torch.device | str = "cpu",
        penalty_power: int = 1,
        relation_weight: float = 0.0,
        optimizer: OptimizerName = "adam",
        dropout: float = 0.0,
    ) -> None:
        self.model, self.sampler, self.loss, self.stream, self.schedule = model, sampler, loss, stream, schedule
        self.penalty: Penalty = penalty
        self.penalty_weight = penalty_weight
        self.penalty_power = penalty_power
        self.relation_weight = relation_weight
        self.dropout = dropout
        # What cannot work is refused here, before a run has a folder.
        sampler.expect(stream.batch_size)
        if penalty == "stay-positive":
            model.total_score()
        if penalty == "dura":
            model.duals(model.triple_rows(stream.triples[:1]))
        if rows != "float32" and model.candidate_table().data_ptr() != model.entity.data_ptr():
            raise UsageError("train.rows 'bfloat16' does nothing with model.bounded=true; leave it out")
        if sampler.whole:
            model.compare_everyone([])
        if relation_weight:
            model.relation_scores(model.triple_rows(stream.triples[:1]))
        if dropout:
            model.dropout(1, dropout, torch.Generator(device))
        self.seed = seed
        self.device = torch.device(device)
        self.generator = torch.Generator(self.device)
        self.completed = 0
        self.rate = torch.tensor(schedule.rate(0), device=self.device)
        self.aside = Aside(self.device)
        line = sampler.line()
        # With few candidates, sorting costs more than it saves.
        shares = sampler.negatives >= SHARING_FROM
        # Positives that stand close share candidates. Without a line, work on the same part of each one's does.
        self.places = line[1] if line is not None and shares else None
        self.optimizer = OPTIMIZERS[optimizer](model.parameters(), self.rate, line, rounded=rows == "bfloat16")
        self.sort_candidates(
            line is None and shares and sampler.can_sort and outgrows_cache(self.optimizer.compared_table)
        )
        self.sums = torch.zeros(len(TERMS), device=self.device)
        # Numbers of the tensors that PyTorch works on in a step, or of its products with whole tables.
        numbers = [model.entity.shape[1], model.relation.shape[1], sampler.row_numbers]
        numbers += [model.entity.numel()] if sampler.whole or penalty == "stay-positive" else []
        numbers += [model.relation.numel()] if relation_weight else []
        self.operation_size = stream.batch_size * max(numbers)
        self.steady = sampler.steady
        self.work = RecordedWork(self._work, self.generator, self.device)

    def sort_candidates(self, on: bool) -> None:
        """Have candidates in the order of their numbers, and kernels work on the same part of each positive's."""
        self.sampler.sorts = on
        self.optimizer.work_across(on)

    def _prepare_rate(self) -> None:
        if self.completed == self.schedule.drop_step and self.schedule.reset_optimizer:
            for moments in self.optimizer.state.values():
                for value in moments.values():
                    value.zero_()
        rate = self.schedule.rate(self.completed)
        if self.completed == 0 or rate != self.schedule.rate(self.completed - 1):
            self.rate.fill_(rate)

    def _seeded(self, purpose: Purpose) -> torch.Generator:
        return self.generator.manual_seed(mix(self.seed, purpose, self.completed))

    def _penalty(self, rows: TripleRows) -> Tensor:
        if self.penalty == "l3":
            return self.penalty_weight * l3_penalty((self.model.entity, self.model.relation))
        if self.penalty == "n3":
            return self.penalty_weight * n3_penalty(self.model.factors(rows))
        if self.penalty == "dura":
            return self.penalty_weight * dura_penalty(*self.model.duals(rows))
        if self.penalty == "stay-positive":
            return self.penalty_weight * stay_positive_penalty(self.model.total_score(), self.penalty_power)
        return torch.zeros((), device=self.device)

    def _relation_loss(self, rows: TripleRows, relations: Tensor, weight: Tensor) -> Tensor:
        if not self.relation_weight:
            return torch.zeros((), device=self.device)
        return self.relation_weight * relation_loss(self.model.relation_scores(rows), relations, weight)

    def scores(
        self,
        triples: Tensor,
        side: Side,
        negatives: Negatives,
        kept: Tensor | None = None,
        rows: TripleRows | None = None,
    ) -> Scores:
        """What the loss sees of triples ``[B, 3]`` and the sampler's negatives for their `side`.

        `kept` is what a step keeps of the queries; None for all. See `Model.training_scores`, also for `rows`.
        """
        entities = None if self.sampler.whole else negatives.entities
        return self.model.training_scores(triples, side, entities, self.loss.needs_substitution, kept, rows)

    def step(self) -> LossTerms:
        """Do one step and return its loss terms.

        Raises:
            Diverged: on a CPU, before the update, when the loss is not finite. A GPU would have to wait for each
                step to know, so there `check` finds out.
        """
        self._prepare_rate()
        if self.steady != self.sampler.steady:  # other work than what was recorded
            self.steady = self.sampler.steady
            self.work.forget()
        rows, side = self.stream.rows(self.completed)
        self._seeded(Purpose.DRAW)
        batch: Batch
        negatives: Negatives
        scores: Scores
        terms: LossTerms
        batch, negatives, scores, terms = self.work(rows, side)
        self.completed += 1
        if not self.steady:
            self._observe(self.completed, batch, negatives, scores, self._seeded(Purpose.OBSERVE))
        return terms

    def _observe(
        self, step: int, batch: Batch, negatives: Negatives, scores: Scores, generator: torch.Generator
    ) -> None:
        """Show the sampler a finished step, by its number counted from 1."""
        self.sampler.observe(StepOutcome(step, self.model, batch.triples, batch.side, negatives, scores, generator))

    def _work(self, rows: Tensor, side: Side) -> tuple[Batch, Negatives, Scores, LossTerms]:
        """What the device does in a step, from batch to update, and what a steady sampler learns from it."""
        with self.optimizer.collecting(), kernels.small_operations(self.device, self.operation_size):
            batch, negatives, scores, terms = self._update(rows, side)
        if self.steady:  # what a sampler does then may be of any size
            self._observe(self.completed + 1, batch, negatives, scores, self.generator)
        return batch, negatives, scores, terms

    def _update(self, positives: Tensor, side: Side) -> tuple[Batch, Negatives, Scores, LossTerms]:
        batch = self.stream.batch(positives, side, self.places)
        negatives = self.sampler.sample(batch.triples, batch.side, self.generator, self.aside)
        kept = self.model.dropout(len(batch.triples), self.dropout, self.generator) if self.dropout else None
        triples, side = self.model.oriented(batch.triples, batch.side)
        rows = self.model.triple_rows(triples, side)  # once for all who need them
        scores = self.scores(triples, side, negatives, kept, rows)
        self.aside.join()
        weight = batch.weight if negatives.weight is None else batch.weight * negatives.weight
        proposal = None
        if self.loss.needs_proposal:
            proposal = self.sampler.log_proposal(batch.triples, batch.side, negatives.entities)
        terms: LossTerms = self.loss(scores, negatives.known_true, weight, proposal)
        if (
            negatives.weight is not None
        ):  # losses scale weights to the sum 1; the factors' mean must not be lost by that
            share = weight.sum() / batch.weight.sum()
            terms = terms._replace(positive=terms.positive * share, negative=terms.negative * share)
        penalty, relation = self._penalty(rows), self._relation_loss(rows, triples[:, RELATION], batch.weight)
        total = terms.total + penalty + relation
        if self.device.type == "cpu" and not bool(torch.isfinite(total)):
            raise self._diverged()
        total.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.sums += torch.stack([total, *terms, penalty, relation]).detach()
        return batch, negatives, scores.detach(), LossTerms(*(term.detach() for term in terms))

    def _diverged(self) -> Diverged:
        return Diverged(
            f"the loss is not finite by step {self.completed + 1} (train.lr = {self.schedule.rate(self.completed):g}); "
            "lower train.lr, or check loss.penalty_weight and model.init_range"
        )

    def is_sound(self) -> bool:
        """Are the running loss and every parameter finite?"""
        tensors = [self.sums, *(parameter.detach() for parameter in self.model.parameters())]
        return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)

    def check(self) -> None:
        """Raise `Diverged` unless the state is sound; nothing is saved that was not checked."""
        if not self.is_sound():
            raise self._diverged()

    def take_means(self, steps: int) -> dict[str, float]:
        """Mean loss terms of the last `steps` steps, and start afresh."""
        means = dict(zip(TERMS, (self.sums / steps).tolist(), strict=True))
        self.sums.zero_()
        return means

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the rest of the run depends on: tensors, and plain values."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"sampler.{name}": value for name, value in self.sampler.state_dict().items()}
        tensors["loss_sums"] = self.sums
        for index, parameter in enumerate(self.model.parameters()):
            for name, value in self.optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer.{index}.{name}"] = value
        return {name: value.detach() for name, value in tensors.items()}, {"step": self.completed, "seed": self.seed}

    def load_state(self, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from `state`."""

        def part(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}

        self.model.load_state_dict(part("model."))
        self.optimizer.refresh()
        self.sampler.load_state_dict(part("sampler."))
        # A state of an earlier version may know fewer terms.
        self.sums = torch.zeros(len(TERMS), device=self.device)
        self.sums[: len(tensors["loss_sums"])] = tensors["loss_sums"].to(self.device)
        self.work.forget()
        self.completed = int(values["step"])
        # The rate of the last finished step: `_prepare_rate` makes the drop itself when it is due.
        self.rate.fill_(self.schedule.rate(max(0, self.completed - 1)))
        self.optimizer.state.clear()
        for index, parameter in enumerate(self.model.parameters()):
            saved = part(f"optimizer.{index}.")
            if saved:
                self.optimizer.state[parameter] = {name: saved[name].to(self.device) for name in self.optimizer.names()}
