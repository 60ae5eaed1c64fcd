"""The run folder: everything about one training run, readable without the code that trained it.

=========================  =======================================================================
``recipe.toml``            the resolved recipe
``graph.safetensors``      the graph: names and integer triples
``checkpoint.safetensors`` model, optimizer, sampler and position: what `resume` needs, in one file
``best.safetensors``       the weights with the best validation so far
``model.safetensors``      the final weights
``log.jsonl``              one JSON object per line: losses, validations
``metrics.json``           the evaluation; its presence says that the run is complete
=========================  =======================================================================

Files are replaced in one step. Because all state is in one file, a crash leaves either the old state or the new.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from eans.errors import RunError, UsageError
from eans.files import atomic_write, cannot_write, make_folder
from eans.fitting import Progress
from eans.graph import SPLITS, KnowledgeGraph, Vocabulary
from eans.models import Model
from eans.recipes import Recipe, load, to_toml
from eans.recipes.build import build_model
from eans.training import Trainer

FORMAT = "1"
# Keys that may say "auto" in a recipe, and have a number in that of a run.
RESOLVED = (
    "model.init_range", "sampler.clusters", "sampler.sigma", "loss.margin", "train.steps", "train.batch_size",
)  # fmt: skip


class FolderInUse(RunError):
    """Another process is at work in a run folder; there is nothing to mend, only to wait for."""


def take_lock(path: Path, taken: str) -> IO[str]:
    """A file that this process alone has locked, until it is closed.

    Raises:
        FolderInUse: with the words `taken`, where another process has the lock.
    """
    try:
        file = path.open("w")
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise FolderInUse(taken) from None
    return file


class RunFolder:
    """A run on disk. Use `create` for a new one and `open` for one that exists."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recipe_file = path / "recipe.toml"
        self.graph_file = path / "graph.safetensors"
        self.checkpoint_file = path / "checkpoint.safetensors"
        self.best_file = path / "best.safetensors"
        self.model_file = path / "model.safetensors"
        self.log_file = path / "log.jsonl"
        self.metrics_file = path / "metrics.json"
        self._lock_file: IO[str] | None = None

    @classmethod
    def create(cls, path: Path, recipe: Recipe, graph: KnowledgeGraph) -> RunFolder:
        """Make the folder and write what is known before training."""
        folder = cls(path)
        if path.exists():
            folder._require_free()
        make_folder(path)
        folder._acquire()
        folder._require_free()  # again: another process may have been faster
        atomic_write(folder.graph_file, graph_to_bytes(graph))
        atomic_write(folder.recipe_file, to_toml(recipe).encode())
        return folder

    def _require_free(self) -> None:
        """Raise unless the folder is empty, but for what a set-up that was cut off may have left."""
        leftovers = {self.graph_file.name, ".lock"}
        if self.path.is_dir() and all(
            entry.name in leftovers or entry.name.endswith(".tmp") for entry in self.path.iterdir()
        ):
            return
        hint = f", or continue it with: {self.resume_command}" if self.recipe_file.is_file() else ""
        raise UsageError(f"{self.path} exists already; choose another --out{hint}")

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """A folder that `create` made."""
        folder = cls(path)
        if not folder.recipe_file.is_file():
            raise UsageError(f"{path} is not a run folder (it has no recipe.toml)")
        if not folder.graph_file.is_file():
            raise RunError(f"{folder.graph_file} is missing; restore it or train again")
        return folder

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
        recipe = load(str(self.recipe_file))
        for key in RESOLVED:
            section, _, field = key.partition(".")
            if getattr(getattr(recipe, section), field) == "auto":
                raise RunError(f"{self.recipe_file} is damaged: no {key}; restore it or train again")
        return recipe

    def graph(self) -> KnowledgeGraph:
        """The graph that the run was trained on."""
        tensors, metadata = read_tensors(self.graph_file)
        try:
            return graph_from_tensors(tensors, metadata["name"], metadata["source"])
        except KeyError as error:
            raise RunError(f"{self.graph_file} is not the graph of a run; restore it or train again") from error

    def model(self, graph: KnowledgeGraph | None = None, device: torch.device | str = "cpu") -> Model:
        """The final model, or that of the last checkpoint while the run is not complete."""
        model = build_model(self.recipe(), graph or self.graph())
        if self.model_file.is_file():
            source = self.model_file
            tensors, _ = read_tensors(source)
        elif self.is_complete:  # the last checkpoint need not be what was evaluated
            raise RunError(f"{self.model_file} is missing; restore it or train again")
        elif self.checkpoint_file.is_file():
            source = self.checkpoint_file
            saved, _ = read_tensors(source)
            tensors = {k.removeprefix("model."): v for k, v in saved.items() if k.startswith("model.")}
        else:
            raise self.no_weights()
        load_weights(model, tensors, source)
        return model.to(device)

    def no_weights(self) -> RunError:
        """The one line for a run that has not come to its first checkpoint, or has lost the last."""
        if self.is_complete:
            return RunError(f"{self.checkpoint_file} is missing; restore it or train again")
        return RunError(f"{self.path} holds no weights yet; continue it with: {self.resume_command}")

    def save_checkpoint(self, trainer: Trainer, progress: Progress) -> None:
        """Replace the checkpoint."""
        tensors, values = trainer.state()
        metadata = {"trainer": json.dumps(values), "progress": json.dumps(asdict(progress))}
        write_tensors(self.checkpoint_file, tensors, metadata)

    def load_state(self, trainer: Trainer) -> Progress:
        """Bring the trainer to where the checkpoint left it; nothing in the folder changes."""
        tensors, metadata = read_tensors(self.checkpoint_file)
        try:
            trainer.load_state(tensors, json.loads(metadata["trainer"]))
            return Progress(**json.loads(metadata["progress"]))
        except (KeyError, RuntimeError) as error:
            raise misfit(self.checkpoint_file) from error

    def load_checkpoint(self, trainer: Trainer) -> Progress:
        """Continue from the checkpoint, its log cut off behind it; a run without one starts from the beginning."""
        progress = self.load_state(trainer) if self.checkpoint_file.is_file() else Progress()
        self._rewind_log(trainer.completed)
        return progress

    def saved_step(self) -> int:
        """The step of the checkpoint; 0 without one."""
        if not self.checkpoint_file.is_file():
            return 0
        return int(json.loads(read_metadata(self.checkpoint_file)["trainer"])["step"])

    def last_good_state(self) -> str:
        """Words that say where the last state is from which a run could go on."""
        step = self.saved_step()
        if not step:
            return "no checkpoint had been written"
        return f"the last good state, of step {step}, is in {self.path} (look at it with `eans evaluate`)"

    def save_weights(self, file: Path, model: Model) -> None:
        """Write the model's tables."""
        write_tensors(file, {name: value.detach() for name, value in model.state_dict().items()}, {})

    def load_best(self, model: Model) -> None:
        """Put the best validated weights into the model."""
        load_weights(model, read_tensors(self.best_file)[0], self.best_file)

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
        records = []
        for line in self.log_file.read_text("utf-8").splitlines():
            with contextlib.suppress(json.JSONDecodeError):  # a crash may have torn the last line
                records.append(json.loads(line))
        return records

    def _rewind_log(self, step: int) -> None:
        """Drop records after `step`: those steps will be done, and logged, again."""
        records = [record for record in self.log() if record["step"] <= step]
        if self.log_file.is_file():
            atomic_write(self.log_file, "".join(json.dumps(record) + "\n" for record in records).encode())

    def save_metrics(self, metrics: dict[str, Any]) -> None:
        """Write the evaluation."""
        atomic_write(self.metrics_file, (json.dumps(metrics, indent=2) + "\n").encode())

    def metrics(self) -> dict[str, Any]:
        """The evaluation; empty while there is none."""
        if not self.is_complete:
            return {}
        try:
            return dict(json.loads(self.metrics_file.read_text("utf-8")))
        except ValueError as error:
            raise RunError(
                f"{self.metrics_file} is damaged ({error}); delete it, then: {self.resume_command}"
            ) from error


