"""Figures from records, and the page of the documentation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from eans.experiments import Experiment, RecordStore
from eans.figures import STYLE
from helpers_paper import call, keep, made_up, memory, tiny_cell, valid, write_cells
from paper import figures, page, recommendation
from paper.captions import caption
from paper.cells import Cell
from paper.figure_data import cdf_data, find, fingerprint, small_n_data, substitution_data
from paper.overview import anchor, not_run, overview
from paper.report import judge
from paper.schema import read_records
from paper.selection import FIGURES, drawn_from, read_cells
from paper.tables import PAPER_TABLES, TABLES

ROOT = Path(__file__).resolve().parent.parent
CELLS = read_cells()
# The runs that the table of scores and its figures are about, with self-adversarial weights both.
EANS, UNIFORM = Experiment("fb15k-237/transe/eans+adv"), Experiment("fb15k-237/transe/adv")


def analysis_at(step: int, skew: float, **more: Any) -> dict[str, Any]:
    logged = {"positive_score": -0.3, "negative_score": -1.7}
    return {"step": step, "logged": logged, "cdf": [skew, 1.0], **more}


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
    keep(folder, UNIFORM, analysis=[analysis_at(1000, 0.6), analysis_at(10_000, 0.8)])
    keep(
        folder, EANS, analysis=[analysis_at(1000, 0.5), analysis_at(10_000, 0.55, substitution=HISTOGRAM)], order=ORDER
    )
    return folder


def test_without_records_nothing_is_drawn(tmp_path: Path) -> None:
    records = memory(made_up(EANS))
    for name in FIGURES:
        assert not find(name, drawn_from(name, CELLS), records)
        assert not figures.draw(name, drawn_from(name, CELLS), records, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_small_n_data() -> None:
    few = drawn_from("small-n", CELLS)
    run = Experiment("fb15k-237/transe/adv", ("sampler.negatives=4",))
    found = small_n_data(few, memory(made_up(run, 0.25, 0.45), made_up(Experiment("fb15k-237/transe/eans"))))
    assert list(found) == [("fb15k-237", "transe")]  # panels without a run are left out
    assert found["fb15k-237", "transe"]["mrr"] == {
        "published": {1: 0.334, 4: 0.335, 8: 0.337, 16: 0.338},
        "adv": {4: 0.25},
    }


def test_only_numbers_of_eans_are_drawn_as_its_own() -> None:
    common = {"table": "small-n", "negatives": 4}
    cells = [
        tiny_cell(**common, sampler="eans", mrr=0.3),
        tiny_cell(**common, self_adversarial=True, mrr=0.2),
        tiny_cell(**common, sampler="nscaching", mrr=0.1),
    ]
    records = memory(*(made_up(cell.run(), 0.25) for cell in cells))
    ((_, panel),) = find("small-n", cells, records).items()
    assert panel["mrr"] == {"published": {4: 0.3}, "eans": {4: 0.25}, "adv": {4: 0.25}}
    assert find("small-n", cells[2:], records) == {}


def gap_cell(**fields: Any) -> Cell:
    """A cell of the table of scores on the bundled graph."""
    scores = {"table": "score-gap", "step": 10, "positive_score": -0.3, "negative_score": -1.7}
    place = {name: value for name, value in tiny_cell().fields.items() if name not in ("mrr", "hits10")}
    return Cell({**place, **scores, "sampler": "eans", **fields})


def test_figures_show_one_graph_and_model_and_say_which() -> None:
    """Cells of several, of several methods and with several settings: the first of each."""
    first, other = gap_cell(), gap_cell(dataset="wn18rr")
    cells = [
        *(first, gap_cell(overrides=["model.dim=8"]), gap_cell(self_adversarial=True), other),
        *(gap_cell(sampler="uniform", model="rotate"), gap_cell(sampler="uniform")),
    ]
    contents = []
    for number, cell in enumerate(cells):
        histogram = {**HISTOGRAM, "true": [number, 8]}
        analysis = [analysis_at(10, 0.1 * number, substitution=histogram)]
        contents.append(made_up(cell.run(3 if cell is first else 0), analysis=analysis, order=ORDER))
    records = memory(*contents)
    found = find("negative-cdf", cells, records)
    assert {method: curves[10][0] for method, curves in found.items()} == {"uniform": 0.5, "eans": 0.0, "eans+adv": 0.2}
    of_eans = [cell for cell in cells if cell["sampler"] == "eans"]
    assert find("substitution-histogram", of_eans, records)["true"] == [0.0, 1.0]
    assert find("order", of_eans, records)["seed"] == 3
    for name, start, chosen in (
        ("negative-cdf", ": TransE on wordnet-core; 1 seed each. In the", cells),
        ("substitution-histogram", ": TransE on wordnet-core with EANS; seed 3. In the", of_eans),
        ("order", ": TransE on wordnet-core with EANS; seed 3. The", of_eans),
        ("order", ": TransE on WN18RR with EANS; seed 0. The", [other, first]),
        ("order", ": TransE on wordnet-core with EANS + self-adv.; seed 0. The", of_eans[2:]),
    ):
        assert start in caption(name, find(name, chosen, records), chosen, records)


def test_what_a_figure_leaves_out_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    cells = [gap_cell(), gap_cell(model="rotate")]
    file = write_cells(tmp_path / "cells.toml", *cells)
    keep(tmp_path / "records", cells[1].run(), order=ORDER)
    options = ["--cells", file, "--records", tmp_path / "records", "--out", tmp_path / "out"]
    done = call(capsys, "report", "order", *options)
    remark = "(TransE on wordnet-core alone; --only chooses others)"
    assert (done.status, done.err) == (0, f"figure order: no records to draw it from {remark}\n")
    assert call(capsys, "report", "order", "--only", "model=rotate", *options).err == "figure order: drawn\n"


def test_curves_are_means_over_seeds() -> None:
    contents = [
        made_up(
            Experiment(EANS.recipe, seed=seed), analysis=[analysis_at(1000, 0.5 + 0.2 * seed), analysis_at(10, 0.5)]
        )
        for seed in (0, 1)
    ]
    found = cdf_data(drawn_from("negative-cdf", CELLS), memory(*contents))
    assert list(found) == ["eans+adv"]
    assert list(found["eans+adv"]) == [10, 1000]
    assert found["eans+adv"][1000] == pytest.approx([0.6, 1.0])


def test_curves_of_other_lengths_are_left_out() -> None:
    """A damaged record should not keep the others from being drawn."""
    contents = [
        made_up(Experiment(EANS.recipe, seed=seed), analysis=[analysis_at(1000, 0.5 + 0.1 * seed)]) for seed in range(3)
    ]
    contents[0]["analysis"][0]["cdf"] = [0.2, 0.3, 1.0]
    contents.append(made_up(Experiment(EANS.recipe, seed=3), analysis=[{**analysis_at(1000, 0.5), "cdf": None}]))
    found = cdf_data(drawn_from("negative-cdf", CELLS), memory(*contents))
    assert found["eans+adv"][1000] == pytest.approx([0.65, 1.0])


def test_histograms_are_shares_of_their_group_at_the_last_step() -> None:
    other = {**HISTOGRAM, "true": [8, 0]}
    contents = [
        made_up(
            Experiment(EANS.recipe, seed=seed),
            analysis=[analysis_at(1000, 0.5, substitution=other), analysis_at(9999, 0.5, **more)],
        )
        for seed, more in enumerate(({"substitution": HISTOGRAM}, {"substitution": other}))
    ]
    found = substitution_data(drawn_from("substitution-histogram", CELLS), memory(*contents))
    assert found == {"edges": [0.0, 0.5, 1.0], "true": [14 / 16, 2 / 16], "train": [0.25, 0.75]}


def test_figures_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    records = all_records(tmp_path / "records")
    formats = "svg", "png", "pdf"
    done = call(capsys, "report", *FIGURES, "--records", records, "--out", tmp_path / "out")
    assert done.status == 0, done.err
    for name in FIGURES:
        assert f"figure {name}: drawn" in done.err
        files = svg, png, pdf = [tmp_path / "out" / f"{figures.file_name(name)}.{ending}" for ending in formats]
        assert png.read_bytes().startswith(b"\x89PNG")
        assert "<svg" in svg.read_text("utf-8")
        assert pdf.read_bytes().startswith(b"%PDF")
        assert "TransE on FB15k-237" in pdf.with_suffix(".txt").read_text("utf-8")
    first = [file.read_bytes() for file in files]
    figures.draw("order", drawn_from("order", CELLS), read_records(RecordStore(records)), tmp_path / "out", formats)
    assert [file.read_bytes() for file in files] == first  # the same records, the same files


def test_figures_and_tables_without_a_chosen_cell_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = all_records(tmp_path / "records")
    only = ["--only", "model=distmult", "--records", records]
    done = call(capsys, "report", "small-n", *only, "--out", tmp_path / "out")
    assert done.err.splitlines()[-1] == "figure small-n: it shows none of the chosen cells"
    done = call(capsys, "report", "main", "ablation", *only)
    assert (done.status, done.err) == (0, "paper: note: no cell of ablation fulfils --only model=distmult\n")


def test_histograms_with_other_bins_are_left_out() -> None:
    two = (HISTOGRAM, {**HISTOGRAM, "edges": [0.0, 0.4, 1.0]})
    contents = [
        made_up(Experiment(EANS.recipe, seed=seed), analysis=[analysis_at(1000, 0.5, substitution=histogram)])
        for seed, histogram in enumerate(two)
    ]
    found = substitution_data(drawn_from("substitution-histogram", CELLS), memory(*contents))
    assert found == {"edges": [0.0, 0.5, 1.0], "true": [0.75, 0.25], "train": [0.25, 0.75]}


@pytest.fixture
def drawing() -> Iterator[Any]:
    """An empty figure in the style of all figures."""
    matplotlib, figure = pytest.importorskip("matplotlib"), pytest.importorskip("matplotlib.figure")
    with matplotlib.rc_context(STYLE):
        yield figure.Figure(layout="constrained")


@pytest.mark.parametrize("panels", [1, 2, 4])
def test_the_legend_fits_and_names_what_is_there(drawing: Any, panels: int) -> None:
    """The first panel has one line, the last one all of them."""
    places = [("fb15k-237", "transe"), ("fb15k-237", "complex"), ("wn18rr", "transe"), ("wn18rr", "complex")]
    one: dict[str, dict[int, float]] = {"eans": {1: 0.3, 4: 0.4}}
    lines = {**one, "adv": {1: 0.2}, "published": {1: 0.31}}
    data = {place: {"mrr": one, "hits10": one} for place in places[:panels]}
    data[places[panels - 1]] = {"mrr": lines, "hits10": lines}
    drawing.set_size_inches(*figures.DRAWERS["small-n"].size(data))
    figures.draw_small_n(data, drawing)
    drawing.draw_without_rendering()
    (legend,) = drawing.legends
    assert {text.get_text() for text in legend.get_texts()} == {"EANS", "self-adversarial", "EANS, published"}
    box = legend.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= drawing.bbox.width


def test_the_legend_names_nothing_else(drawing: Any) -> None:
    panel = {name: {"eans": {1: 0.3}} for name in ("mrr", "hits10")}
    figures.draw_small_n({("fb15k-237", "transe"): panel}, drawing)
    assert [text.get_text() for text in drawing.legends[0].get_texts()] == ["EANS"]


def test_grid_lines_lie_below_the_histogram(drawing: Any) -> None:
    figures.draw_substitution({"edges": [0.0, 1.0], "true": [1.0]}, drawing)
    assert drawing.axes[0].get_axisbelow() is True


def test_captions_say_what_was_drawn() -> None:
    few = Experiment("fb15k-237/transe/eans", ("sampler.negatives=1",))
    records = memory(
        *(made_up(Experiment(few.recipe, few.overrides, seed)) for seed in (0, 1)),
        made_up(
            Experiment(EANS.recipe, seed=2), analysis=[analysis_at(1000, 0.5, substitution=HISTOGRAM)], order=ORDER
        ),
    )

    def written(name: str) -> str:
        cells = drawn_from(name, CELLS)
        return caption(name, find(name, cells, records), cells, records)

    start = "MRR and Hits@10 against the number of negatives: TransE on FB15k-237; seeds 0-1. Not run yet: "
    missing = "FB15k-237: TransE (EANS (n = 4, 8, 16), self-adversarial), ComplEx; WN18RR. In the paper's figure"
    assert written("small-n").startswith(start + missing)
    softmax = "How the negatives of a positive share the softmax weight: TransE on FB15k-237; seed 2. Not run yet: "
    missing = "self-adversarial, EANS + self-adv. (step 10,000, step 100,000). In the paper's"
    assert written("negative-cdf").startswith(softmax + missing)
    place = "TransE on FB15k-237 with EANS + self-adv.; seed 2."
    scores = f"Substitution scores of true and false negatives: {place} In the paper's"
    assert written("substitution-histogram").startswith(scores)
    apart = "a false one scores higher than a true one in 75 of 100 pairs if train knows it."  # 9/16 + 3/16, ties half
    assert written("substitution-histogram").endswith(f"Here 0 % of the true ones score 0.8 or more, and {apart}")
    assert written("order").endswith(f"{place} The paper has no such figure.")


def test_figures_do_not_ask_for_what_they_do_not_show() -> None:
    """A record without the means of the table of scores has the curves all the same."""
    analyses = [{**analysis_at(step, 0.5, substitution=HISTOGRAM), "logged": None} for step in (1000, 10_000, 100_000)]
    records = memory(*(made_up(spec, analysis=analyses, order=ORDER) for spec in (EANS, UNIFORM)))
    for name in ("negative-cdf", "substitution-histogram", "order"):
        cells = drawn_from(name, CELLS)
        written = caption(name, find(name, cells, records), cells, records)
        assert "; seed 0. " in written
        assert "Not run yet" not in written


def test_captions_count_seeds_where_they_differ() -> None:
    cells = [cell for cell in drawn_from("small-n", CELLS) if cell.method == "eans"][:2]
    records = memory(*(made_up(cells[n].run(seed)) for n, seed in ((0, 0), (0, 1), (0, 2), (1, 0))))
    assert "; 1 to 3 seeds each. In the" in caption("small-n", small_n_data(cells, records), cells, records)
    records = memory(*(made_up(cells[n].run(n)) for n in (0, 1)))
    assert "; 1 seed each. In the" in caption("small-n", small_n_data(cells, records), cells, records)


def test_files_tell_what_they_were_drawn_from(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib")
    cells = drawn_from("negative-cdf", CELLS)
    data = [memory(made_up(EANS, analysis=[analysis_at(1000, skew)])) for skew in (0.5, 0.6)]
    figures.draw("negative-cdf", cells, data[0], tmp_path)
    first, second = (fingerprint(find("negative-cdf", cells, records)) for records in data)
    assert first != second
    png, svg = (tmp_path / f"figure-negative-cdf.{ending}" for ending in ("png", "svg"))
    with image.open(png) as opened:
        opened.load()
        assert opened.text["Description"] == f"data {first}"
    described = [element.text for element in ElementTree.parse(svg).iter() if element.tag.endswith("}description")]
    assert described == [f"data {first}"]


# --- the page -------------------------------------------------------------------------------------------------------


def test_the_page_is_what_the_records_say() -> None:
    """`python -m paper report --page docs/results/reproduction.md` brings it up to date."""
    folder = Path("paper/records")
    written = (ROOT / "docs" / "results" / "reproduction.md").read_text("utf-8")
    assert written == page.render(CELLS, read_records(RecordStore(ROOT / folder)), folder)


def test_figures_of_the_page_are_drawn_from_the_records() -> None:
    """`python -m paper report --page docs/results/reproduction.md` draws them again."""
    text = (ROOT / "docs" / "results" / "reproduction.md").read_text("utf-8")
    linked = re.findall(r'<img src="figures/figure-([\w-]+)\.png"', text)
    assert linked
    records = read_records(RecordStore(ROOT / "paper" / "records"))
    for name in linked:
        drawn = fingerprint(find(name, drawn_from(name, CELLS), records))
        for ending in ("png", "svg"):
            content = (ROOT / "docs" / "results" / "figures" / f"{figures.file_name(name)}.{ending}").read_bytes()
            assert f"data {drawn}".encode() in content, name


def test_links_within_the_page_lead_to_its_headings() -> None:
    text = (ROOT / "docs" / "results" / "reproduction.md").read_text("utf-8")
    headings = Counter(anchor(title) for title in re.findall("^##+ (.*)$", text, re.MULTILINE))
    linked = set(re.findall(r"\]\(#([^)]*)\)", text))
    assert {anchor(TABLES[name].title) for name in PAPER_TABLES} <= linked
    assert {name: headings[name] for name in linked if headings[name] != 1} == {}


def test_the_page_begins_with_the_outcome() -> None:
    contents = [made_up(Experiment(EANS.recipe, seed=seed), 0.342, 0.534) for seed in (0, 1)]
    records = memory(*contents, made_up(Experiment("fb15k-237/rotate/uniform"), 0.29, 0.5))
    text = page.render(CELLS, records, Path("records"))
    start, rest = text.split("\n## What makes the difference\n")
    assert "\n\n| table | cells | pass | fail | not run |\n|---|---:|---:|---:|---:|\n" in start
    assert "| [Main results](#main-results) | 62 | 1 | 1 | 60 |\n" in start
    assert "| **the paper, all in all** | 146 | 2 | 2 | 142 |\n" in start
    assert "The verdicts on 4 cells rest on 3 runs, as tables share them; 2 of these cells" in start
    assert re.findall("^- .*$", start, re.MULTILINE) == [
        f"- {link}, FB15k-237 RotatE, uniform (quoted): MRR .295 → .2900 (-.0050), Hits@10 .478 → .5000 (+.0220)"
        for link in ("[Main results](#main-results)", "[Ablation](#ablation)")
    ]
    titles = "Main results", "What the open choices do", "What the paper does not say", "How it was measured"
    order = [rest.index(f"\n## {title}\n") for title in titles]
    assert sorted(order) == order


def test_one_verdict_may_rest_on_several_runs() -> None:
    cells = [cell for cell in CELLS if cell.table == "main"][:2]
    records = memory(*(made_up(cells[0].run(seed)) for seed in (0, 1)))
    assert overview(judge(cells, records))[1] == "The verdict on 1 cell rests on 2 runs."


def test_nothing_fails_without_a_run() -> None:
    assert overview(judge(CELLS, {}))[1:] == ["Nothing has been run yet."]


def test_what_is_missing_is_said_in_short() -> None:
    few = [cell for cell in CELLS if cell.table == "small-n"]
    gaps = [cell for cell in CELLS if cell.table == "score-gap"]
    assert not_run(judge(few, {})) == "FB15k-237; WN18RR"
    run = [cell for cell in few if cell["dataset"] == "fb15k-237" and cell["model"] == "rotate"][1:]
    found = not_run(judge(few, memory(*(made_up(cell.run()) for cell in run))))
    assert found == f"FB15k-237: TransE, TransD, DistMult, ComplEx, RotatE (n = {few[0]['negatives']}); WN18RR"
    assert not_run(judge(few, memory(*(made_up(cell.run()) for cell in few)))) == ""
    assert not_run(judge(gaps, memory(made_up(EANS, analysis=[analysis_at(1000, 0.5)])))) == (
        "self-adversarial, EANS + self-adv. (step 10,000, step 100,000)"
    )


def test_the_page_says_how_runs_shared_their_device() -> None:
    given = ((EANS, 30.0, 1), (UNIFORM, 500.0, 1), (Experiment(EANS.recipe, seed=1), 90.0, 3.8))
    records = memory(*(made_up(spec, seconds=seconds, runs_at_a_time=k) for spec, seconds, k in given))
    text = page.render(CELLS, records, Path("records"))
    assert "| Abacus | 1 | 2 | 30 s to 8 min |\n| Abacus | 4 | 1 | 90 s |\n" in text
    assert "| `0123456789ab` | 2.0 | 3 |\n" in text


def test_without_matplotlib_there_are_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("eans.figures.find_spec", lambda _: None)
    records, out = all_records(tmp_path / "records"), tmp_path / "out"
    done = call(capsys, "report", "--records", records, "--out", out)
    wrote, error = done.err.splitlines()
    assert (done.status, wrote) == (2, f"wrote the tables and report.json to {out}")
    assert error.startswith("paper: error: figures need matplotlib, which the extra 'figures' brings")
    assert {"main.md", "report.json"} <= {file.name for file in out.iterdir()}


def test_a_page_links_figures_it_can_draw(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    records = all_records(tmp_path / "records")
    assert call(capsys, "report", "--page", tmp_path / "page.md", "--records", records).status == 0
    text = (tmp_path / "page.md").read_text("utf-8")
    for name in FIGURES:
        assert f'<img src="figures/{figures.file_name(name)}.png" width="' in text
        assert (tmp_path / "figures" / f"{figures.file_name(name)}.png").is_file()
    assert "| EANS + self-adv. | 10,000 | pass | -.299 → -.3000 (-.0010) | -1.709 → -1.7000 (+.0090) | 1 |" in text


def test_notes_belong_to_tables() -> None:
    notes = page.read_notes()
    assert set(notes) <= {"words", "findings", "general", *TABLES}
    assert all(notes.values())
    text = page.render(CELLS, {}, Path("paper/records"))
    assert [piece for body in notes.values() for piece in body.split("\n\n### ") if piece not in text] == []
    assert "Nothing has been run yet." in text


def test_notes_with_a_heading_stand_below_their_table() -> None:
    text = page.render(CELLS, memory(made_up(EANS)), Path("records"))
    above, below = page.read_notes()["main"].split("\n\n### ", 1)
    order = [text.index(part) for part in ("\n## Main results\n", above, "\n### FB15k-237", f"\n### {below}")]
    assert sorted(order) == order


# --- which negatives for which model --------------------------------------------------------------------------------


def test_the_recommendation_is_up_to_date() -> None:
    records = RecordStore(ROOT / "paper/records").read()
    text = recommendation.render(records.values())
    assert (ROOT / "docs/results/recommendation.md").read_text("utf-8") == text


def test_what_is_recommended_by_valid_and_when_an_effect_is_clear() -> None:
    contents = []
    for method, valids, tests in (
        ("uniform", (0.30,), (0.35,)),  # best on test, and not by what is chosen
        ("eans", (0.31, 0.33), (0.30, 0.302)),
        ("adv", (0.1, 0.1, 0.1), (0.1, 0.1, 0.103)),
        ("eans+adv", (0.2, 0.2), (0.101, 0.103)),
    ):
        for seed, (on_valid, on_test) in enumerate(zip(valids, tests, strict=True)):
            contents.append(made_up(Experiment(f"wn18rr/rotate/{method}", seed=seed), on_test, valid=valid(on_valid)))
    contents.append(
        made_up(Experiment("wn18rr/rotate/eans", ("train.steps=9",)), 0.9, valid=valid(0.9))
    )  # not as it is
    found = recommendation.settings(memory(*contents).values())
    deviation, freedom = recommendation.spread(found, "wn18rr", "rotate")
    squares = 2 * 0.001**2 + 2 * 0.001**2 + 0.001**2 * 2 + 0.002**2
    assert (deviation, freedom) == (pytest.approx((squares / 4) ** 0.5), 4)
    chance = 2.7764 * deviation  # the 97.5 % quantile of t with 4 degrees of freedom
    (row,) = recommendation.recommended(found, "wn18rr").rows
    assert row[:3] == ["RotatE", "EANS", ".3010 ± .0010"]
    assert chance * 1.5**0.5 < 0.049
    assert chance * (5 / 6) ** 0.5 > 0.001
    assert row[3:] == ["**-.0490**", "+.0010", "-", f".{round(deviation * 1e4):04d} (4)"]
