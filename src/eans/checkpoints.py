"""Checkpoints of a run on several ranks: a folder for each, which is whole or not there at all.

======================================  ===============================================================
``checkpoint/step-N/rank-R.safetensors``  the rows that rank R owned: entities, and what the optimizer has of them
``checkpoint/step-N/shared.safetensors``  what all ranks have alike: relations, the sampler's state, sums of the log
``checkpoint/step-N/manifest.json``       position and progress, and the SHA-256 of each of these files
``checkpoint/LATEST``                     the newest of the folders
======================================  ===============================================================

A folder is written under another name and renamed when all of it is on the disk, then ``LATEST`` is replaced; two are
kept. Any number of ranks reads what any other number wrote, since rows are kept with the ids of their entities.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from eans.distributed import ALONE, World
from eans.errors import EansError, EansWarning, RunError
from eans.files import atomic_file, atomic_write, cannot_read, cannot_write, make_folder, sync_folder
from eans.manifest import FORMAT, NAME, Content, check_format
from eans.tensor_files import StoredTensors, tensor_blocks
from eans.training import Trainer, settled_table

Result = TypeVar("Result")
LATEST = "LATEST"
SHARED = "shared.safetensors"
IDS = "entities"
MODEL, ENTITY = "model.", "model.entity"
KEPT = 2
WHOLE, MISSING, DAMAGED = range(3)
WORDS = {MISSING: "is missing", DAMAGED: "is damaged: its SHA-256 is not that in " + NAME}


def rank_file(rank: int) -> str:
    """The name of a rank's file."""
    return f"rank-{rank}.safetensors"


class Checkpoints:
    """The checkpoints of a run folder. All ranks make the same calls.

    Args:
        folder: where they are.
        world: the ranks that share it.
    """

    def __init__(self, folder: Path, world: World = ALONE) -> None:
        self.folder, self.world = folder, world
        self.latest = folder / LATEST

    def save(self, trainer: Trainer, about: dict[str, Any]) -> None:
        """Write a checkpoint, with what else is to be known of it.

        Raises:
            RunError: it could not be written; those before are as they were.
        """
        rows, shared, values = trainer.parts()
        folder = self.folder / f"step-{trainer.completed}"
        partial = self.folder / f".{folder.name}.tmp"
        self._first(lambda: _make_anew(partial))
        own = self._each(lambda: _written(partial / rank_file(self.world.rank), {IDS: trainer.owned(), **rows}))
        sums = self.world.gather(_packed(own))

        def publish() -> None:
            files = {rank_file(rank): _unpacked(line) for rank, line in enumerate(sums)}
            files[SHARED] = _written(partial / SHARED, shared)
            found = {
                "format": FORMAT,
                "step": trainer.completed,
                "num_entities": trainer.model.num_entities,
                "trainer": values,
                **about,
                "files": {name: asdict(entry) for name, entry in files.items()},
            }
            text = json.dumps({**found, "sha256": _sum_of(found)}, indent=2)
            atomic_write(partial / NAME, f"{text}\n".encode())
            self._publish(partial, folder)

        self._first(publish)

    def _publish(self, partial: Path, folder: Path) -> None:
        """Make a folder that is written the newest one, and forget those before the last."""
        try:
            if folder.exists():  # damaged, or the run would have gone on from it
                shutil.rmtree(folder)
            partial.rename(folder)
            sync_folder(self.folder)
        except OSError as error:
            raise cannot_write(folder, error) from error
        atomic_write(self.latest, f"{folder.name}\n".encode())
        for old in self._found()[KEPT:]:
            shutil.rmtree(old, ignore_errors=True)

    def _first(self, work: Callable[[], None]) -> None:
        """Have the first rank do something; where it fails, all fail."""
        self._each(work if self.world.first else lambda: None)

    def _each(self, work: Callable[[], Result]) -> Result:
        """Do something on every rank; where one fails, all fail."""
        try:
            done = work()
        except EansError as error:
            self.world.require(error)
            raise
        self.world.require(None)
        return done

    def _found(self) -> list[Path]:
        """The folders, the newest first; none that is newer than LATEST says."""
        if not self.folder.is_dir():
            return []
        steps = {int(path.name[5:]): path for path in self.folder.glob("step-*") if path.name[5:].isdigit()}
        try:
            newest = int(self.latest.read_text()[5:])
        except (OSError, ValueError):  # lost: the folders themselves are whole or say that they are not
            newest = max(steps, default=0)
        return [steps[step] for step in sorted(steps, reverse=True) if step <= newest]

    def newest(self) -> tuple[Path, dict[str, Any]] | None:
        """The newest checkpoint whose manifest can be read; None without one."""
        for folder in self._found():
            try:
                return folder, _manifest(folder)
            except RunError:
                continue
        return None

    def load(self, trainer: Trainer) -> dict[str, Any] | None:
        """Bring a new trainer to the newest checkpoint that is whole; its manifest, or None where there is none.

        A warning says which ones are not whole.

        Raises:
            RunError: there are checkpoints, but none is whole.
        """
        problem = ""
        for folder in self._found():
            manifest, found = self._checked(folder)
            if not found:
                if problem and self.world.first:
                    warnings.warn(f"{problem}; going on from {folder.name}", EansWarning, stacklevel=2)
                self._read(folder, manifest, trainer)
                return manifest
            problem = problem or found
        if problem:
            raise RunError(f"{problem}; no other checkpoint is whole: restore one, or train again")
        return None

    def _checked(self, folder: Path) -> tuple[dict[str, Any], str]:
        """The manifest, and what is wrong with a checkpoint; the ranks look at a part of the files each."""
        try:
            manifest = _manifest(folder)
        except RunError as error:
            return {}, str(error)
        files = sorted(manifest["files"])
        states = torch.zeros(len(files), device=self.world.device)
        for number, name in enumerate(files):
            if number % self.world.size == self.world.rank:
                states[number] = _state(folder / name, Content(**manifest["files"][name]))
        states = self.world.total(states)
        wrong = next((number for number, state in enumerate(states) if state != WHOLE), None)
        return manifest, "" if wrong is None else f"{folder / files[wrong]} {WORDS[int(states[wrong])]}"

    def check(self) -> dict[str, str]:
        """For each file of each checkpoint what is wrong with it; empty where nothing is."""
        found = {}
        for folder in self._found():
            place = f"{self.folder.name}/{folder.name}"
            try:
                files = _manifest(folder)["files"]
            except RunError as error:
                found[f"{place}/{NAME}"] = str(error)
                continue
            for name, expected in files.items():
                state = _state(folder / name, Content(**expected))
                found[f"{place}/{name}"] = "" if state == WHOLE else f"{folder / name} {WORDS[state]}"
        return found

    def _read(self, folder: Path, manifest: dict[str, Any], trainer: Trainer) -> None:
        """Load what all have alike, then from each file the rows that are this rank's now."""
        shared = _tensors(folder / SHARED)
        trainer.place(shared)
        rows = _rows(folder, manifest, trainer.owned().cpu())
        trainer.load_state({**shared, **rows}, manifest["trainer"])

    def weights(self) -> dict[str, Tensor] | None:
        """The whole model's parameters in the newest checkpoint that is whole; None where there is none."""
        for folder in self._found():
            manifest, problem = self._checked(folder)
            if not problem:
                rows = _rows(folder, manifest, torch.arange(manifest["num_entities"]))
                found = {**_tensors(folder / SHARED), **rows}
                found[ENTITY] = settled_table(found[ENTITY], found)
                return {name.removeprefix(MODEL): value for name, value in found.items() if name.startswith(MODEL)}
        return None


