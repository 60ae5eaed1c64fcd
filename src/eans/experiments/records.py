"""Experiments and their records: one small JSON file per finished run, named after what was run.

=====================  ============================================================================================
``recipe``             its name; with ``overrides`` and ``seed`` it identifies the experiment
``run_as``             the recipe and the overrides as they were typed, where the recipe got its present name later
``recipe_hash``        of the resolved recipe without its seed; keys at their defaults do not count
``commit``             of the source tree
``versions``           of eans, PyTorch and Python
``hardware, device``   where it ran; ``runs_at_a_time`` says how many runs shared the device
``date``               when it ended, UTC
``steps, seconds``     of training, with validations and checkpoints
``valid, test``        metrics by side: both, head, tail; no ``test`` where it was not ranked
``protocol``           how ranks were computed, and of which triples
``curve, losses``      validations on the way; the first and the last logged loss
=====================  ============================================================================================

What an older record does not know is absent.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from eans.errors import RunError, UsageError
from eans.experiments.checks import RecordFields, problem
from eans.files import atomic_write, make_folder

LONGEST_NAME = 200  # file systems allow 255 bytes


@dataclass(frozen=True)
class Experiment:
    """One run: what is trained, and the seed.

    Attributes:
        recipe: a recipe name, such as ``"wn18rr/rotate/eans"``, or a TOML file.
        overrides: recipe keys, ``"section.key=value"`` each; ``"data.name=FOLDER"`` chooses another graph.
        seed: of the run.
    """

    recipe: str
    overrides: tuple[str, ...] = ()
    seed: int = 0

    @property
    def settings(self) -> str:
        """The experiment without its seed."""
        return " ".join([self.recipe, *self.overrides])

    @property
    def key(self) -> str:
        """What identifies it among records."""
        return f"{self.settings} seed={self.seed}"

    @property
    def name(self) -> str:
        """A file name without ending, different for different experiments.

        Its parts are joined by two hyphens; a hyphen that could be taken for one of them, and an equals sign outside
        of the overrides, are escaped.
        """
        parts = [quote(part, safe="+") for part in self.recipe.split("/")]
        parts += [quote(override, safe="+=") for override in self.overrides]
        name = "--".join([*(re.sub("^-|-$|-(?=-)", "%2D", part) for part in parts), f"seed{self.seed}"])
        if len(name) > LONGEST_NAME:
            digest = hashlib.sha256(name.encode()).hexdigest()[:16]
            name = f"{name[: LONGEST_NAME - 32]}--{digest}--seed{self.seed}"
        return name


@dataclass(frozen=True)
class Record:
    """What came out of an experiment, and the name of its file."""

    file: str
    content: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.content[name]

    def get(self, name: str, default: Any = None) -> Any:
        """A field, or the default where the record does not know it; ``"valid.both.mrr"`` goes into tables."""
        value: Any = self.content
        for part in name.split("."):
            if not isinstance(value, Mapping) or part not in value:
                return default
            value = value[part]
        return value

    @property
    def experiment(self) -> Experiment:
        """What was run."""
        return Experiment(self["recipe"], tuple(self["overrides"]), self["seed"])


class RecordStore:
    """A folder of records. Unfinished runs have their state in a folder ``.running`` beside it.

    Several processes may share it: see `eans.experiments.run`.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.working = self.folder.parent / ".running" / self.folder.name

    def read(self, experiments: Iterable[Experiment] | None = None) -> dict[Experiment, Record]:
        """All records, or those there are of some experiments. A folder that does not exist has none.

        Raises:
            RunError: naming a file that is not a record, or that of another experiment than its name says.
        """
        if experiments is not None:
            found = {experiment: self.find(experiment) for experiment in experiments}
            return {experiment: record for experiment, record in found.items() if record is not None}
        if self.folder.exists() and not self.folder.is_dir():
            raise UsageError(f"{self.folder} is not a folder of run records")
        records = map(_read, sorted(self.folder.glob("*.json")))
        return {record.experiment: record for record in records}

    def find(self, experiment: Experiment) -> Record | None:
        """The record of one experiment, if there is one."""
        path = self.folder / f"{experiment.name}.json"
        return _read(path) if path.is_file() else None

    def write(self, experiment: Experiment, content: Mapping[str, Any]) -> Record:
        """Put a record into the folder, in one step; one of the same experiment is replaced."""
        self.make_folders()
        file = f"{experiment.name}.json"
        # One line per field: a person can read it, and a difference between two records shows which field it is in.
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in content.items())
        atomic_write(self.folder / file, f"{{\n{lines}\n}}\n".encode())
        return Record(file, content)

    def make_folders(self) -> None:
        """The folder of records, and that of unfinished runs."""
        for folder in (self.folder, self.working):
            make_folder(folder, "choose another folder of records")


def _read(path: Path) -> Record:
    try:
        content = json.loads(path.read_text("utf-8"))
        wrong = problem(content, RecordFields)
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        wrong = f"{type(error).__name__}: {error}"
    if wrong:
        raise RunError(f"{path} is not a run record ({wrong}); delete it or restore it")
    record = Record(path.name, content)
    if path.stem != record.experiment.name:
        proper = f"{record.experiment.name}.json"
        fix = "delete it" if (path.parent / proper).exists() else f"rename it to {proper} or delete it"
        raise RunError(f"{path} is the record of {record.experiment.key}; {fix}")
    return record


def current_commit() -> str:
    """The commit of the source tree, with ``+changes`` if the package has some that are not committed.

    ``EANS_COMMIT`` stands in where there is no repository. One that happens to lie around an installed package, and
    does not track it, is none.
    """
    if commit := os.environ.get("EANS_COMMIT"):
        return commit
    if not _git("ls-files", "--", Path(__file__).name):
        return "unknown"
    commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--", "..")
    return f"{commit}{'+changes' if changes else ''}" if commit else "unknown"


def _git(*arguments: str) -> str:
    """What git says in the folder of this file; nothing where it fails, or there is none."""
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
