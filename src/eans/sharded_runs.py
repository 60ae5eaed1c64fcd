"""`SharedRun`: the run folder of several ranks, of which the first one writes all but its share of the checkpoints."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from eans.checkpoints import Checkpoints
from eans.distributed import ShardedTable
from eans.models import Model
from eans.runs import RunFolder
from eans.stores import Progress
from eans.tensor_files import Arriving, StoredTensors
from eans.training import Trainer


class SharedRun:
    """A `RunStore` of several ranks, which all make the same calls.

    Args:
        folder: the run folder; the first rank has made and locked it.
        table: of this rank.
    """

    def __init__(self, folder: RunFolder, table: ShardedTable) -> None:
        self.folder, self.table, self.world = folder, table, table.world
        self.checkpoints = Checkpoints(folder.checkpoints.folder, self.world)
        self.last: dict[str, Tensor] = {}

    @property
    def location(self) -> Path:
        """The folder."""
        return self.folder.path

    def load_checkpoint(self, trainer: Trainer) -> Progress:
        """Bring the trainer to the newest checkpoint that is whole, whatever the number of ranks that wrote it."""
        progress = self.folder.load_state(trainer, self.checkpoints)
        if self.world.first:
            self.folder.records.rewind(trainer.completed)
        return progress

    def save_checkpoint(self, trainer: Trainer, progress: Progress) -> None:
        """Write a checkpoint, each rank its own rows."""
        self.checkpoints.save(trainer, self.folder.about(trainer.model) | {"progress": asdict(progress)})

    def log(self) -> list[dict[str, Any]]:
        """All log records; on the first rank."""
        return self.folder.log() if self.world.first else []

    def append_log(self, record: dict[str, Any]) -> None:
        """Add a log record."""
        if self.world.first:
            self.folder.append_log(record)

    def save_best(self, model: Model) -> None:
        """Write the weights with the best validation so far."""
        self._write(self.folder.best_file, model)

    def save_model(self, model: Model) -> None:
        """Write the final weights."""
        self._write(self.folder.model_file, model)

    def keep_last(self, model: Model) -> None:
        """Copy this rank's weights."""
        self.last = {name: value.clone() for name, value in model.state_dict().items()}

    def load_last(self, model: Model) -> None:
        """Put the copies into the model."""
        model.load_state_dict(self.last)

    def _write(self, file: Path, model: Model) -> None:
        """Write the rows of all ranks by the first one, a block at a time."""
        tensors: dict[str, Tensor | Arriving] = dict(model.state_dict())
        own = model.entity.detach()
        blocks = self.table.blocks(own)
        if self.world.first:
            shape = (model.num_entities, own.shape[1])
            self.folder.write_tensors(file, {**tensors, "entity": Arriving(own.dtype, shape, blocks)}, {}, model)
            return
        for _ in blocks:
            pass

    def load_best(self, model: Model) -> None:
        """Put the best validated weights into the model, of entities those that this rank owns."""
        self.world.any(False)  # the first rank has written them
        owned = self.table.placement.owned(self.world.rank).cpu()
        with self.folder.manifest.opened(self.folder.best_file) as file:
            stored = StoredTensors(file, self.folder.best_file)
            others = {name: stored[name] for name in stored if name != "entity"}
            model.load_state_dict({**others, "entity": stored.rows("entity", owned)})

    def save_metrics(self, metrics: dict[str, Any]) -> None:
        """Write the evaluation."""
        if self.world.first:
            self.folder.save_metrics(metrics)

    def last_good_state(self) -> str:
        """Words that say where the last state is from which the run could go on."""
        return self.folder.last_good_state()
