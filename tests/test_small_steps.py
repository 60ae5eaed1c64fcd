"""What a small step costs: that the program measures what it says, and that the record is its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("numba")

from benchmarks import small_steps
from benchmarks.cells import read_records
from eans import kernels
from eans.kernels import numba_threads


def test_each_way_is_what_it_says() -> None:
    before, limit, threads = kernels.current(), numba_threads.SHARED_FROM, torch.get_num_threads()
    found = {}
    torch.set_num_threads(2)
    try:
        for way in small_steps.WAYS:
            with small_steps.working(way), kernels.small_operations(torch.device("cpu"), 1000):
                found[way] = kernels.current(), torch.get_num_threads()
    finally:
        torch.set_num_threads(threads)
    assert found == {"eans": ("numba", 1), "all threads": ("numba", 2), "PyTorch": ("reference", 2)}
    assert (kernels.current(), numba_threads.SHARED_FROM) == (before, limit)


def test_one_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_steps, "POLICIES", {"PASSIVE": "asleep"})
    out = tmp_path / "steps.jsonl"
    assert small_steps.main(["--models", "distmult", "--repeats", "1", "--out", str(out)]) == 0
    lines = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert [(line["recipe"], line["waiting"]) for line in lines] == [("distmult/eans", "asleep")]
    assert all(lines[0]["ms"][way] > 0 for way in small_steps.WAYS)


def test_no_repeats(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        small_steps.main(["--repeats", "0"])
    assert "error: --repeats must be at least 1" in capsys.readouterr().err


def test_the_record_has_every_model() -> None:
    lines = read_records(small_steps.FILE)
    expected = [(f"{model}/eans", how) for how in small_steps.POLICIES.values() for model in small_steps.MODELS]
    assert [(line["recipe"], line["waiting"]) for line in lines] == expected
    assert all(len(line["commit"]) >= 40 for line in lines)
