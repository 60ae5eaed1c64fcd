"""What a step costs as a graph grows: that the program measures what it says, and that the record is its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import graph_sizes
from benchmarks.cells import read_records
from eans import kernels
from eans.recipes import load

KEYS = [f"{optimizer} {way}" for optimizer in graph_sizes.OPTIMIZERS for way in graph_sizes.IMPLEMENTATIONS]


def test_small_graphs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("numba")
    before = kernels.current()
    out = tmp_path / "sizes.jsonl"
    assert graph_sizes.main(["--entities", "300", "900", "--repeats", "1", "--out", str(out)]) == 0
    lines = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert [line["entities"] for line in lines] == [300, 900]
    assert all(line[key] > 0 for line in lines for key in KEYS)
    assert capsys.readouterr().out.count("adagrad") == 4
    assert kernels.current() == before


@pytest.mark.parametrize("arguments", [["--entities", "0"], ["--repeats", "0"]], ids=str)
def test_sizes_that_are_none(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        graph_sizes.main(arguments)
    assert "error: --entities and --repeats must be at least 1" in capsys.readouterr().err


def test_the_record_has_every_size() -> None:
    lines = read_records(graph_sizes.FILE)
    assert tuple(line["entities"] for line in lines) == graph_sizes.ENTITIES
    for line in lines:
        assert tuple(line["overrides"]) == graph_sizes.OVERRIDES
        assert load(line["recipe"], line["overrides"]).model.dim == graph_sizes.DIM
        assert set(KEYS) <= line.keys()
        assert len(line["commit"]) >= 40
