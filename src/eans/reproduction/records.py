"""Run records: one small JSON file per finished run, named after what was run.

=====================  ============================================================================================
``recipe``             its name; with ``overrides`` and ``seed`` it identifies the run
``run_as``             the recipe and the overrides as they were typed, where the recipe got its present name later
``recipe_hash``        of the resolved recipe without its seed; keys at their defaults do not count
``commit``             of the source tree
``versions``           of eans, PyTorch and Python
``hardware, device``   where it ran; ``runs_at_a_time`` says how many shared the device, on average
``date``               when it ended, UTC
``steps, seconds``     of training, with validations and checkpoints but without analyses; ``total_seconds`` has all
``valid, test``        metrics by side: both, head, tail
``protocol``           how ranks were computed, and of which triples
``curve, losses``      validations on the way; the first and the last logged loss
``analysis, order``    scores of negatives at some steps, and the final line of entities, for the runs that need them
=====================  ============================================================================================

What an older record does not know is absent.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from eans.errors import RunError, UsageError
from eans.files import atomic_write, make_folder
from eans.reproduction.checks import record_problem

LONGEST_NAME = 200  # file systems allow 255 bytes


@dataclass(frozen=True)
class RunSpec:
    """One run: a recipe name, overrides ``section.key=value`` and a seed."""

    recipe: str
    overrides: tuple[str, ...] = ()
    seed: int = 0

    @property
    def settings(self) -> str:
        """The run without its seed."""
        return " ".join([self.recipe, *self.overrides])

    @property
    def key(self) -> str:
        """What identifies the run among records."""
        return f"{self.settings} seed={self.seed}"

    @property
    def name(self) -> str:
        """A file name without ending, different for different runs.

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
    """A record and the name of its file."""

    file: str
    content: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.content[name]

    def get(self, name: str, default: Any = None) -> Any:
        """A field, or the default where the record does not know it."""
        return self.content.get(name, default)

    @property
    def spec(self) -> RunSpec:
        """The run it is of."""
        return RunSpec(self["recipe"], tuple(self["overrides"]), self["seed"])

    @property
    def test(self) -> dict[str, float]:
        """MR, MRR and Hits@10 on the test triples, both sides, under the names that published cells use."""
        both = self["test"]["both"]
        return {"mr": both["mr"], "mrr": both["mrr"], "hits10": both["hits@10"]}

    @property
    def valid(self) -> dict[str, float]:
        """MRR on the valid triples, both sides; nothing where the record does not know it."""
        both = self.get("valid", {}).get("both", {})
        return {"valid_mrr": both["mrr"]} if "mrr" in both else {}

    @property
    def is_analysed(self) -> bool:
        """Does it say how negatives scored on the way?"""
        return any(bool(look.get("logged")) for look in self.get("analysis", ()))

    @property
    def beside(self) -> float:
        """How many runs shared the device on average, this one included; 1 where nothing is known of others."""
        return float(self.get("runs_at_a_time", 1))

    @property
    def total_seconds(self) -> float:
        """From set-up to evaluation; training alone where no more is known."""
        return float(self.get("total_seconds", self["seconds"]))


def read_records(folder: Path) -> dict[RunSpec, Record]:
    """All records of a folder; a folder that does not exist has none."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder of run records")
    records = map(_read, sorted(folder.glob("*.json")))
    return {record.spec: record for record in records}


def find_record(folder: Path, spec: RunSpec) -> Record | None:
    """The record of one run under its usual name, if there is one."""
    path = folder / f"{spec.name}.json"
    return _read(path) if path.is_file() else None


def _read(path: Path) -> Record:
    try:
        content = json.loads(path.read_text("utf-8"))
        wrong = record_problem(content)
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        wrong = f"{type(error).__name__}: {error}"
    if wrong:
        raise RunError(f"{path} is not a run record ({wrong}); delete it or restore it")
    record = Record(path.name, dict(content))
    if path.stem != record.spec.name:
        proper = f"{record.spec.name}.json"
        fix = "delete it" if (path.parent / proper).exists() else f"rename it to {proper} or delete it"
        raise RunError(f"{path} is the record of {record.spec.key}; {fix}")
    return record


def write_record(folder: Path, spec: RunSpec, content: Mapping[str, Any]) -> Record:
    """Put a record into the folder, in one step; one of the same run is replaced."""
    make_folder(folder, "choose another --records")
    file = f"{spec.name}.json"
    # One line per field: a person can read it, and a difference between two records shows which field it is in.
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in content.items())
    atomic_write(folder / file, f"{{\n{lines}\n}}\n".encode())
    return Record(file, content)


def current_commit() -> str:
    """The commit of the source tree, with ``+changes`` if the package has some that are not committed.

    ``EANS_COMMIT`` stands in where there is no repository. One that happens to lie around an installed package, and
    does not track it, is none.
    """
    if commit := os.environ.get("EANS_COMMIT"):
        return commit
    if not git("ls-files", "--", Path(__file__).name):
        return "unknown"
    commit, changes = git("rev-parse", "HEAD"), git("status", "--porcelain", "--", "..")
    return f"{commit}{'+changes' if changes else ''}" if commit else "unknown"


def git(*arguments: str) -> str:
    """What git says in the folder of this file; nothing where it fails, or there is none."""
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
