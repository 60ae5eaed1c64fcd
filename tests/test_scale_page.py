"""The tables of docs/explanation/scale.md are those of the records and of the formulas, and the formulas hold."""

from __future__ import annotations

import pytest

from benchmarks import scale_page
from eans.data import Sizes

RECORDS = scale_page.records()


@pytest.mark.parametrize("name", scale_page.PARTS)
def test_tables_are_as_made(name: str) -> None:
    assert scale_page.written(scale_page.PAGE.read_text("utf-8"), name) == scale_page.PARTS[name]()


def test_there_are_records() -> None:
    assert {record["entities"] for record in RECORDS} >= {1_000_000, 5_000_000}
    for record in RECORDS:
        assert "+changes" not in record["commit"]
        assert record["valid"]["planted"]["mrr"] > record["valid"]["frequency"]["mrr"]


@pytest.mark.parametrize("place", range(len(RECORDS)))
def test_peaks_are_about_as_planned(place: int) -> None:
    record = RECORDS[place]
    sizes = Sizes(record["entities"], record["relations"], **record["graph"]["splits"])
    measured = record["peak_mb"]["rank"] if record["device"] == "cpu" else record["peak_gpu_mb"]
    assert scale_page.predicted(record, sizes) == pytest.approx(measured * 2**20, rel=0.25)


def test_a_page_without_marks_is_an_error() -> None:
    with pytest.raises(SystemExit, match="expected one part between"):
        scale_page.written("nothing", "runs")
