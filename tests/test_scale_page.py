"""The tables of docs/explanation/scale.md are those of the records and of the formulas, and the formulas hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import scale_page

RECORDS = scale_page.records()


@pytest.mark.parametrize("name", scale_page.PARTS)
def test_tables_are_as_made(name: str) -> None:
    assert scale_page.written(scale_page.PAGE.read_text("utf-8"), name) == scale_page.PARTS[name]()


def test_there_are_records() -> None:
    assert {record["entities"] for record in RECORDS} >= {1_000_000, 5_000_000}
    for record in RECORDS:
        assert "+changes" not in record["commit"]
        assert record["valid"]["planted"]["mrr"] > record["valid"]["frequency"]["mrr"]


def test_plans_were_about_right() -> None:
    for record in RECORDS:
        assert record["planned"] == pytest.approx(scale_page.measured(record), rel=0.1)


def test_a_run_is_planned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tmp_path / "large.jsonl"
    run = scale_page.read(scale_page.FILE)[0]
    runs.write_text(json.dumps(run) + "\n", "utf-8")
    monkeypatch.setattr(scale_page, "FILE", runs)
    monkeypatch.setattr(scale_page, "PLANS", tmp_path / "plans.jsonl")
    monkeypatch.setattr(scale_page, "predicted", lambda record: record["entities"])
    scale_page.plan_runs()
    assert [record["planned"] for record in scale_page.records()] == [run["entities"]]
    monkeypatch.setattr(scale_page, "predicted", lambda _: 0)
    runs.write_text(2 * (json.dumps(run) + "\n"), "utf-8")
    scale_page.plan_runs()
    assert [record["planned"] for record in scale_page.records()] == [run["entities"], 0]


def test_a_page_without_marks_is_an_error() -> None:
    with pytest.raises(SystemExit, match="expected one part between"):
        scale_page.written("nothing", "runs")
