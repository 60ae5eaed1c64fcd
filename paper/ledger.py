"""The ledger: which recipes and seeds were chosen before the test triples were ranked, and what that gave, once.

``paper/ledger.jsonl`` has an entry per line, and entries are only added at the end. Each has the SHA-256 of the line
before it as ``previous``, so that a line that was changed, deleted or inserted is found when the file is read.

==========  ========================================================================================================
``opened``  the first entry: the SHA-256 of every record that was there before the ledger, by file: ``records``
``frozen``  chosen by valid alone, test not ranked yet: ``recipe, overrides, recipe_hash, seeds, why``
``ranked``  the test triples were ranked: ``recipe, overrides, recipe_hash, seed, record, sha256, mrr``
==========  ========================================================================================================

A record that is made under the ledger has the rank of every test triple (`eans.experiments.ranks`), so that two
methods can be compared triple by triple.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from eans.errors import RunError
from eans.experiments import Experiment, Fields, Record, RecordStore, current_commit, problem
from eans.files import atomic_write, cannot_read, make_folder, take_lock


class EntryFields(Fields):
    """An entry; which fields it has depends on its kind."""

    model_config = ConfigDict(extra="forbid")

    entry: Literal["opened", "frozen", "ranked"]
    previous: str
    date: str
    commit: str
    records: dict[str, str] = Field(default={})
    recipe: str = ""
    overrides: list[str] = Field(default=[])
    recipe_hash: str = ""
    seeds: list[Annotated[int, Field(ge=0)]] = Field(default=[])
    why: str = ""
    seed: Annotated[int, Field(ge=0)] = 0
    record: str = ""
    sha256: str = ""
    mrr: Annotated[float, Field(ge=0, le=1)] = 0.0


class Ledger:
    """The entries of a file that need not exist yet.

    Attributes:
        entries: in the order in which they were added.

    Raises:
        RunError: naming the line that is no entry, or does not follow the one before it.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.lines = _lines(file)
        self.entries = [_entry(file, number, self.lines) for number in range(len(self.lines))]

    @classmethod
    def beside(cls, records: Path) -> Ledger | None:
        """The ledger of a folder of records, if it has one."""
        file = records.parent / "ledger.jsonl"
        return cls(file) if file.exists() else None

    def hashes(self) -> dict[str, str]:
        """By file, the SHA-256 of each record for which test was ranked."""
        found: dict[str, str] = {}
        for entry in self.entries:
            found |= entry.get("records", {})
            if entry["entry"] == "ranked":
                found[entry["record"]] = entry["sha256"]
        return found

    def is_ranked(self, experiment: Experiment) -> bool:
        """Were the test triples ranked for it?"""
        return f"{experiment.name}.json" in self.hashes()

    def is_frozen(self, experiment: Experiment, recipe_hash: str) -> bool:
        """Was it chosen, with this seed and this very recipe?"""
        wanted = {"recipe": experiment.recipe, "overrides": list(experiment.overrides), "recipe_hash": recipe_hash}
        return any(
            entry["entry"] == "frozen"
            and experiment.seed in entry["seeds"]
            and all(entry[name] == value for name, value in wanted.items())
            for entry in self.entries
        )

    def open(self, store: RecordStore) -> None:
        """The first entry, of all records that have test metrics."""
        records = [record for record in store.read().values() if record.get("test") is not None]
        self._add({"entry": "opened", "records": {record.file: sha256_of(store, record) for record in records}})

    def freeze(self, settings: Experiment, recipe_hash: str, seeds: Sequence[int], why: str) -> None:
        """Choose a recipe, and the seeds to train it with."""
        what = _identity(settings) | {"recipe_hash": recipe_hash, "seeds": list(seeds), "why": why}
        self._add({"entry": "frozen", **what})

    def enter(self, store: RecordStore) -> list[Record]:
        """Add the records with test metrics that the ledger does not know; returns them.

        Raises:
            RunError: a record's recipe was not frozen.
        """
        new = []
        for experiment, record in store.read().items():
            if record.get("test") is None or self.is_ranked(experiment):
                continue
            if not self.is_frozen(experiment, record["recipe_hash"]):
                raise RunError(f"{store.folder / record.file} ranks test, and {self.file} has not frozen its recipe")
            numbers = {"sha256": sha256_of(store, record), "mrr": record["test"]["both"]["mrr"]}
            what = _identity(experiment) | {"recipe_hash": record["recipe_hash"], "seed": experiment.seed}
            self._add({"entry": "ranked", **what, "record": record.file, **numbers})
            new.append(record)
        return new

    def _add(self, content: dict[str, Any]) -> None:
        lock = self.file.parent / ".running" / f"{self.file.name}.lock"
        make_folder(lock.parent)
        with contextlib.closing(take_lock(lock, f"another process writes {self.file}")):
            if _lines(self.file) != self.lines:
                raise RunError(f"{self.file} has been written by another process; call again")
            common = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "commit": current_commit()}
            lines = [*self.lines, json.dumps({**content, **common, "previous": _previous(self.lines)})]
            atomic_write(self.file, "".join(f"{line}\n" for line in lines).encode())
        self.lines = lines
        self.entries.append(_entry(self.file, len(lines) - 1, lines))


def sha256_of(store: RecordStore, record: Record) -> str:
    """Of a record's file."""
    return hashlib.sha256((store.folder / record.file).read_bytes()).hexdigest()


def _identity(experiment: Experiment) -> dict[str, Any]:
    return {"recipe": experiment.recipe, "overrides": list(experiment.overrides)}


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise cannot_read(file, error) from error
    except UnicodeDecodeError as error:
        raise RunError(f"{file} is not UTF-8 ({error}); restore the file") from error


def _previous(lines: Sequence[str]) -> str:
    return hashlib.sha256(lines[-1].encode()).hexdigest() if lines else ""


def _entry(file: Path, number: int, lines: Sequence[str]) -> dict[str, Any]:
    """One line, checked."""
    place = f"{file}, line {number + 1}"
    try:
        content = json.loads(lines[number])
        wrong = problem(content, EntryFields)
    except ValueError as error:
        raise RunError(f"{place} is not JSON ({error}); restore the file") from error
    if wrong:
        raise RunError(f"{place} is not an entry of the ledger ({wrong}); restore the file")
    if content["previous"] != _previous(lines[:number]):
        raise RunError(f"{place} does not follow the line before it: one of them was changed; restore the file")
    return dict(content)