def _rows(folder: Path, manifest: dict[str, Any], entities: Tensor) -> dict[str, Tensor]:
    """The rows of some entities int64 ``[L]`` from the files of all ranks, one file at a time: ``[L, ...]`` each."""
    place = torch.full((manifest["num_entities"],), -1)
    place[entities] = torch.arange(len(entities))
    rows: dict[str, Tensor] = {}
    for name in sorted(manifest["files"]):
        if name != SHARED:
            _take_rows(rows, _tensors(folder / name), place, len(entities))
    return rows


def _take_rows(rows: dict[str, Tensor], found: dict[str, Tensor], here: Tensor, count: int) -> None:
    """Put those rows of a file that belong `here`, int64 ``[E]`` with -1 for others, into tensors ``[count, ...]``."""
    place = here[found.pop(IDS)]
    mine = place >= 0
    for name, values in found.items():
        rows.setdefault(name, values.new_empty(count, *values.shape[1:]))[place[mine]] = values[mine]


def _make_anew(folder: Path) -> None:
    try:
        if folder.exists():
            shutil.rmtree(folder)
    except OSError as error:
        raise cannot_write(folder, error) from error
    make_folder(folder, "nothing is lost: the checkpoint before is as it was")


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / NAME
    try:
        found = json.loads(path.read_bytes())
        check_format(found["format"], path)
        if found.pop("sha256") != _sum_of(found):
            raise ValueError("not what was written")
        return dict(found)
    except OSError as error:
        raise cannot_read(path, error) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RunError(f"{path} is damaged") from error


def _sum_of(found: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def _written(path: Path, tensors: dict[str, Tensor]) -> Content:
    """Write a file of tensors, a block at a time."""
    with atomic_file(path) as file:
        return Content.written(tensor_blocks(tensors, {}), file)


def _state(path: Path, expected: Content) -> int:
    try:
        with path.open("rb") as file:
            return WHOLE if Content.of_file(file) == expected else DAMAGED
    except OSError:
        return MISSING


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        with path.open("rb") as file:
            return dict(StoredTensors(file, path))
    except OSError as error:
        raise cannot_read(path, error) from error


def _packed(content: Content) -> Tensor:
    """As a row to be sent: int64 ``[1, 33]``."""
    return torch.tensor([[*bytes.fromhex(content.sha256), content.length]])


def _unpacked(row: Tensor) -> Content:
    *digest, length = row.tolist()
    return Content(bytes(digest).hex(), length)
