"""The ledger: test is ranked once, for what was frozen before; lines are only added; records are as they were made."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from eans.errors import RunError
from eans.experiments import Experiment, RecordStore
from eans.experiments.ranks import ranks_of
from helpers_paper import TINY, call, keep, tiny_cell, write_cells
from helpers_runs import one_line
from paper.ledger import Ledger

ROOT = Path(__file__).resolve().parent.parent
LEDGER = ROOT / "paper/ledger.jsonl"
RECORDS = RecordStore(ROOT / "paper/records")
EXPERIMENT = Experiment("wordnet-core/transe/uniform", TINY)
OLD = Experiment("wordnet-core/transe/adv", TINY)

Command = Callable[..., tuple[object, str, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """A command of the paper about two tiny cells, one of which has a record from before the ledger."""
    cells = write_cells(tmp_path / "cells.toml", tiny_cell(), tiny_cell(self_adversarial=True))
    keep(tmp_path / "records", OLD)

    def command(name: str, *options: str, seeds: int = 1) -> tuple[object, str, str]:
        places = ("--cells", cells, "--records", tmp_path / "records", "--seeds", str(seeds))
        return call(capsys, name, "main", *places, *options)

    return command


def test_test_is_ranked_once_for_what_was_frozen(run: Command, tmp_path: Path) -> None:
    file, records = tmp_path / "ledger.jsonl", tmp_path / "records"
    status, out, _ = run("freeze", "--why", "the only trial")
    assert (status, out) == (0, f"frozen: {EXPERIMENT.settings}, seed 0\ncommit {file} before test is ranked\n")
    opened, frozen = Ledger(file).entries
    assert opened["records"] == {f"{OLD.name}.json": sha256(records / f"{OLD.name}.json")}
    assert (frozen["seeds"], frozen["why"]) == ([0], "the only trial")
    status, _, error = run("reproduce", seeds=2)  # seed 1 is not frozen
    assert status == 2
    assert "seed=1 is not frozen" in one_line(error)
    assert not (records / f"{EXPERIMENT.name}.json").exists()

    assert run("reproduce")[0] == 0
    record = RecordStore(records).find(EXPERIMENT)
    assert record is not None
    ranks = ranks_of(record, "test")
    assert (1 / ranks).mean() == pytest.approx(record["test"]["both"]["mrr"], abs=1e-9)
    entry = Ledger(file).entries[-1]
    assert (entry["entry"], entry["record"], entry["seed"]) == ("ranked", record.file, 0)
    assert (entry["sha256"], entry["mrr"]) == (sha256(records / record.file), record["test"]["both"]["mrr"])

    assert run("reproduce")[0] == 0  # has its record: nothing to run
    assert len(Ledger(file).entries) == 3
    (records / record.file).unlink()
    status, _, error = run("reproduce")
    assert status == 2
    assert "was ranked for wordnet-core/transe/uniform" in one_line(error)
    assert run("reproduce", "--no-test")[0] == 0  # valid may be ranked as often as anybody likes
    assert run("freeze", "--why", "again")[1] == "all of it has been frozen or ranked before\n"


def test_a_record_that_nobody_froze_is_an_error(run: Command, tmp_path: Path) -> None:
    assert run("freeze", "--why", "the only trial")[0] == 0
    keep(tmp_path / "records", Experiment(EXPERIMENT.recipe, TINY, 7), recipe_hash="0123")
    status, _, error = run("reproduce")
    assert status == 1
    assert "has not frozen its recipe" in one_line(error)


def test_records_of_a_call_that_was_killed_are_entered_later(run: Command, tmp_path: Path) -> None:
    assert run("freeze", "--why", "the only trial", seeds=2)[0] == 0
    hashed = Ledger(tmp_path / "ledger.jsonl").entries[1]["recipe_hash"]
    keep(tmp_path / "records", EXPERIMENT, recipe_hash=hashed)
    assert run("reproduce")[0] == 0
    assert Ledger(tmp_path / "ledger.jsonl").is_ranked(EXPERIMENT)


@pytest.mark.parametrize("options", [("--why", " "), (), ("--why", "x", "--seeds", "0")])
def test_freezing_needs_a_reason_and_seeds(run: Command, tmp_path: Path, options: tuple[str, ...]) -> None:
    status, _, error = run("freeze", *options)
    assert status == 2
    assert one_line(error)
    assert not (tmp_path / "ledger.jsonl").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: [lines[0].replace("2", "3", 1), *lines[1:]], "line 2 does not follow"),
        (lambda lines: lines[1:], "line 1 does not follow"),
        (lambda lines: [lines[0], lines[1], lines[0]], "line 3 does not follow"),
        (lambda lines: [*lines, "{"], "line 3 is not JSON"),
        (lambda lines: [*lines, '{"entry": "thawed"}'], "line 3 is not an entry"),
    ],
)
def test_a_changed_file_is_found(
    run: Command, tmp_path: Path, change: Callable[[list[str]], list[str]], words: str
) -> None:
    run("freeze", "--why", "the only trial")
    file = tmp_path / "ledger.jsonl"
    file.write_text("".join(f"{line}\n" for line in change(file.read_text().splitlines())))
    with pytest.raises(RunError, match=words):
        Ledger(file)
    assert run("reproduce")[0] == 1


def test_two_processes_do_not_overwrite_each_other(run: Command, tmp_path: Path) -> None:
    run("freeze", "--why", "the only trial")
    first, second = Ledger(tmp_path / "ledger.jsonl"), Ledger(tmp_path / "ledger.jsonl")
    first.freeze(EXPERIMENT, "0123", [5], "one")
    with pytest.raises(RunError, match="written by another process"):
        second.freeze(EXPERIMENT, "0123", [6], "two")
    assert [entry["seeds"] for entry in Ledger(first.file).entries[1:]] == [[0], [5]]


# --- the ledger of this repository ------------------------------------------------------------------------------------


def test_records_are_as_they_were_made() -> None:
    found = {file.name: sha256(file) for file in RECORDS.folder.glob("*.json")}
    known = Ledger(LEDGER).hashes()
    ranked = {record.file for record in RECORDS.read().values() if record.get("test") is not None}
    assert ranked <= known.keys()  # the page is made from these alone, see test_paper_page
    assert {file: sha for file, sha in found.items() if file in known} == known


def test_every_ranking_was_frozen_in_a_commit_before_it() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    ranked = [entry for entry in Ledger(LEDGER).entries if entry["entry"] == "ranked"]
    for entry in ranked:
        commit = json.loads((RECORDS.folder / entry["record"]).read_text("utf-8"))["commit"]
        frozen = [
            one
            for one in frozen_at(commit.partition("+")[0])
            if (one["recipe"], one["overrides"], one["recipe_hash"])
            == (entry["recipe"], entry["overrides"], entry["recipe_hash"])
        ]
        assert any(entry["seed"] in one["seeds"] for one in frozen), entry["record"]


@cache
def frozen_at(commit: str) -> list[dict[str, object]]:
    """The frozen entries of the ledger at a commit."""
    command = ["git", "-C", str(ROOT), "show", f"{commit}:paper/ledger.jsonl"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [entry for entry in map(json.loads, text.splitlines()) if entry["entry"] == "frozen"]


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
