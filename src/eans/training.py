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
from torch import Tensor, nn

from eans import compatibility
from eans.batches import BatchStream
from eans.distributed import ALONE, Placement, ShardedTable, World
from eans.execution import Execution
from eans.kernels.blocks import all_finite
from eans.losses import Loss
from eans.models import Model
from eans.objective import EARLIER_NAMES, Objective
from eans.optimizer import OPTIMIZERS, SHARED_STATE, OptimizerName, settled_rows
from eans.samplers import Sampler
from eans.sharded_step import ShardedStep
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
        world: the ranks that train together. Of several each makes the same parts, and keeps the rows that it owns.

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
        world: World = ALONE,
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
        compatibility.check_ranks(model, sampler, objective, world.size, rounded_rows=rounded)
        self.model, self.sampler, self.objective = model, sampler, objective
        self.world = sampler.world = world
        self.stream, self.schedule = stream, schedule
        self.device = model.entity.device if world.size == 1 else world.device
        self.seed = stream.seed
        self.completed = 0
        self.rate = torch.tensor(schedule.rate(0), device=self.device)
        self.table = None if world.size == 1 else _shard(model, sampler, world)
        optimizer = OPTIMIZERS[settings.optimizer]
        ordering = sampler.ordering() if self.table is None else None
        self.optimizer = optimizer(model.parameters(), self.rate, ordering, rounded=rounded)
        parts = model, sampler, objective, stream, self.optimizer
        self.execution = Execution(*parts, self.device)
        self.stepper = (
            Step(*parts, self.execution, settings.dropout)
            if self.table is None
            else ShardedStep(*parts, self.execution, settings.dropout, table=self.table)
        )

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
        return not self.world.any(not all_finite(tensors))

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

    def parts(self) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Any]]:
        """`state` in two parts: tensors with a row for each entity that is `owned`, and those that all ranks share."""
        tensors, values = self.state()
        rows = {name: value for name, value in tensors.items() if _has_rows(name)}
        return rows, {name: value for name, value in tensors.items() if name not in rows}, values

    def owned(self) -> Tensor:
        """The entities whose rows the model has, in their order: int64 ``[L]``; all of them on one rank."""
        if self.table is None:
            return torch.arange(self.model.num_entities, device=self.device)
        return self.table.placement.owned(self.world.rank)

    def place(self, tensors: Mapping[str, Tensor]) -> None:
        """Own the entities that this rank has with the ordering in a `state`; the rows are then to be loaded."""
        if self.table is None:
            return
        load_module(self.sampler, tensors, "sampler.")
        self.table.placement = _placement(self.model.num_entities, self.sampler, self.world, self.device)

    def load_whole(self, tensors: Mapping[str, Tensor], values: dict[str, Any]) -> None:
        """`load_state` from that of a trainer which has the rows of all entities."""
        if self.table is None:
            self.load_state(tensors, values)
            return
        self.place(tensors)
        owned = self.owned().cpu()
        self.load_state({name: tensors[name][owned] if _has_rows(name) else tensors[name] for name in tensors}, values)

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


def _has_rows(name: str) -> bool:
    """Does a tensor of a state have a row for each of the entity table, as it and its moments have?"""
    _, _, part = name.rpartition(".")
    return name == "model.entity" or (name.startswith("optimizer.0.") and part not in SHARED_STATE)


def _placement(num_entities: int, sampler: Sampler, world: World, device: torch.device) -> Placement:
    """Rows that are drawn together lie on one rank, as far as the sampler has an ordering."""
    ordering = sampler.ordering()
    if ordering is None:
        return Placement.by_id(num_entities, world.size, device)
    return Placement(ordering[0].clone(), ordering[1].clone(), world.size)


def _shard(model: Model, sampler: Sampler, world: World) -> ShardedTable:
    """A table with the entity rows of this rank, which the model is left with if it had all."""
    placement = _placement(model.num_entities, sampler, world, world.device)
    rows = model.entity.detach()
    if len(rows) == model.num_entities:
        rows = rows[placement.owned(world.rank).to(rows.device)]
    table = ShardedTable(rows.to(world.device), placement, world)
    model.entity = nn.Parameter(table.own)
    model.to(world.device)
    return table
