"""The two tables beyond the paper: the best recipes against the best published, and the choices that it leaves open."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from eans.experiments import Experiment, RecordStore, plan
from eans.recipes import load, names
from eans.recipes.build import build_trainer, resolve
from helpers_paper import call, keep, made_up, memory, tiny_cell, valid, write_cells
from helpers_runs import ring_graph
from paper import page
from paper.cells import Cell
from paper.choices import question_texts
from paper.layouts import LAYOUTS, to_markdown
from paper.plan import make_study
from paper.published import read_published
from paper.report import judge, summaries
from paper.schema import read_records
from paper.selection import read_cells, select
from paper.tables import ABOVE, PAPER_TABLES, TABLES

CELLS = read_cells()
BEST = {(cell["dataset"], cell["model"]): cell for cell in CELLS if cell.table == "best"}
CHOICES = [cell for cell in CELLS if cell.table == "choices"]
LABELS = Experiment("wn18rr/rotate/eans+adv")
EXACT = Experiment(LABELS.recipe, ("sampler.known_true=exact",))


def choice(spec: Experiment) -> Cell:
    (cell,) = [cell for cell in CHOICES if cell.run() == spec]
    return cell


@pytest.fixture
def some_records(tmp_path: Path) -> Path:
    """TransE above its anchor and ComplEx below; two seeds of a base, and one of an alternative."""
    folder = tmp_path / "records"
    keep(folder, Experiment("fb15k-237/transe/best"), 0.35, 0.4, valid=valid(0.36))
    keep(folder, Experiment("fb15k-237/complex/best"), 0.38, 0.6)
    for seed, mrr in enumerate((0.48, 0.5)):
        keep(folder, Experiment(LABELS.recipe, seed=seed), mrr, 0.58, 3400.0, valid=valid(0.491))
    keep(folder, EXACT, 0.47, 0.56, 3500.0, valid=valid(0.471))
    return folder


# --- cells ----------------------------------------------------------------------------------------------------------


def test_the_paper_comes_first_and_is_as_it_was() -> None:
    assert [cell for cell in CELLS if TABLES[cell.table].from_paper] == read_published()
    assert tuple(TABLES) == (*PAPER_TABLES, "best", "choices")
    assert tuple(dict.fromkeys(cell.table for cell in CELLS)) == tuple(TABLES)


def test_anchors() -> None:
    expected = {
        ("fb15k-237", "transe"): (0.342, 0.534, "EANS + self-adv. (Je 2022)", None),
        ("fb15k-237", "transd"): (0.340, 0.534, "EANS + self-adv. (Je 2022)", None),
        ("fb15k-237", "distmult"): (0.345, None, "KGTuner (Zhang et al. 2022)", 0.309),
        ("fb15k-237", "complex"): (0.391, None, "MetaSD (Li et al. 2022), weights kept by test MRR", 0.323),
        ("fb15k-237", "rotate"): (0.352, None, "ER (Cao et al. 2022)", 0.344),
        ("wn18rr", "transe"): (0.268, None, "ER (Cao et al. 2022)", 0.228),
        ("wn18rr", "transd"): (0.225, 0.491, "EANS + self-adv. (Je 2022)", None),
        ("wn18rr", "distmult"): (0.453, None, "KGTuner (Zhang et al. 2022)", 0.438),
        ("wn18rr", "complex"): (0.494, None, "ER (Cao et al. 2022)", 0.463),
        ("wn18rr", "rotate"): (0.490, None, "ER (Cao et al. 2022)", 0.489),
    }
    assert list(BEST) == list(expected)
    found = {
        place: (cell["mrr"], cell.get("hits10"), cell["source"], cell.get("paper_mrr")) for place, cell in BEST.items()
    }
    assert found == expected
    assert {cell.run().settings for cell in BEST.values()} == {f"{d}/{m}/best" for d, m in expected}


def test_questions_and_their_runs() -> None:
    assert Counter(cell["question"] for cell in CHOICES if "base" in cell.fields) == {
        "Where K-means starts": 6,
        "How the line is made, and when": 15,
        "Labels of false negatives": 5,
        "TransD's projection of relations": 4,
        "Width of the tables": 6,
        "Known answers among Gaussian draws": 2,
        "Walks of SANS": 9,
        "Negatives by degree": 3,
        "Which side is replaced": 3,
        "Log-sigmoid or hinge": 2,
        "The last weights, or the best validated ones": 4,
        "Half the steps": 1,
        "Known answers in a softmax over all entities": 2,
        "Reciprocal relations with EANS": 5,
        "Steps and batches of a softmax": 9,
        "Learning rate of a softmax": 2,
        "Weight of the L3 penalty": 4,
        "Weight of the N3 penalty": 3,
        "N3 or DURA": 3,
        "Weights of positives": 9,
        "Relation prediction": 4,
        "Dropout of queries": 1,
    }
    assert question_texts().keys() == {cell["question"] for cell in CHOICES}
    settings = [cell.run().settings for cell in CHOICES]
    alternatives = [cell.run().settings for cell in CHOICES if "base" in cell.fields]
    assert len(set(alternatives)) == len(alternatives)
    often = "fb15k-237/transe/eans sampler.negatives=1 sampler.reorder_every=500"
    assert often in settings
    (cell,) = [cell for cell in CHOICES if cell.run().settings == often]
    assert cell["base"] == "fb15k-237/transe/eans sampler.negatives=1"
    sans = Experiment("fb15k-237/transe/sans+adv", ("sampler.pool_kind=walks", "sampler.hops=4"))
    assert sans.name == "fb15k-237--transe--sans+adv--sampler.pool_kind=walks--sampler.hops=4--seed0"
    assert choice(sans)["base"] == "fb15k-237/transe/sans+adv"


def test_bases_are_runs_of_other_cells_and_come_before_their_alternatives() -> None:
    others = {cell.run().settings for cell in CELLS if cell.table != "choices" or "base" in cell.fields}
    bases = [cell.run().settings for cell in CHOICES if "base" not in cell.fields]
    assert [base for base in bases if base not in others] == []
    last = ""
    for cell in CHOICES:
        last = cell.run().settings if "base" not in cell.fields else last
        assert cell.get("base", last) == last


@pytest.mark.parametrize("cell", [*BEST.values(), *CHOICES], ids=lambda cell: cell.run().settings)
def test_every_run_is_a_recipe_that_can_be_built(cell: Cell) -> None:
    graph, spec = ring_graph(120), cell.run()
    assert spec.recipe in names()
    recipe = load(spec.recipe, spec.overrides)
    if "base" in cell.fields:
        assert recipe != load(spec.recipe, cell["base"].split()[1:])  # an alternative changes something
    build_trainer(resolve(load(spec.recipe, [*spec.overrides, "model.dim=2"], data=graph.name), graph), graph)


# --- choosing and planning ------------------------------------------------------------------------------------------


def test_only_who_names_them_gets_them() -> None:
    assert select(CELLS).tables == PAPER_TABLES
    assert select(CELLS, ["main", "best"]).tables == ("main", "best")
    chosen = select(CELLS, ["best"], "dataset=wn18rr,model=rotate,model=complex")
    assert [cell.run().settings for cell in chosen.cells] == ["wn18rr/complex/best", "wn18rr/rotate/best"]
    assert (chosen.tables, chosen.figures) == (("best",), ())
    questions = select(CELLS, ["choices"], "dataset=wn18rr,model=rotate,method=eans+adv").cells
    settings = ["new centroids", "last centroids", "by id, at once", "as before, next epoch"]
    settings += ["repeats", "exact", "repeats everywhere"]
    assert [cell["setting"] for cell in questions] == settings


def test_a_base_is_run_once_and_has_the_record_of_the_paper(some_records: Path) -> None:
    study = make_study(select(CELLS, ["main", "choices"], "dataset=wn18rr,model=rotate"), CELLS, 1)
    assert study.uses[LABELS] == ("main", "choices")
    assert study.purposes(LABELS) == ("main", "choices (kmeans, line, labels)")
    (some_records / f"{EXACT.name}.json").unlink()
    (base,) = [one for one in plan(study.uses, RecordStore(some_records), extra=study) if one.experiment == LABELS]
    assert base.record is not None
    assert EXACT in study.uses


def test_help_names_every_table(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("reproduce", "report"):
        out = call(capsys, command, "--help").out
        assert all(re.search(rf"\b{name}\b", out) for name in TABLES)


# --- verdicts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mrr", "hits10", "verdict"),
    [(0.3421, 0.0, True), (0.342, 1.0, False), (0.3419, 1.0, False)],  # above, and by MRR alone
)
def test_pass_rule(mrr: float, hits10: float, verdict: bool) -> None:
    cell = BEST["fb15k-237", "transe"]
    (outcome,) = judge([cell], memory(made_up(cell.run(), mrr, hits10)))
    assert outcome.passed is verdict
    assert ABOVE.passes(cell.values, {"mrr": mrr}) is verdict


def test_the_mean_is_judged() -> None:
    cell = BEST["fb15k-237", "transe"]
    contents = [made_up(cell.run(seed), mrr, valid=valid(mrr + 0.1)) for seed, mrr in enumerate((0.33, 0.355))]
    (outcome,) = judge([cell], memory(*contents))
    assert outcome.passed is True
    assert outcome.measured is not None
    assert outcome.measured["valid_mrr"] == pytest.approx(0.4425)
    assert outcome.difference == pytest.approx({"mrr": 0.0005, "hits10": -0.034})
    del contents[1]["valid"]
    (outcome,) = judge([cell], memory(*contents))
    assert outcome.measured is not None
    assert "valid_mrr" not in outcome.measured  # a mean over one of two seeds would mislead


def test_choices_differ_from_their_base(some_records: Path) -> None:
    *_, base, exact, everywhere = judge(
        select(CELLS, ["choices"], "dataset=wn18rr,model=rotate,method=eans+adv").cells,
        read_records(RecordStore(some_records)),
    )
    assert base.measured == pytest.approx({"mr": 3400.0, "mrr": 0.49, "hits10": 0.58, "valid_mrr": 0.491})
    assert base.difference == {}
    assert exact.difference == pytest.approx({"mr": 100.0, "mrr": -0.02, "hits10": -0.02, "valid_mrr": -0.02})
    assert (everywhere.measured, everywhere.difference) == (None, None)
    assert base.passed is exact.passed is None
    (alone,) = judge([choice(EXACT)], memory(made_up(EXACT)))  # its base has no record
    assert alone.difference == {}
    assert LAYOUTS["choices"]([alone])["Labels of false negatives"].table.rows[0][4] == ".3000"


def test_each_is_counted_by_itself(some_records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = judge(CELLS, read_records(RecordStore(some_records)))
    assert summaries(outcomes) == [
        "2 of 146 cells pass, 0 fail, 144 not run",
        "Beyond the paper: 1 of 10 cells pass, 1 fail, 8 not run",
    ]
    done = call(capsys, "report", "best", "--records", some_records)
    assert (
        "\nBeyond the paper: 1 of 10 cells pass, 1 fail, 8 not run\nPass in the table best: mean MRR above" in done.out
    )
    assert "146" not in done.out
    assert "less .003" not in done.out
    done = call(capsys, "report", "choices", "--records", some_records)
    assert "pass" not in done.out.lower()
    assert "verdict" not in done.out
    done = call(capsys, "report", "--records", some_records)
    assert "2 of 146 cells pass" in done.out
    assert "Beyond the paper" not in done.out


# --- the report as text ---------------------------------------------------------------------------------------------


def test_best_in_every_format(some_records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def report(format_: str) -> str:
        done = call(capsys, "report", "best", "--records", some_records, "--format", format_)
        assert (done.status, done.err) == (0, "")
        return done.out

    text = report("markdown")
    lines = text.splitlines()
    assert [line for line in lines if line.startswith("#")] == ["## Beyond the paper", "### FB15k-237", "### WN18RR"]
    assert lines[4:6] == [
        "| model | verdict | MRR | Hits@10 | valid MRR | paper's MRR | runs |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    assert lines[6] == "| TransE | pass | .342 → .3500 (+.0080) | .534 → .4000 | .3600 | - | 1 |"
    assert lines[9] == "| ComplEx | fail | .391 → .3800 (-.0110) | - → .6000 | - | .323 | 1 |"
    notes = " ".join(text.rpartition("|\n")[2].split())
    assert notes.startswith("Pass in the table best: mean MRR above the anchor's")
    assert "Numbers are anchor → measured (difference). Anchors of FB15k-237: TransE, TransD: EANS" in notes
    cells = json.loads(report("json"))
    assert [cell["pass"] for cell in cells] == [True, None, None, False, *[None] * 6]
    assert cells[0]["measured"] == {"mr": 200.0, "mrr": 0.35, "hits10": 0.4, "valid_mrr": 0.36}
    assert cells[0]["records"] == ["fb15k-237--transe--best--seed0.json"]


def test_choices_in_every_format(some_records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def report(format_: str) -> str:
        only = ["--only", "dataset=wn18rr,model=rotate,method=eans+adv"]
        done = call(capsys, "report", "choices", *only, "--records", some_records, "--format", format_)
        assert (done.status, done.err) == (0, "")
        return done.out

    lines = report("markdown").splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        "## What the open choices do",
        "### Where K-means starts",
        "### How the line is made, and when",
        "### Labels of false negatives",
    ]
    start = "| WN18RR | RotatE | EANS + self-adv."
    assert [line for line in lines if line.startswith(start)][4:] == [
        f"{start} | repeats | .4900 ± .0100 (base) | .5800 | .4910 | 2 |",
        f"{start} | exact | .4700 (-.0200) | .5600 | .4710 | 1 |",
        f"{start} | repeats everywhere | - | - | - | - |",
    ]
    assert lines[-1] == "± is the standard error of a mean over seeds."
    cells = json.loads(report("json"))
    assert cells[5]["base"] == LABELS.settings
    assert cells[5]["measured"] == {"mr": 3500.0, "mrr": 0.47, "hits10": 0.56, "valid_mrr": 0.471}
    assert {cell["pass"] for cell in cells} == {None}


def test_files(some_records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert call(capsys, "report", "best", "choices", "--records", some_records, "--out", out).status == 0
    assert {path.name for path in out.iterdir()} == {"best.md", "choices.md", "report.json"}
    outcomes = judge(list(BEST.values()), read_records(RecordStore(some_records)))
    assert (out / "best.md").read_text("utf-8") == to_markdown(outcomes) + "\n"


def test_other_published_cells_leave_them_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_cells(tmp_path / "cells.toml", tiny_cell())
    done = call(capsys, "report", "best", "--cells", file, "--records", tmp_path, "--format", "json")
    assert [cell["mrr"] for cell in json.loads(done.out)] == [cell["mrr"] for cell in BEST.values()]
    beyond = write_cells(tmp_path / "cells.toml", tiny_cell(table="best"))
    done = call(capsys, "report", "--cells", beyond, "--records", tmp_path)
    assert (done.status, "cell 1: unknown table 'best'" in done.err) == (2, True)


# --- the page -------------------------------------------------------------------------------------------------------


def test_the_page_answers_questions_that_have_a_run(some_records: Path) -> None:
    text = page.render(CELLS, read_records(RecordStore(some_records)), Path("records"))
    assert "| **the paper, all in all** | 146 | 2 | 0 | 144 |\n" in text
    assert "| [Beyond the paper](#beyond-the-paper) | 10 | 1 | 1 | 8 |\n" in text
    best, choices = text.split("\n## Beyond the paper\n")[1].split("\n## What the open choices do\n")
    choices = choices.split("\n## ")[0]
    assert "`python -m paper report best`: 1 of 10 cells pass, 1 fail, 8 not run." in best
    assert re.findall(r"^\| (\w+) \| (pass|fail) ", best, re.MULTILINE) == [("TransE", "pass"), ("ComplEx", "fail")]
    assert "Not run yet: FB15k-237: TransD, DistMult, RotatE; WN18RR.\n" in best
    assert re.findall("^### (.*)$", choices, re.MULTILINE) == ["Labels of false negatives"]
    assert [line.split(" | ")[3] for line in choices.splitlines() if line.startswith("| WN18RR")] == [
        "repeats",
        "exact",
        "repeats everywhere",
    ]
    assert "| FB15k-237" not in choices
    waiting = " ".join(choices.split("Not run yet: ")[1].split("\n\n")[0].split())
    assert (
        "Labels of false negatives (WN18RR RotatE, FB15k-237 TransE, FB15k-237 RotatE); TransD's projection" in waiting
    )
    assert "Where K-means starts (FB15k-237 TransE, FB15k-237 RotatE, WN18RR RotatE); How the line" in waiting


def test_a_base_alone_answers_nothing() -> None:
    text = page.render(CELLS, memory(made_up(LABELS)), Path("records"))
    assert "### Labels" not in text
    assert "Labels of false negatives (WN18RR RotatE, FB15k-237 TransE," in " ".join(text.split())
    everything = page.render(CELLS, memory(*(made_up(cell.run()) for cell in CHOICES)), Path("records"))
    assert "Not run yet" not in everything.split("\n## What the open choices do\n")[1]
    assert all(f"### {question}\n" in everything for question in question_texts())
