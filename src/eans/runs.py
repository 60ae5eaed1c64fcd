"""The run folder: everything about one training run, readable without the code that trained it.

=========================  =======================================================================
``recipe.toml``            the resolved recipe
``graph.safetensors``      the graph: names and integer triples
``checkpoint.safetensors`` model, optimizer, sampler and position: what `resume` needs, in one file
``best.safetensors``       the weights with the best validation so far
``model.safetensors``      the final weights
``log.jsonl``              one JSON object per line: losses, validations
``metrics.json``           the evaluation; its presence says that the run is complete
``manifest.json``          the SHA-256 of each of them, see `eans.manifest`
=========================  =======================================================================

Files are replaced in one step. Because all state is in one file, a crash leaves either the old state or the new.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from eans.errors import RunError, UsageError
from eans.files import as_path, cannot_write, make_folder, take_lock
from eans.graph import KnowledgeGraph
from eans.manifest import Manifest
from eans.models import Model
from eans.recipes import Recipe, load, to_toml
from eans.recipes.build import build_model
from eans.run_shapes import of_metrics, of_record
from eans.shapes import lacking
from eans.stores import Progress
from eans.tensor_files import (
    StoredTensors,
    graph_from_bytes,
    graph_to_bytes,
    load_module,
    read_metadata,
    tensor_blocks,
)
from eans.training import Trainer, settled_table

# Sections whose keys may say "auto" in a recipe, and have values in that of a run.
RESOLVED = ("model", "sampler", "loss", "train")

STUDY = "study"  # the folder with what `eans.tuning` keeps beside the run that it chose
HISTORY = "nothing but the history of the run is lost"


class RunFolder:
    """A run on disk, a `RunStore`. Use `create` for a new one and `open` for one that exists."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe_file = path / "recipe.toml"
        self.graph_file = path / "graph.safetensors"
        self.checkpoint_file = path / "checkpoint.safetensors"
        self.best_file = path / "best.safetensors"
        self.model_file = path / "model.safetensors"
        self.log_file = path / "log.jsonl"
        self.metrics_file = path / "metrics.json"
        again = f"then: {self.resume_command}"
        advice = {
            self.metrics_file.name: (f"delete it, {again}", f"make it again with: {self.resume_command}"),
            self.model_file.name: (
                f"delete it and {self.metrics_file.name}, {again}",
                f"delete {self.metrics_file.name}, {again}",
            ),
            self.log_file.name: (f"delete it: {HISTORY}", HISTORY),
        }
        self.manifest = Manifest(path, self.log_file, self.metrics_file, advice)
        self._lock_file: IO[str] | None = None

    @classmethod
    def create(cls, path: Path, recipe: Recipe, graph: KnowledgeGraph) -> RunFolder:
        """Make the folder and write what is known before training."""
        path = as_path(path, "run folder")
        folder = cls(path)
        if path.exists():
            folder.require_free()
        make_folder(path)
        folder._acquire()
        folder.require_free()  # again: another process may have been faster
        folder.manifest.write(folder.graph_file, graph_to_bytes(graph))
        folder.manifest.write(folder.recipe_file, to_toml(recipe).encode())
        return folder

    def require_free(self) -> None:
        """Raise unless the folder is empty, but for what a set-up that was cut off may have left, and a search."""
        leftovers = {self.graph_file.name, self.manifest.file.name, ".lock", STUDY}
        if self.path.is_dir() and all(
            entry.name in leftovers or entry.name.endswith(".tmp") for entry in self.path.iterdir()
        ):
            return
        hint = f", or continue it with: {self.resume_command}" if self.recipe_file.is_file() else ""
        raise UsageError(f"{self.path} exists already; choose another --out{hint}")

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """A folder that `create` made."""
        folder = cls(as_path(path, "run folder"))
        if folder.manifest.lacks(folder.recipe_file):
            raise folder.manifest.missing(folder.recipe_file)
        if not folder.recipe_file.is_file():
            raise UsageError(f"{path} is not a run folder (it has no recipe.toml)")
        if not folder.graph_file.is_file():
            raise folder.manifest.missing(folder.graph_file)
        return folder

    @property
    def location(self) -> Path:
        """The folder."""
        return self.path

    def _acquire(self) -> None:
        """Take the lock, unless this object has it already."""
        if self._lock_file is not None:
            return
        self._lock_file = take_lock(self.path / ".lock", f"another process is training in {self.path}")
        for leftover in self.path.glob(".*.tmp"):  # of a process that was killed while it wrote
            leftover.unlink(missing_ok=True)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep a second process from training in the same folder; `create` takes the lock already."""
        self._acquire()
        try:
            yield
        finally:
            if self._lock_file is not None:
                self._lock_file.close()
                self._lock_file = None

    @property
    def resume_command(self) -> str:
        """What to type to continue the run."""
        return f"eans train --resume {shlex.quote(str(self.path))}"

    @property
    def is_complete(self) -> bool:
        """Has the run been trained and evaluated to its end?"""
        return self.metrics_file.is_file()

    def recipe(self) -> Recipe:
        """The resolved recipe."""
        self.manifest.read(self.recipe_file)
        try:
            recipe = load(self.recipe_file)
        except UsageError as error:
            raise self._damaged(self.recipe_file, str(error).removeprefix(f"{self.recipe_file}: ")) from error
        for section in RESOLVED:
            for key, value in getattr(recipe, section).model_dump().items():
                if value == "auto":
                    raise self._damaged(self.recipe_file, f"no {section}.{key}")
        return recipe

    def graph(self) -> KnowledgeGraph:
        """The graph that the run was trained on."""
        return graph_from_bytes(self.manifest.read(self.graph_file), self.graph_file)

    @cached_property
    def _about(self) -> dict[str, str]:
        """What weights are kept with, so that they are not taken for those of another model with the same shapes."""
        return {"model": self.recipe().model.model_dump_json()}

    def model(self, graph: KnowledgeGraph | None = None, device: torch.device | str = "cpu") -> Model:
        """The final model, or that of the last checkpoint while the run is not complete."""
        model = build_model(self.recipe(), graph or self.graph())
        if self.model_file.is_file():
            self._load_weights(model, self.model_file)
        elif self.is_complete:  # the last checkpoint need not be what was evaluated
            raise self.manifest.missing(self.model_file)
        elif self.checkpoint_file.is_file():
            self._load_weights(model, self.checkpoint_file, prefix="model.")
        else:
            raise self.no_weights()
        return model.to(device)

    def _load_weights(self, model: Model, file: Path, prefix: str = "") -> None:
        """Fill the model's tables from those tensors of a file whose names have the prefix; their rows are settled."""
        with self.manifest.opened(file) as opened:
            tensors = StoredTensors(opened, file)
            self._require_fit(file, tensors.metadata, model)
            try:
                load_module(model, tensors, prefix)
                model.entity.data = settled_table(model.entity.data, tensors)
            except RuntimeError as error:
                raise self._misfit(file) from error

    def _require_fit(self, file: Path, metadata: dict[str, str], model: Model) -> None:
        """Raise if weights were kept with another model or other names than the recipe and the graph have."""
        try:
            saved, now = (json.loads(about.get("model", "{}")) for about in (metadata, self._about))
        except ValueError as error:
            raise self._misfit(file) from error
        edited = not isinstance(saved, dict) or any(value != now[key] for key, value in saved.items() if key in now)
        if edited or metadata.get("vocabulary", model.vocabulary) != model.vocabulary:
            raise self._misfit(file)

    def _misfit(self, file: Path) -> RunError:
        return RunError(f"{file} does not fit its run's recipe and graph; was one of them edited?")

    def no_weights(self) -> RunError:
        """The one line for a run that has not come to its first checkpoint, or has lost the last."""
        if self.is_complete or self.manifest.lacks(self.checkpoint_file):
            return self.manifest.missing(self.checkpoint_file)
        return RunError(f"{self.path} holds no weights yet; continue it with: {self.resume_command}")

    def save_checkpoint(self, trainer: Trainer, progress: Progress) -> None:
        """Replace the checkpoint."""
        tensors, values = trainer.state()
        metadata = {"trainer": json.dumps(values), "progress": json.dumps(asdict(progress))}
        self._write_tensors(self.checkpoint_file, tensors, metadata, trainer.model)

    def _write_tensors(self, file: Path, tensors: dict[str, Tensor], metadata: dict[str, str], model: Model) -> None:
        about = {**self._about, "vocabulary": model.vocabulary}
        self.manifest.write(file, tensor_blocks(tensors, about | metadata))

    def load_state(self, trainer: Trainer) -> Progress:
        """Bring the trainer to where the checkpoint left it; nothing in the folder changes."""
        with self.manifest.opened(self.checkpoint_file) as opened:
            tensors = StoredTensors(opened, self.checkpoint_file)
            self._require_fit(self.checkpoint_file, tensors.metadata, trainer.model)
            try:
                trainer.load_state(tensors, json.loads(tensors.metadata["trainer"]))
                return Progress(**json.loads(tensors.metadata["progress"]))
            except (AttributeError, KeyError, ValueError, TypeError, RuntimeError) as error:
                raise self._misfit(self.checkpoint_file) from error

    def load_checkpoint(self, trainer: Trainer) -> Progress:
        """Continue from the checkpoint, its log cut off behind it; a run without one starts from the beginning."""
        known = (self.recipe_file, self.graph_file, self.checkpoint_file, self.best_file, self.log_file)
        self.manifest.adopt(*known)
        if self.manifest.lacks(self.checkpoint_file):
            raise self.manifest.missing(self.checkpoint_file)
        progress = self.load_state(trainer) if self.checkpoint_file.is_file() else Progress()
        self._rewind_log(trainer.completed)
        return progress

    def saved_step(self) -> int:
        """The step of the checkpoint; 0 without one."""
        return self.saved_position()[0]

    def saved_position(self) -> tuple[int, float]:
        """The step of the checkpoint, and the seconds up to there; 0 both without one."""
        if not self.checkpoint_file.is_file():
            return 0, 0.0
        try:
            metadata = read_metadata(self.checkpoint_file)
            trainer, progress = json.loads(metadata["trainer"]), json.loads(metadata["progress"])
            return int(trainer["step"]), float(progress["seconds"])
        except (KeyError, ValueError, TypeError) as error:
            raise self._misfit(self.checkpoint_file) from error

    def last_good_state(self) -> str:
        """Words that say where the last state is from which a run could go on."""
        step = self.saved_step()
        if not step:
            return "no checkpoint had been written"
        return f"the last good state, of step {step}, is in {self.path} (look at it with `eans evaluate`)"

    def save_best(self, model: Model) -> None:
        """Write the weights with the best validation so far."""
        self._write_tensors(self.best_file, dict(model.state_dict()), {}, model)

    def save_model(self, model: Model) -> None:
        """Write the final weights."""
        self._write_tensors(self.model_file, dict(model.state_dict()), {}, model)

    def load_best(self, model: Model) -> None:
        """Put the best validated weights into the model."""
        self._load_weights(model, self.best_file)

    def keep_last(self, model: Model) -> None:
        """The checkpoint has them."""

    def load_last(self, model: Model) -> None:
        """Put the weights of the checkpoint into the model."""
        self._load_weights(model, self.checkpoint_file, prefix="model.")

    def append_log(self, record: dict[str, Any]) -> None:
        """Add one record to the log."""
        try:
            with self.log_file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise cannot_write(self.log_file, error) from error

    def log(self) -> list[dict[str, Any]]:
        """All whole records."""
        if not self.log_file.is_file():
            return []
        lines = self.manifest.read(self.log_file).decode(errors="replace").splitlines()
        records = []
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
            except ValueError:
                if number == len(lines):  # a crash may have torn the last line
                    break
                record = None
            if place := lacking(record, of_record(record)):
                raise self._damaged(self.log_file, f"line {number}: no {place}")
            records.append(record)
        return records

    def _rewind_log(self, step: int) -> None:
        """Drop records after `step`: those steps will be done, and logged, again."""
        records = [record for record in self.log() if record["step"] <= step]
        if self.log_file.is_file():
            self.manifest.write(self.log_file, "".join(json.dumps(record) + "\n" for record in records).encode())

    def save_metrics(self, metrics: dict[str, Any]) -> None:
        """Write the evaluation."""
        self.manifest.write(self.metrics_file, (json.dumps(metrics, indent=2) + "\n").encode())

    def metrics(self) -> dict[str, Any]:
        """The evaluation; empty while there is none."""
        if not self.is_complete:
            return {}
        try:
            found = json.loads(self.manifest.read(self.metrics_file))
        except ValueError as error:
            raise self._damaged(self.metrics_file, str(error)) from error
        if place := lacking(found, of_metrics(found)):
            raise self._damaged(self.metrics_file, f"no {place}")
        return dict(found)

    def _damaged(self, file: Path, reason: str) -> RunError:
        return RunError(f"{file} is damaged ({reason}); {self.manifest.advised(file)}")
