"""What `eans report` says: tables on a screen, Markdown, LaTeX, CSV and JSON, and mistakes in its options."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from eans.experiments import RecordStore
from helpers_paper import call, keep, made_up, memory, paper_cell, tiny_cell, write_cells
from helpers_runs import environment, one_line
from paper import reporting
from paper.cells import Cell
from paper.labels import signed
from paper.layouts import LAYOUTS, to_markdown
from paper.overview import overview
from paper.published import PAPER, read_published
from paper.report import judge, summary
from paper.reporting import FORMATS, render
from paper.schema import read_records
from paper.selection import select

ROOT = Path(__file__).resolve().parent.parent
CELLS = read_published()


@pytest.fixture
def some_records(tmp_path: Path) -> Path:
    folder = tmp_path / "records"
    cell = paper_cell("main", dataset="wn18rr", model="rotate", sampler="eans", self_adversarial=True)
    for seed in (0, 1):
        keep(folder, cell.run(seed), 0.489 + 0.001 * seed, 0.576, 3400.0, runs_at_a_time=1.8)
    keep(folder, paper_cell("main", dataset="wn18rr", model="rotate", sampler="sans").run(), 0.4, 0.5)
    return folder


# --- for programs ---------------------------------------------------------------------------------------------------


def test_json_has_the_published_fields_and_then_what_was_measured(
    some_records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = call(capsys, "report", "--records", some_records, "--format", "json")
    assert (done.status, done.err) == (0, "")
    cells = json.loads(done.out)
    published = tomllib.loads(PAPER.read_text("utf-8"))["cell"]
    assert len(cells) == len(published)
    first = ["measured", "difference", "pass", "records"]
    more = ["stderr", "seeds", "seconds", "runs_at_a_time", "hardware"]
    for cell, fields in zip(cells, published, strict=True):
        assert list(cell) == [*fields, *first, *more]
        extra = {key: cell.pop(key) for key in (*first, *more)}
        assert cell == fields
        run = extra["records"] != []
        assert (extra["measured"] is not None) == (extra["pass"] is not None) == run
        assert (extra["seconds"] is not None) == (extra["hardware"] is not None) == (extra["seeds"] != []) == run
    main = [cell for cell in json.loads(done.out) if cell["table"] == "main" and cell["pass"] is not None]
    sans, best = main
    assert best["measured"] == pytest.approx({"mr": 3400.0, "mrr": 0.4895, "hits10": 0.576})
    assert best["difference"] == pytest.approx({"mr": -2.0, "mrr": 0.0005, "hits10": 0.0})
    assert best["pass"] is True
    assert best["records"] == [f"wn18rr--rotate--eans+adv--seed{seed}.json" for seed in (0, 1)]
    assert best["stderr"] == pytest.approx({"mr": 0.0, "mrr": 0.0005, "hits10": 0.0})
    assert (best["seeds"], best["seconds"], best["runs_at_a_time"], best["hardware"]) == ([0, 1], 100.0, 2, "Abacus")
    assert (sans["own"], sans["pass"], sans["stderr"]) == (False, False, {})
    assert set(sans["difference"]) == {"mrr", "hits10"}  # no mean rank was published


# --- for pages -------------------------------------------------------------------------------------------


def test_markdown_fits_a_page(some_records: Path) -> None:
    outcomes = judge(select(CELLS, ["main"], "model=rotate").cells, read_records(RecordStore(some_records)))
    lines = to_markdown(outcomes).splitlines()
    assert [line for line in lines if line.startswith("#")] == ["### FB15k-237, RotatE", "### WN18RR, RotatE"]
    assert "| negatives | verdict | MRR | Hits@10 | MR | runs |" in lines
    assert "|---|---|---:|---:|---:|---:|" in lines
    assert "| SANS + self-adv. | fail* | .475 → .4000 (-.0750) | .571 → .5000 (-.0710) | - → 200 | 1 |" in lines
    assert (
        "| EANS + self-adv. | pass | .489 → .4895 ± .0005 (+.0005) | .576 → .5760 ± .0000 (+.0000) | 3402 → 3400 | 2 |"
        in lines
    )
    assert "| EANS | not run | .487 → - | .574 → - | 3149 → - | - |" in lines
    assert sum(line.startswith("| SANS + self-adv. | not run*") and line.endswith(" | - | - |") for line in lines) == 1
    below = " ".join(to_markdown(outcomes).rpartition("|\n")[2].split())
    assert below.startswith("Pass: mean MRR at least the published one less .003,")
    assert "Numbers are published → measured (difference)." in below
    assert "'*' marks numbers that the paper takes from earlier work." in below
    assert "± is the standard error" in below
    assert "Pass" not in to_markdown(outcomes, rules=False)
    assert render(outcomes, "markdown").startswith("## Main results\n\n### FB15k-237")


def test_rows_are_sorted_by_dataset_and_model() -> None:
    places = [("wn18rr", "rotate"), ("toy", "transe"), ("fb15k-237", "rotate"), ("wn18rr", "transe")]
    outcomes = judge([tiny_cell(dataset=dataset, model=model) for dataset, model in places], {})
    titles = ["FB15k-237, RotatE", "WN18RR", "toy, TransE"]
    texts = LAYOUTS["main"](outcomes)
    assert list(texts) == titles
    assert [row[0] for row in texts["WN18RR"].table.rows] == ["TransE", "RotatE"]


def test_published_standard_errors_are_shown() -> None:
    cell = paper_cell("variance", dataset="wn18rr", model="transe", self_adversarial=True)
    outcomes = judge([cell], memory(*(made_up(cell.run(seed), 0.229 + 0.001 * seed, 0.54) for seed in (0, 1))))
    (page,) = LAYOUTS["variance"](outcomes).values()
    assert page.table.rows[0][2:4] == [
        ".228 ± .003 → .2295 ± .0005 (+.0015)",
        ".533 ± .003 → .5400 ± .0000 (+.0070)",
    ]
    assert page.notes[1:] == ("± is the standard error of a mean over seeds.", "That of the paper is over 3 runs.")


def test_cells_without_a_published_number_are_measured_and_not_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = {key: tiny_cell().fields[key] for key in ("table", "dataset", "model", "own")}
    own = {"overrides": ["data.name=some/where"], "label": "ours"}
    file = write_cells(
        tmp_path / "cells.toml", Cell({**fields, "method": "igan"}), Cell({**fields, "method": "sans", **own})
    )
    cell, other = read_published(file)
    (outcome,) = outcomes = judge([cell], memory(made_up(cell.run())))
    assert (outcome.verdict, outcome.passed, summary(outcomes)) == (
        "not judged", None, "0 of 1 cells pass, 0 fail, 0 not run, 1 not judged",
    )  # fmt: skip
    (page,) = LAYOUTS["main"](outcomes).values()
    assert page.table.rows == [["igan", "not judged", "- → .3000", "- → .5000", "- → 200", "1"]]
    keep(tmp_path / "records", cell.run())
    keep(tmp_path / "records", other.run())
    options = ["--cells", file, "--records", tmp_path / "records"]
    for format_ in FORMATS:
        done = call(capsys, "report", "main", *options, "--format", format_)
        assert (done.status, done.err) == (0, "")
        assert ("where" in done.out, "ours" in done.out, "igan" in done.out) == (True, True, True)
        done = call(capsys, "report", "main", *options, "--format", format_, "--only", "method=sans")
        assert ("ours" in done.out, "igan" in done.out) == (True, False)
    done = call(capsys, "report", "main", "ablation", *options)
    assert done.err == "paper: note: no cell of ablation is among these cells\n"


@pytest.mark.parametrize("protocol", [("optimistic", "all 9 entities"), ("realistic", "1000 sampled entities")])
def test_other_rankings_are_not_judged(protocol: tuple[str, str]) -> None:
    ties, candidates = protocol
    cell = tiny_cell()
    content = made_up(cell.run(), protocol={"ties": ties, "candidates": candidates})
    outcomes = judge([cell], memory(content))
    (page,) = LAYOUTS["main"](outcomes).values()
    assert page.table.rows[0][1] == "not judged?"
    assert page.notes[1:] == (
        "'?' marks ranks with other ties, or among other candidates, than the published ones; they are not judged.",
    )
    start, evidence = overview(outcomes)
    assert start.splitlines()[0] == "| table | cells | pass | fail | not run | not judged |"
    assert start.splitlines()[-1] == "| **the paper, all in all** | 1 | 0 | 0 | 0 | 1 |"
    assert evidence == "Nothing is judged."
    start, evidence = overview(judge([cell], memory()))
    assert start.splitlines()[0] == "| table | cells | pass | fail | not run |"
    assert evidence == "Nothing has been run yet."


# --- on a terminal --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "headings"), [(200, ["MRR", "Hits@10", "MR", "runs"]), (80, ["MRR"]), (10, ["MRR"])]
)
def test_a_table_has_what_the_terminal_has_room_for(
    columns: int,
    headings: list[str],
    some_records: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(reporting.shutil, "get_terminal_size", lambda: os.terminal_size((columns, 24)))
    reporting.show_report(judge(select(CELLS, ["main"], "model=rotate").cells, read_records(RecordStore(some_records))))
    _, wn18rr, below = capsys.readouterr().out.split("\n\n")
    title, header, *rows = wn18rr.splitlines()
    assert title == "Main results (main): WN18RR, RotatE"
    assert header.split() == ["negatives", "verdict", *headings]
    assert any(row.startswith("SANS + self-adv.  fail*  ") for row in rows)
    assert ".489 → .4895 ± .0005 (+.0005)" in rows[-1]
    assert max(map(len, rows)) <= max(columns, 64)
    assert ("A wider screen, or a pipe, shows more columns." in below) == (columns < 200)


def test_mistakes_of_a_report(tmp_path: Path, some_records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone, text = tmp_path / "gone", tmp_path / "text"
    alone = "--page is about everything: no TABLE, --only, --format or --out beside it"
    page = tmp_path / "page.md"
    text.touch()
    before = sorted(tmp_path.rglob("*"))
    for arguments, message in (
        (["--records", gone], f"there is no folder {gone}; name one of run records with --records"),
        (["--records", gone, "--page", page], f"there is no folder {gone}"),
        (["--records", text], f"{text} is not a folder of run records"),
        (["main", "--page", page], alone),
        (["--only", "model=rotate", "--page", page], alone),
        (["--format", "json", "--page", page], alone),
        (["--out", gone, "--page", page], alone),
        (["--cells", text, "--page", page], "--page has notes on the paper's cells: no --cells beside it"),
        (["--page", gone / "page.md"], f"cannot write {gone / 'page.md'}: it is a folder, or has none"),
        (["--page", tmp_path], f"cannot write {tmp_path}: it is a folder"),
        (["--format", "html"], "--format 'html' is not one of table, markdown, json"),
    ):
        done = call(capsys, "report", "--records", some_records, *arguments)  # the last --records counts
        assert done.status == 2
        assert message in one_line(done.err)
        assert sorted(tmp_path.rglob("*")) == before


def test_the_report_and_its_files(some_records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    done = call(capsys, "report", "main", "--records", some_records, "--out", out)
    assert done.status == 0
    assert "1 of 62 cells pass, 1 fail, 60 not run" in done.out
    assert "rounding comes after" in done.out
    assert {path.name for path in out.iterdir()} == {"main.md", "report.json"}
    assert json.loads((out / "report.json").read_text("utf-8"))[0]["table"] == "main"
    in_the_way = out / "report.json" / "here"
    assert "cannot create folder" in one_line(call(capsys, "report", "--out", in_the_way).err)


def test_other_cells_can_be_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_cells(tmp_path / "cells.toml", tiny_cell())
    keep(tmp_path / "records", tiny_cell().run(), 0.3, 0.5)
    done = call(capsys, "report", "--cells", file, "--records", tmp_path / "records")
    assert "1 of 1 cells pass" in done.out


def test_figures_need_a_folder(some_records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for format_ in ("markdown", "json"):
        done = call(capsys, "report", "order", "negative-cdf", "--records", some_records, "--format", format_)
        assert (done.status, done.out) == (2, "")
        wanted = f"--format {format_} is about tables; figures (negative-cdf, order) need --out DIR"
        assert one_line(done.err) == f"paper: error: {wanted}"
    done = call(capsys, "report", "order", "--records", some_records)
    assert (done.status, done.out) == (0, "figures (order): draw them with --out DIR\n")
    out = tmp_path / "out"
    done = call(capsys, "report", "order", "--records", some_records, "--out", out, "--format", "json")
    assert (done.status, done.out) == (0, "")
    assert one_line(done.err) == "figure order: no records to draw it from"
    assert list(out.iterdir()) == []  # and no empty tables
    done = call(capsys, "report", "small-n", "--records", some_records, "--format", "json")  # a table as well
    assert (done.status, done.err, len(json.loads(done.out))) == (0, "", 40)


REPORT = """
import sys
from paper.cli import main
try:
    main(["report", "main", "best", "choices", "--records", sys.argv[1], "--format", sys.argv[2]])
except SystemExit as end:
    loaded = [name for name in ("torch", "numpy", "matplotlib") if name in sys.modules]
    print("LOADED", loaded, end.code)
"""


@pytest.mark.parametrize("format_", ["table", "json"])
def test_a_report_loads_no_pytorch(some_records: Path, format_: str) -> None:
    command = [sys.executable, "-c", REPORT, str(some_records), format_]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "LOADED [] 0"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.00124, "+0.0012"), (-0.00006, "-0.0001"), (-0.000023, "-0.00002"), (2.4e-6, "+0.0000"), (-1e-9, "+0.0000")],
)
def test_a_difference_that_decides_is_not_rounded_away(value: float, text: str) -> None:
    assert signed("mrr", value) == text


def test_differences_of_mean_ranks_are_whole() -> None:
    assert [signed("mr", value) for value in (-0.00002, 12.4, None)] == ["+0", "+12", "-"]