def write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write named tensors atomically as safetensors."""
    local = {name: value.detach().to("cpu").contiguous() for name, value in tensors.items()}
    atomic_write(path, save_tensors(local, {"format": FORMAT, **metadata}))


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata of a safetensors file, without its tensors."""
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except (OSError, SafetensorError) as error:
        raise cannot_read(path, error) from error


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Named tensors and metadata of a safetensors file."""
    try:
        return load_tensors(path.read_bytes()), read_metadata(path)
    except (OSError, SafetensorError) as error:
        raise cannot_read(path, error) from error


def cannot_read(path: Path, error: OSError | SafetensorError) -> RunError:
    """The one line for a file of tensors that cannot be read."""
    if isinstance(error, OSError):
        return RunError(f"cannot read {path}: {error.strerror or error}")
    return RunError(f"{path} is damaged ({error}); restore it or train again")


def load_weights(model: Model, tensors: dict[str, Tensor], source: Path) -> None:
    """Fill the model's tables, or say which file does not fit the recipe."""
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise misfit(source) from error


def misfit(source: Path) -> RunError:
    """The one line for tensors that belong to another recipe or graph."""
    return RunError(f"{source} does not fit its run's recipe and graph; was one of them edited?")


def graph_to_bytes(graph: KnowledgeGraph) -> bytes:
    """The graph as safetensors: int32 triples, labels as UTF-8 lines."""
    tensors: dict[str, Tensor] = {split: graph.split(split).to(torch.int32) for split in SPLITS}
    for name, vocabulary in (("entities", graph.entities), ("relations", graph.relations)):
        tensors[name] = torch.frombuffer(bytearray("\n".join(vocabulary).encode()), dtype=torch.uint8)
    return save_tensors(tensors, {"format": FORMAT, "name": graph.name, "source": graph.source})


def graph_from_tensors(tensors: dict[str, Tensor], name: str, source: str) -> KnowledgeGraph:
    """The inverse of `graph_to_bytes`."""
    labels = {key: bytes(tensors[key].numpy()).decode().split("\n") for key in ("entities", "relations")}
    train, valid, test = (tensors[split].to(torch.int64) for split in SPLITS)
    entities, relations = Vocabulary(labels["entities"]), Vocabulary(labels["relations"], "relation")
    return KnowledgeGraph(name, entities, relations, train, valid, test, source=source)
