"""One Trainer for every model, sampler and objective: steps, learning rates, checks, and the state of a run.

What a step does (`eans.step`) depends only on the seed, the step number and the state in `Trainer.state`, so a resumed
run continues to the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from eans import compatibility
from eans.batches import BatchStream
from eans.execution import Execution
from eans.kernels.blocks import all_finite
from eans.losses import Loss
from eans.models import Model
from eans.objective import EARLIER_NAMES, Objective
from eans.optimizer import OPTIMIZERS, OptimizerName, settled_rows
from eans.samplers import Sampler
from eans.step import Diverged as Diverged
from eans.step import Step, diverged
from eans.tensor_files import copy_of, load_module
from eans.types import LossTerms, Negatives, Scores, Side

Decay = Literal["drop", "linear"]
Rows = Literal["float32", "bfloat16"]
STAGES = 1000  # of a rate that decays: the device is told of a new one only so often


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


@dataclass(frozen=True)
class Settings:
    """How a step is done, besides its learning rate.

    Attributes:
        optimizer: by name, of `eans.optimizer.OPTIMIZERS`.
        rows: ``"bfloat16"``: on a GPU, comparisons read rounded candidate rows, half the bytes, and products with all
            of them round both factors.
        dropout: share of the numbers of a query that a step leaves out.
    """

    optimizer: OptimizerName = "adam"
    rows: Rows = "float32"
    dropout: float = 0.0


class Trainer:
    """Trains a model in place.

    Args:
        model, sampler, objective, stream: the parts, all on one device. The seed of the stream fixes every random
            number of training.
        schedule: length and learning rates.
        settings: how a step is done.

    Raises:
        UsageError: for a combination that cannot be trained.
    """

    def __init__(
        self,
        model: Model,
        sampler: Sampler,
        objective: Objective,
        stream: BatchStream,
        schedule: Schedule,
        settings: Settings | None = None,
    ) -> None:
        settings = settings or Settings()
        rounded = settings.rows == "bfloat16"
        compatibility.check(
            model,
            sampler,
            objective,
            batch_size=stream.batch_size,
            dropout=settings.dropout,
            rounded_rows=rounded,
            optimizer=settings.optimizer,
        )
        self.model, self.sampler, self.objective = model, sampler, objective
        self.stream, self.schedule = stream, schedule
        self.device = model.entity.device
        self.seed = stream.seed
        self.completed = 0
        self.rate = torch.tensor(schedule.rate(0), device=self.device)
        optimizer = OPTIMIZERS[settings.optimizer]
        self.optimizer = optimizer(model.parameters(), self.rate, sampler.ordering(), rounded=rounded)
        parts = model, sampler, objective, stream, self.optimizer
        self.execution = Execution(*parts, self.device)
        self.stepper = Step(*parts, self.execution, settings.dropout)

    @property
    def loss(self) -> Loss:
        """The loss of the objective."""
        return self.objective.loss

    def step(self) -> LossTerms:
        """Do one step and return its loss terms by name; see `Step`."""
        self._prepare_rate()
        if self.optimizer.make_room(self.completed + 1):
            self.stepper.work.forget()
        terms = self.stepper(self.completed + 1)
        self.completed += 1
        return terms

    def _prepare_rate(self) -> None:
        if self.completed == self.schedule.drop_step and self.schedule.reset_optimizer:
            self.optimizer.reset()
        rate = self.schedule.rate(self.completed)
        if self.completed == 0 or rate != self.schedule.rate(self.completed - 1):
            self.rate.fill_(rate)

    def settled(self) -> AbstractContextManager[None]:
        """The context in which the model is read between two steps: evaluated, saved, inspected (`Optimizer.settled`).

        Reading it changes no bit of the steps that follow.
        """
        return self.optimizer.settled()

    def finish(self) -> None:
        """After the last step: leave the model as it is to be used."""
        self.optimizer.settle()

    def scores(self, triples: Tensor, side: Side, negatives: Negatives) -> Scores:
        """What the loss sees of triples ``[B, 3]`` and the sampler's negatives for their `side`."""
        entities = None if self.sampler.all_entities else negatives.entities
        return self.model.training_scores(triples, side, entities, self.loss.needs_substitution)

    def is_sound(self) -> bool:
        """Are the running loss, every parameter and every buffer of the model finite?"""
        tensors = [self.stepper.sums.values, *self.model.state_dict().values()]
        return all_finite(tensors)

    def check(self) -> None:
        """Raise `Diverged` unless the state is sound; nothing is saved that was not checked."""
        if not self.is_sound():
            raise diverged(self.completed + 1, self.schedule.rate(self.completed))

    def loss_since_record(self) -> float:
        """The sum of the loss over the steps since the last `take_means`; a GPU is waited for."""
        return float(self.stepper.sums.values[0])

    def take_means(self, steps: int) -> dict[str, float]:
        """Mean loss terms of the last `steps` steps, and start afresh."""
        return self.stepper.sums.take_means(steps)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the rest of the run depends on: tensors, which the next step changes, and plain values."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"sampler.{name}": value for name, value in self.sampler.state_dict().items()}
        tensors["loss_sums"] = self.stepper.sums.values
        for index, parameter in enumerate(self.model.parameters()):
            for name, value in self.optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer.{index}.{name}"] = value
        values = {"step": self.completed, "seed": self.seed, "loss_names": list(self.stepper.sums.names)}
        return {name: value.detach() for name, value in tensors.items()}, values

    def load_state(self, tensors: Mapping[str, Tensor], values: dict[str, Any]) -> None:
        """Continue from a copy of `state`; where it is stored, no more than a block is in memory twice."""
        load_module(self.model, tensors, "model.")
        self.optimizer.refresh()
        load_module(self.sampler, tensors, "sampler.")
        self.stepper.sums.load(tensors["loss_sums"], values.get("loss_names", EARLIER_NAMES))
        self.stepper.work.forget()
        self.completed = int(values["step"])
        # The rate of the last finished step: `_prepare_rate` makes the drop itself when it is due.
        self.rate.fill_(self.schedule.rate(max(0, self.completed - 1)))
        self.optimizer.state.clear()
        for index, parameter in enumerate(self.model.parameters()):
            prefix = f"optimizer.{index}."
            if any(name.startswith(prefix) for name in tensors):
                self.optimizer.state[parameter] = {
                    name: copy_of(tensors, prefix + name, self.device) for name in self.optimizer.names(index)
                }


def settled_table(entity: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
    """The entity table of a `Trainer.state` as it is to be used: a lazy optimizer's rows brought up to date."""
    prefix = "optimizer.0."
    if prefix + "last" not in tensors:
        return entity
    saved = [name for name in tensors if name.startswith(prefix)]
    return settled_rows(entity, {name.removeprefix(prefix): tensors[name].to(entity.device) for name in saved})
