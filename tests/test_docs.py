"""The tables in the documentation are what the run records say."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import compare_samplers, fb15k237_cpu, performance_page
from benchmarks.cells import RECORDS, read_records
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve
from eans.recipes.library import validate
from eans.reproduction.columns import DATASET, METHOD, MODEL, Text, grouped, in_order, measured, published
from eans.reproduction.formats import markdown_table
from eans.reproduction.labels import without_zeros
from eans.reproduction.records import read_records as read_run_records
from eans.reproduction.report import Outcome, judge
from eans.reproduction.selection import read_cells, select
from eans.samplers import SAMPLERS
from helpers_runs import ring_graph

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "comparison.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("file", "table", "runs"),
    [
        (compare_samplers.FILE, compare_samplers.table, 48),
        (fb15k237_cpu.FILE, fb15k237_cpu.table, 4),
    ],
    ids=["samplers", "fb15k-237-cpu"],
)
def test_tables_come_from_records(file: Path, table: Callable[[list[dict[str, Any]]], str], runs: int) -> None:
    records = read_records(file)
    assert len({record["key"] for record in records}) == len(records) == runs
    assert table(records) in PAGE


@pytest.mark.parametrize(
    ("table", "only", "title", "place"),
    [
        ("main", "sampler=eans", "MRR, published → here", lambda cell: f"{DATASET.write(cell)}, {METHOD.write(cell)}"),
        ("best", "", "MRR, best published → here", DATASET.write),
    ],
    ids=["main", "best"],
)
def test_readme_says_what_is_reached(table: str, only: str, title: str, place: Callable[[Outcome], str]) -> None:
    """The MRR of EANS in the paper's main table, and of the recipes `best`: a row per model."""
    outcomes = judge(select(read_cells(), [table], only).cells, read_run_records(ROOT / "records" / "paper"))
    models = grouped(in_order(outcomes), MODEL.write)

    def write(outcome: Outcome) -> str:
        return f"{published('mrr', '').write(outcome)} → {measured('mrr', error=False).write(outcome)}"

    rows = [[name, *(without_zeros(write(outcome)) for outcome in row)] for name, row in models.items()]
    header = [title, *(place(outcome) for outcome in next(iter(models.values())))]
    text = markdown_table(Text([""] * len(header), header, rows, labels=1))
    assert f"\n{text}\n" in (ROOT / "README.md").read_text("utf-8"), text


def test_readme_table_comes_from_records() -> None:
    assert compare_samplers.summary(read_records(compare_samplers.FILE)) in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("name", performance_page.SECTIONS)
def test_performance_tables_come_from_records(name: str) -> None:
    """`python -m benchmarks.performance_page` brings the page up to date."""
    found = performance_page.written(performance_page.PAGE.read_text("utf-8"), name)
    if performance_page.content(performance_page.SECTIONS[name], RECORDS) is None:
        pytest.skip("not measured yet")
    assert found == performance_page.rendered(name)


PAGES = ["README.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md")))]


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    targets = [target for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text) if "://" not in target]
    assert [target for target in targets if not (ROOT / page).parent.joinpath(target).exists()] == []
    assert not re.search(r"^@\w+@$", text, re.MULTILINE)  # what a generator should have filled in


@pytest.mark.parametrize("name", [name for name in SAMPLERS if (ROOT / "docs" / "samplers" / f"{name}.md").exists()])
def test_recipes_of_samplers_load(name: str, tmp_path: Path) -> None:
    """The snippets on a sampler's page are recipes of that sampler, and can be built."""
    page = (ROOT / "docs" / "samplers" / f"{name}.md").read_text("utf-8")
    snippets = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert snippets
    for snippet in snippets:
        (tmp_path / "recipe.toml").write_text(snippet, "utf-8")
        recipe, graph = load(str(tmp_path / "recipe.toml")), ring_graph()
        assert recipe.sampler.name == name
        build_trainer(resolve(recipe, graph), graph)


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/samplers/*.md")), ids=lambda page: page.stem)
def test_recipe_snippets_are_recipes(page: Path) -> None:
    snippets = re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    assert snippets
    for snippet in snippets:
        validate(tomllib.loads(snippet))
