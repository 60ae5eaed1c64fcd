"""The tables in the documentation are what the run records say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import compare_samplers, cpu, cpu_report, fb15k237_cpu, paper_runs, performance_page
from benchmarks.cells import RECORDS, read_records

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "comparison.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("file", "table", "runs"),
    [
        (compare_samplers.FILE, compare_samplers.table, 48),
        (fb15k237_cpu.FILE, fb15k237_cpu.table, 4),
        (paper_runs.FILE, paper_runs.table, 4),
    ],
    ids=["samplers", "fb15k-237-cpu", "paper"],
)
def test_tables_come_from_records(file: Path, table: Callable[[list[dict[str, Any]]], str], runs: int) -> None:
    records = read_records(file)
    assert len({record["key"] for record in records}) == len(records) == runs
    assert table(records) in PAGE


def test_readme_table_comes_from_records() -> None:
    assert compare_samplers.summary(read_records(compare_samplers.FILE)) in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("name", performance_page.SECTIONS)
def test_performance_tables_come_from_records(name: str) -> None:
    """`python -m benchmarks.performance_page` brings the page up to date."""
    found = performance_page.written(performance_page.PAGE.read_text("utf-8"), name)
    if performance_page.content(performance_page.SECTIONS[name], RECORDS) is None:
        pytest.skip("not measured yet")
    assert found == performance_page.rendered(name)


def test_speed_tables_come_from_the_record() -> None:
    tables = cpu_report.report(json.loads(cpu.FILE.read_text("utf-8")))
    assert tables in (ROOT / "docs" / "cpu-speed.md").read_text("utf-8")


@pytest.mark.parametrize("page", ["README.md", *(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md"))])
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    targets = [target for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text) if "://" not in target]
    assert [target for target in targets if not (ROOT / page).parent.joinpath(target).exists()] == []
    assert not re.search(r"^@\w+@$", text, re.MULTILINE)  # what a generator should have filled in
