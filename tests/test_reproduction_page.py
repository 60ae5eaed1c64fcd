"""Figures from records, and the page of the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from eans.reproduction import FIGURES, TABLES, RunSpec, figures, page, read_cells, read_records
from eans.reproduction.selection import drawn_from
from helpers_reproduction import call, keep, made_up, memory

ROOT = Path(__file__).resolve().parent.parent
CELLS = read_cells()
EANS, UNIFORM = RunSpec("fb15k-237/transe/eans"), RunSpec("fb15k-237/transe/uniform")


def look(step: int, skew: float, **more: Any) -> dict[str, Any]:
    return {"step": step, "positive_score": -0.3, "negative_score": -1.7, "cdf": [skew, 1.0], **more}


HISTOGRAM = {"edges": [0.0, 0.5, 1.0], "true": [6, 2], "train": [1, 3], "held_out": [0, 0]}
ORDER = {
    "step": 9,
    "entities": 4,
    "points": [[0, 0.0, 1.0], [3, 1.0, 0.0]],
    "explained": [0.5, 0.2],
    "similarity": [[0.5, -0.1], [-0.1, 0.4]],
}


def all_records(folder: Path) -> Path:
    """Records from which every figure can be drawn."""
    for cell in drawn_from("small-n", CELLS):
        keep(folder, cell.run(), 0.2 + cell["negatives"] / 200, 0.4 + cell["negatives"] / 200)
    keep(folder, UNIFORM, analysis=[look(1000, 0.6), look(10_000, 0.8)])
    keep(folder, EANS, analysis=[look(1000, 0.5), look(10_000, 0.55, substitution=HISTOGRAM)], order=ORDER)
    return folder


def test_without_records_nothing_is_drawn(tmp_path: Path) -> None:
    records = memory(made_up(EANS))
    for name in FIGURES:
        assert not figures.can_draw(name, drawn_from(name, CELLS), records)
        assert not figures.draw(name, drawn_from(name, CELLS), records, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_small_n_data() -> None:
    few = drawn_from("small-n", CELLS)
    run = RunSpec("fb15k-237/transe/adv", ("sampler.negatives=4",))
    found = figures.small_n_data(few, memory(made_up(run, 0.25, 0.45), made_up(EANS)))
    assert list(found) == [("fb15k-237", "transe")]  # panels without a run are left out
    assert found["fb15k-237", "transe"]["mrr"] == {
        "published": {1: 0.334, 4: 0.335, 8: 0.337, 16: 0.338},
        "adv": {4: 0.25},
    }


def test_curves_are_means_over_seeds() -> None:
    contents = [
        made_up(RunSpec(EANS.recipe, seed=seed), analysis=[look(1000, 0.5 + 0.2 * seed), look(10, 0.5)])
        for seed in (0, 1)
    ]
    found = figures.cdf_data(drawn_from("negative-cdf", CELLS), memory(*contents))
    assert list(found) == ["eans"]
    assert list(found["eans"]) == [10, 1000]
    assert found["eans"][1000] == pytest.approx([0.6, 1.0])


def test_histograms_are_shares_of_their_group_at_the_last_step() -> None:
    other = {**HISTOGRAM, "true": [8, 0]}
    contents = [
        made_up(
            RunSpec(EANS.recipe, seed=seed), analysis=[look(1000, 0.5, substitution=other), look(9999, 0.5, **more)]
        )
        for seed, more in enumerate(({"substitution": HISTOGRAM}, {"substitution": other}))
    ]
    found = figures.substitution_data(drawn_from("substitution-histogram", CELLS), memory(*contents))
    assert found == {"edges": [0.0, 0.5, 1.0], "true": [14 / 16, 2 / 16], "train": [0.25, 0.75]}


def test_figures_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    records = all_records(tmp_path / "records")
    done = call(capsys, "report", *FIGURES, "--records", records, "--out", tmp_path / "out")
    assert done.status == 0, done.err
    for name in FIGURES:
        assert f"figure {name}: drawn" in done.err
        png, svg = (tmp_path / "out" / f"{figures.file_name(name)}.{ending}" for ending in ("png", "svg"))
        assert png.read_bytes().startswith(b"\x89PNG")
        assert "<svg" in svg.read_text("utf-8")
    first = svg.read_bytes()
    figures.draw("order", drawn_from("order", CELLS), read_records(records), tmp_path / "out")
    assert svg.read_bytes() == first  # the same records, the same file


# --- the page -------------------------------------------------------------------------------------------------------


def test_the_page_is_what_the_records_say() -> None:
    """`eans report --page docs/reproduction.md` brings it up to date."""
    folder = Path("records/paper")
    written = (ROOT / "docs" / "reproduction.md").read_text("utf-8")
    assert written == page.render(CELLS, read_records(ROOT / folder), folder)


def test_figures_of_the_page_are_there_in_both_formats() -> None:
    linked = re.findall(r"\(figures/(figure-[\w-]+)\.png\)", (ROOT / "docs" / "reproduction.md").read_text("utf-8"))
    assert linked
    for name in linked:
        assert (ROOT / "docs" / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (ROOT / "docs" / "figures" / f"{name}.svg").read_text("utf-8")


def test_commands_for_one_cell() -> None:
    records = memory(made_up(RunSpec(EANS.recipe, seed=1), analysis=[look(10_000, 0.5)]))
    text = page.render(CELLS, records, Path("records"))
    assert "```sh\neans reproduce score-gap --only sampler=eans,step=10000 --seeds 2\n```" in text
    assert "```sh\neans train fb15k-237/transe/eans --seed 1\n```" in text


def test_a_page_links_figures_it_can_draw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    records = all_records(tmp_path / "records")
    assert call(capsys, "report", "--page", tmp_path / "page.md", "--records", records).status == 0
    text = (tmp_path / "page.md").read_text("utf-8")
    for name in FIGURES:
        assert f"(figures/{figures.file_name(name)}.png)" in text
        assert (tmp_path / "figures" / f"{figures.file_name(name)}.png").is_file()
    assert "| FB15k-237 | TransE | EANS | 10,000 | -0.299 | -0.3000 | -0.0010 |" in text


def test_notes_belong_to_tables() -> None:
    notes = page.read_notes()
    assert set(notes) <= {"general", *TABLES}
    assert all(notes.values())
    text = page.render(CELLS, {}, Path("records/paper"))
    assert all(body in text for body in notes.values())
    assert "Nothing has been run yet." in text
