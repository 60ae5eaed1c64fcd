"""`RunStore`: where a run keeps its log, checkpoints, weights and metrics, in memory or in a folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from eans.models import Model
from eans.training import Trainer


@dataclass
class Progress:
    """Where a fit stands besides the trainer's own state; it is part of the checkpoint.

    Attributes:
        seconds: since the start, validations and checkpoints included; pauses between interruption and resumption not.
        best_mrr, best_step: the best validation so far.
        stale: validations since then, as far as they count.
        logged: the step of the last log record.
    """

    seconds: float = 0.0
    best_mrr: float = -1.0
    best_step: int = 0
    stale: int = 0
    logged: int = 0


class RunStore(Protocol):
    """What a run keeps, and where; see `MemoryStore` and `eans.runs.RunFolder`."""

    @property
    def location(self) -> Path | None:
        """The folder; None for a run in memory."""

    def load_checkpoint(self, trainer: Trainer) -> Progress:
        """Bring a new trainer to the last checkpoint; without one it stays at the beginning."""

    def save_checkpoint(self, trainer: Trainer, progress: Progress) -> None:
        """Replace the checkpoint."""

    def log(self) -> list[dict[str, Any]]:
        """All log records."""

    def append_log(self, record: dict[str, Any]) -> None:
        """Add a log record."""

    def save_best(self, model: Model) -> None:
        """Replace the weights with the best validation so far."""

    def load_best(self, model: Model) -> None:
        """Put the weights of the last `save_best` into the model."""

    def keep_last(self, model: Model) -> None:
        """Make sure that `load_last` can bring back the model as it is, after the last step."""

    def load_last(self, model: Model) -> None:
        """Put the weights of the last step into the model again."""

    def save_model(self, model: Model) -> None:
        """Keep the final weights."""

    def save_metrics(self, metrics: dict[str, Any]) -> None:
        """Keep the evaluation, which completes the run."""

    def last_good_state(self) -> str:
        """Words that say from which state a run that diverged could go on."""


@dataclass
class MemoryStore:
    """A run in memory: nothing is kept but the log and the best weights, and it cannot be continued.

    Attributes:
        records: the log.
        best: copies of the best weights by name, on the model's device.
        last: copies of the last weights, on the CPU.
    """

    records: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    last: dict[str, Tensor] = field(default_factory=dict)

    @property
    def location(self) -> None:
        """No folder."""
        return None

    def load_checkpoint(self, trainer: Trainer) -> Progress:
        """There is none: the run begins."""
        del trainer
        return Progress()

    def save_checkpoint(self, trainer: Trainer, progress: Progress) -> None:
        """The trainer itself is the state."""

    def log(self) -> list[dict[str, Any]]:
        """All log records."""
        return self.records

    def append_log(self, record: dict[str, Any]) -> None:
        """Add a log record."""
        self.records.append(record)

    def save_best(self, model: Model) -> None:
        """Copy the weights."""
        self.best = {name: value.detach().clone() for name, value in model.state_dict().items()}

    def load_best(self, model: Model) -> None:
        """Put the copied weights into the model."""
        model.load_state_dict(self.best)

    def keep_last(self, model: Model) -> None:
        """Copy the weights."""
        self.last = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}

    def load_last(self, model: Model) -> None:
        """Put the copied weights into the model."""
        model.load_state_dict(self.last)

    def save_model(self, model: Model) -> None:
        """The model itself is the result."""

    def save_metrics(self, metrics: dict[str, Any]) -> None:
        """They are in the `Run`."""

    def last_good_state(self) -> str:
        """There is none."""
        return "nothing is kept"
