"""What `eans report` says: tables on a screen, Markdown, LaTeX, CSV and JSON, and mistakes in its options."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path

import pytest
from rich.console import Console

from eans import display_report
from eans.reproduction import TABLES, Cell, judge, read_cells, read_records, select
from eans.reproduction.formats import FORMATS, render, to_csv, to_json, to_markdown
from eans.reproduction.labels import signed
from eans.reproduction.latex import escaped
from eans.reproduction.layouts import BRIEF, FULL, LAYOUTS, PAGE, PRINTED
from eans.reproduction.overview import overview
from eans.reproduction.published import read_published
from eans.reproduction.report import summary
from helpers_reproduction import call, keep, made_up, memory, paper_cell, tiny_cell, valid, write_cells
from helpers_runs import eans, one_line

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


def test_json_has_the_published_fields_and_then_what_was_measured(some_records: Path) -> None:
    done = eans("report", "--records", some_records, "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    cells = json.loads(done.stdout)
    published = tomllib.loads(resources.files("eans.reproduction").joinpath("published.toml").read_text("utf-8"))[
        "cell"
    ]
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
    main = [cell for cell in json.loads(done.stdout) if cell["table"] == "main" and cell["pass"] is not None]
    sans, best = main
    assert best["measured"] == pytest.approx({"mr": 3400.0, "mrr": 0.4895, "hits10": 0.576})
    assert best["difference"] == pytest.approx({"mr": -2.0, "mrr": 0.0005, "hits10": 0.0})
    assert best["pass"] is True
    assert best["records"] == [f"wn18rr--rotate--eans+adv--seed{seed}.json" for seed in (0, 1)]
    assert best["stderr"] == pytest.approx({"mr": 0.0, "mrr": 0.0005, "hits10": 0.0})
    assert (best["seeds"], best["seconds"], best["runs_at_a_time"], best["hardware"]) == ([0, 1], 100.0, 2, "Abacus")
    assert (sans["own"], sans["pass"], sans["stderr"]) == (False, False, {})
    assert set(sans["difference"]) == {"mrr", "hits10"}  # no mean rank was published


def test_csv_has_one_column_for_each_thing(some_records: Path) -> None:
    outcomes = judge(select(CELLS, ["main"], "model=rotate,dataset=wn18rr").cells, read_records(some_records))
    *_, sans, _, best = csv.DictReader(io.StringIO(to_csv(outcomes)))
    assert float(best["measured_mrr"]) == pytest.approx(0.4895)
    assert (best["published_mrr"], best["published_hits10"], "mrr" in best) == ("0.489", "0.576", False)
    assert (best["seeds"], best["pass"], best["seconds"]) == ("0 1", "True", "100.0")
    assert (best["runs_at_a_time"], best["hardware"]) == ("2", "Abacus")
    assert (sans["pass"], sans["runs_at_a_time"], sans["measured_mrr"]) == ("False", "1", "0.4")
    (waiting,) = csv.DictReader(io.StringIO(to_csv(judge([paper_cell("score-gap", sampler="eans", step=1000)], {}))))
    assert {waiting[key] for key in ("seeds", "pass", "seconds", "runs_at_a_time", "hardware", "records")} == {""}
    assert json.loads(to_json(outcomes))[-1]["pass"] is True


# --- for pages and papers -------------------------------------------------------------------------------------------


def test_markdown_fits_a_page(some_records: Path) -> None:
    outcomes = judge(select(CELLS, ["main"], "model=rotate").cells, read_records(some_records))
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


def test_latex_fits_a_paper(some_records: Path) -> None:
    outcomes = judge(select(CELLS, ["main", "score-gap"]).cells, read_records(some_records))
    latex = render(outcomes, "latex")
    head = "% Main results\n% needs \\usepackage{booktabs}\n\\begin{tabular}{llrrrrrrrrrrr}\n\\toprule\n"
    assert latex.startswith(head)
    lines = latex.splitlines()
    assert lines[4:9] == [
        r"\multicolumn{13}{l}{FB15k-237} \\",
        r"\midrule",
        r" &  & \multicolumn{3}{c}{MR} & \multicolumn{3}{c}{MRR} & \multicolumn{3}{c}{Hits@10} &  &  \\",
        r"\cmidrule(lr){3-5} \cmidrule(lr){6-8} \cmidrule(lr){9-11}",
        "model & negatives" + " & paper & ours & diff." * 3 + r" & seed no. & verdict \\",
    ]
    assert (
        r"RotatE & EANS + self-adv. & 3402 & 3400 $\pm$ 0 & $-$2 & .489 & .4895 $\pm$ .0005 & $+$.0005"
        r" & .576 & .5760 $\pm$ .0000 & $+$.0000 & 0-1 & pass \\" in lines
    )
    rows = [line for line in lines if line.startswith(("TransE &", "RotatE &"))]
    assert {line.count("&") for line in rows} == {12}
    assert r" & .475 & .4000 & $-$.0750 & " in latex
    assert r"self-adversarial & 1,000 & $-$.516 & -- & -- & $-$.638 & -- & -- & -- & not run \\" in lines
    notes = [line for line in lines if "footnotesize" in line]
    assert len(notes) == 2
    assert "{\\footnotesize Pass: mean MRR" in notes[0]
    assert "`*' marks" in notes[0]
    assert "each within .05" in notes[1]
    for word in ("hardware", "Abacus", "time"):
        assert word not in latex


def test_latex_shows_text_as_it_is() -> None:
    assert escaped(r"50% of {a_b} & #1 ~ $x^2$ \ ± 3") == (
        r"50\% of \{a\_b\} \& \#1 \textasciitilde{} \$x\textasciicircum{}2\$ \textbackslash{} $\pm$ 3"
    )
    assert escaped("the paper's '*' marks TransD's") == "the paper's `*' marks TransD's"


def test_rows_are_sorted_by_dataset_and_model() -> None:
    places = [("wn18rr", "rotate"), ("toy", "transe"), ("fb15k-237", "rotate"), ("wn18rr", "transe")]
    outcomes = judge([tiny_cell(dataset=dataset, model=model) for dataset, model in places], {})
    (full,) = LAYOUTS["main"](FULL, outcomes).values()
    assert [row[:2] for row in full.rows] == [
        ["FB15k-237", "RotatE"],
        ["WN18RR", "TransE"],
        ["WN18RR", "RotatE"],
        ["toy", "TransE"],
    ]
    titles = ["FB15k-237, RotatE", "WN18RR", "toy, TransE"]
    for style in (PAGE, PRINTED, BRIEF):
        texts = LAYOUTS["main"](style, outcomes)
        assert list(texts) == titles
        assert [row[0] for row in texts["WN18RR"].rows] == ["TransE", "RotatE"]


def test_published_standard_errors_are_shown() -> None:
    cell = paper_cell("variance", dataset="wn18rr", model="transe", self_adversarial=True)
    outcomes = judge([cell], memory(*(made_up(cell.run(seed), 0.229 + 0.001 * seed, 0.54) for seed in (0, 1))))
    (page,) = LAYOUTS["variance"](PAGE, outcomes).values()
    assert page.rows[0][2:4] == [".228 ± .003 → .2295 ± .0005 (+.0015)", ".533 ± .003 → .5400 ± .0000 (+.0070)"]
    (full,) = LAYOUTS["variance"](FULL, outcomes).values()
    assert full.rows[0][3] == "0.228 ± 0.003"
    assert full.notes == page.notes[1:]
    assert full.notes == ("± is the standard error of a mean over seeds.", "That of the paper is over 3 runs.")
    (brief,) = LAYOUTS["variance"](BRIEF, outcomes).values()
    assert brief.rows[0][1:3] == ["0.228", "0.2295±0.0005"]
    assert brief.notes == full.notes[:1]


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
    (page,) = LAYOUTS["main"](PAGE, outcomes).values()
    assert page.rows == [["igan", "not judged", "- → .3000", "- → .5000", "- → 200", "1"]]
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
    assert done.err == "eans: note: no cell of ablation is among these cells\n"


@pytest.mark.parametrize("protocol", [("optimistic", "all 9 entities"), ("realistic", "1000 sampled entities")])
def test_other_rankings_are_not_judged(protocol: tuple[str, str]) -> None:
    ties, candidates = protocol
    cell = tiny_cell()
    content = made_up(cell.run(), protocol={"ties": ties, "candidates": candidates})
    outcomes = judge([cell], memory(content))
    (full,) = LAYOUTS["main"](FULL, outcomes).values()
    assert full.rows[0][full.header.index("verdict")] == "not judged (ranked otherwise)"
    assert full.notes == (
        "'ranked otherwise' marks ranks with other ties, or among other candidates, than the published ones; they are"
        " not judged.",
    )
    start, evidence = overview(outcomes)
    assert start.splitlines()[0] == "| table | cells | pass | fail | not run | not judged |"
    assert start.splitlines()[-1] == "| **the paper, all in all** | 1 | 0 | 0 | 0 | 1 |"
    assert evidence == "Nothing is judged."
    start, evidence = overview(judge([cell], memory()))
    assert start.splitlines()[0] == "| table | cells | pass | fail | not run |"
    assert evidence == "Nothing has been run yet."


# --- on a screen ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("columns", "differences", "times"), [(220, 1, 1), (120, 1, 0), (70, 0, 0)])
def test_a_table_has_what_the_screen_has_room_for(
    columns: int,
    differences: int,
    times: int,
    some_records: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(display_report, "console", lambda: Console(width=columns, highlight=False, markup=False))
    display_report.show_report(judge(select(CELLS, ["main"], "model=rotate").cells, read_records(some_records)))
    tables, _, below = capsys.readouterr().out.rpartition("\n\n")
    assert ("+.0005" in tables.replace("0.", ".")) == differences
    assert ("100 s" in tables) == times
    assert ("A wider screen, or a pipe, shows more columns." in below) == (not times)


def test_80_columns_are_enough(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """For all tables, with a standard error and both marks everywhere."""
    contents = {}
    cells = read_cells()
    for spec in [cell.run(seed) for cell in cells for seed in range(3)]:
        scores = {"positive_score": -0.3 - spec.seed, "negative_score": -5.8 + spec.seed}
        analysis = [{"step": step, "logged": scores} for step in (1_000, 10_000, 100_000)]
        numbers = (0.3 + 0.01 * spec.seed, 0.5 + 0.01 * spec.seed)
        more = {"valid": valid(0.3), "seconds": 7500.0, "recipe_hash": str(spec.seed)}
        contents[spec] = made_up(spec, *numbers, analysis=analysis, **more)
    monkeypatch.setattr(display_report, "console", lambda: Console(width=80, highlight=False, markup=False))
    for found in (judge(cells, memory(*contents.values())), judge(cells, {})):
        display_report.show_report(found)
        out = capsys.readouterr().out
        tables, _, rest = out.rpartition("\n\n")
        lines = tables.splitlines()
        assert "…" not in out
        assert [line for line in lines if len(line) > 80] == []
        judged = [cell for cell in cells if TABLES[cell.table].rule]
        assert len(re.findall(r"(?:pass|fail|not run)[*!]*$", tables, re.MULTILINE)) == len(judged)  # none is folded
        others = [cell["setting"] for cell in cells if cell not in judged]
        assert all(any(line.startswith(setting) for line in lines) for setting in others)
        assert "Few negatives (small-n): WN18RR" in lines
        assert "Ablation (ablation): FB15k-237, RotatE" in lines
        assert "Beyond the paper (best): WN18RR" in lines
        place = lines.index("Labels of false negatives, WN18RR, RotatE, EANS + self-adv.")
        assert lines[place - 1] == "What the open choices do (choices):"
        assert "'*' marks numbers that the paper takes from earlier work." in rest
        assert ("'!' marks" in rest) == (found[0].passed is not None)


def test_a_wide_screen_has_everything(
    some_records: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(display_report, "console", lambda: Console(width=220, highlight=False, markup=False))
    display_report.show_report(judge(select(CELLS, ["main"], "model=rotate").cells, read_records(some_records)))
    out = capsys.readouterr().out
    assert "Main results (main)\n" in out
    assert "hardware" in out
    assert "'quoted' marks" in out
    assert "'*'" not in out


def test_mistakes_of_a_report(tmp_path: Path, some_records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone, text = tmp_path / "gone", tmp_path / "text"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "figures").touch()
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
        (["--page", gone / "a" / "page.md"], f"there is no folder {gone / 'a'}; choose another --page"),
        (["--page", tmp_path], f"cannot write {tmp_path}: it is a folder"),
        (["--page", tmp_path / "other" / "page.md"], f"{tmp_path / 'other' / 'figures'} is not a folder"),
    ):
        done = call(capsys, "report", "--records", some_records, *arguments)  # the last --records counts
        assert done.status == 2
        assert message in one_line(done.err)
        assert sorted(tmp_path.rglob("*")) == before


def test_the_report_and_its_files(some_records: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = eans("report", "main", "--records", some_records, "--out", out)
    assert done.returncode == 0
    assert "1 of 62 cells pass, 1 fail, 60 not run" in done.stdout
    assert "rounding comes after" in done.stdout
    assert {path.name for path in out.iterdir()} == {"main.md", "main.tex", "main.csv", "report.json"}
    one = one_line(eans("report", "--format", "html").stderr)
    assert one == "eans: error: --format 'html' is not one of table, markdown, latex, csv, json"
    in_the_way = out / "report.json" / "here"
    assert "cannot create folder" in one_line(eans("report", "--out", in_the_way).stderr)


def test_other_cells_can_be_reported(tmp_path: Path) -> None:
    file = write_cells(tmp_path / "cells.toml", tiny_cell())
    keep(tmp_path / "records", tiny_cell().run(), 0.3, 0.5)
    done = eans("report", "--cells", file, "--records", tmp_path / "records")
    assert "1 of 1 cells pass" in done.stdout


def test_figures_need_a_folder(some_records: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for format_ in ("markdown", "latex", "csv", "json"):
        done = call(capsys, "report", "order", "negative-cdf", "--records", some_records, "--format", format_)
        assert (done.status, done.out) == (2, "")
        wanted = f"--format {format_} is about tables; figures (negative-cdf, order) need --out DIR"
        assert one_line(done.err) == f"eans: error: {wanted}"
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
from eans.cli import main
try:
    main(["report", "main", "best", "choices", "--records", sys.argv[1], "--format", sys.argv[2]])
except SystemExit as end:
    loaded = [name for name in ("torch", "numpy", "matplotlib") if name in sys.modules]
    print("LOADED", loaded, end.code)
"""


@pytest.mark.parametrize("format_", ["table", "json"])
def test_a_report_loads_no_pytorch(some_records: Path, format_: str) -> None:
    command = [sys.executable, "-c", REPORT, str(some_records), format_]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "LOADED [] 0"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.00124, "+0.0012"), (-0.00006, "-0.0001"), (-0.000023, "-0.00002"), (2.4e-6, "+0.0000"), (-1e-9, "+0.0000")],
)
def test_a_difference_that_decides_is_not_rounded_away(value: float, text: str) -> None:
    assert signed("mrr", value) == text


def test_differences_of_mean_ranks_are_whole() -> None:
    assert [signed("mr", value) for value in (-0.00002, 12.4, None)] == ["+0", "+12", "-"]
