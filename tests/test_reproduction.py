"""Published cells, the runs behind them, records, the plan, and the report: everything that needs no training."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import subprocess
import sys
import tomllib
from collections import Counter
from importlib import resources
from pathlib import Path

import pytest
from rich.console import Console

from eans import display_report
from eans.errors import RunError, UsageError
from eans.recipes import load, names
from eans.recipes.build import build_trainer, resolve
from eans.reproduction import FIGURES, PAPER_TABLES, TABLES, Cell, RunSpec, judge, read_records, records, select
from eans.reproduction.columns import seeds
from eans.reproduction.formats import in_full, render, to_csv, to_json, to_latex, to_markdown
from eans.reproduction.plan import make_plan, missing, working_folder
from eans.reproduction.published import read_published
from eans.reproduction.report import summary
from eans.reproduction.selection import drawn_from, read_cells
from eans.reproduction.tables import AS_GOOD, AS_NEAR
from helpers_reproduction import call, keep, made_up, memory, tiny_cell, valid, write_cells
from helpers_runs import eans, one_line, ring_graph

ROOT = Path(__file__).resolve().parent.parent
CELLS = read_published()


def find(table: str, **fields: object) -> Cell:
    (cell,) = [c for c in CELLS if c.table == table and all(c.get(key) == value for key, value in fields.items())]
    return cell


# --- cells ----------------------------------------------------------------------------------------------------------


def test_every_published_cell_is_there() -> None:
    counts = Counter(cell.table for cell in CELLS)
    expected = {"main": 62, "variance": 20, "small-n": 40, "one-negative": 10, "ablation": 8, "score-gap": 6}
    assert counts == expected
    assert tuple(counts) == PAPER_TABLES
    best = find("main", dataset="wn18rr", model="rotate", sampler="eans", self_adversarial=True)
    assert best.values == {"mr": 3402.0, "mrr": 0.489, "hits10": 0.576}
    assert best["own"] is True


@pytest.mark.parametrize(
    ("table", "fields", "settings"),
    [
        ("main", {"sampler": "uniform", "self_adversarial": False, "dataset": "fb15k-237"}, "fb15k-237/rotate/uniform"),
        ("main", {"sampler": "uniform", "self_adversarial": True, "dataset": "wn18rr"}, "wn18rr/rotate/adv"),
        ("main", {"sampler": "sans", "dataset": "wn18rr"}, "wn18rr/rotate/sans+adv"),
        ("variance", {"self_adversarial": True, "dataset": "fb15k-237"}, "fb15k-237/rotate/eans+adv"),
        ("small-n", {"negatives": 8, "dataset": "fb15k-237"}, "fb15k-237/rotate/eans sampler.negatives=8"),
        ("one-negative", {"dataset": "wn18rr"}, "wn18rr/rotate/eans sampler.negatives=1"),
        ("ablation", {"gaussian": True, "substitution": False, "dataset": "wn18rr"}, "wn18rr/rotate/gaussian"),
        ("ablation", {"gaussian": False, "substitution": True, "dataset": "wn18rr"}, "wn18rr/rotate/substitution"),
        ("ablation", {"gaussian": False, "substitution": False, "dataset": "wn18rr"}, "wn18rr/rotate/uniform"),
        ("ablation", {"gaussian": True, "substitution": True, "dataset": "wn18rr"}, "wn18rr/rotate/eans"),
    ],
)
def test_cells_map_to_runs(table: str, fields: dict[str, object], settings: str) -> None:
    assert find(table, model="rotate", **fields).run(2) == RunSpec(
        settings.split()[0], tuple(settings.split()[1:]), seed=2
    )


def test_every_run_is_a_recipe_that_can_be_built() -> None:
    graph, known = ring_graph(120), set(names())
    specs = {cell.run() for cell in [*CELLS, *(cell for name in FIGURES for cell in drawn_from(name, CELLS))]}
    assert len(specs) == 122  # 106 behind the 146 cells, and 16 of the small-n figure that no table has
    for spec in specs:
        assert spec.recipe in known
        build_trainer(resolve(load(spec.recipe, [*spec.overrides, "model.dim=2"], data=graph.name), graph), graph)


def test_figures_draw_from_runs_that_tables_share() -> None:
    few = drawn_from("small-n", CELLS)
    assert Counter((cell["model"], cell.method) for cell in few) == {
        (model, method): 8 for model in ("transe", "complex") for method in ("eans", "adv")
    }
    assert all("mrr" not in cell.fields for cell in few if cell.method == "adv")
    assert {cell.run().recipe for cell in drawn_from("order", CELLS)} == {"fb15k-237/transe/eans"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cells.toml: no \\[\\[cell\\]\\] section"),
        ("cell = 3", "cells.toml: no \\[\\[cell\\]\\] section"),
        ("cell = [3]", "cell 1: it is 3, not a table of fields"),
        ("[[cell]]\ntable = 'main'\n", "cell 1: field 'dataset' is missing"),
        ("[[cell]]\ntable = 3\n", "cell 1: field 'table' is 3, not text"),
        ("[[cell]]\ntable='mian'\ndataset='a'\nmodel='b'\nown=true\n", "unknown table 'mian'; did you mean 'main'"),
        ("[[cell]]\ntable='main'\ndataset='a'\nmodel='b'\nown=true\nsampler='x'\n", "no method for its sampler"),
        ("[[cell]]\ntable='main'\ndataset='a'\nmodel='b'\nown=true\nsampler='eans'\n", "field 'mrr' is missing"),
        ("[[cell", "not a TOML file of cells"),
    ],
)
def test_wrong_cells(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "cells.toml").write_text(text, "utf-8")
    with pytest.raises(UsageError, match=message):
        read_published(tmp_path / "cells.toml")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sampler": ["eans"]}, "field 'sampler' is ['eans'], not text"),
        ({"mr": "x"}, "field 'mr' is 'x', not a number"),
        ({"mrr": True}, "field 'mrr' is True, not a number"),
        ({"negatives": "x"}, "field 'negatives' is 'x', not a whole number from 1 on"),
        ({"own": "yes"}, "field 'own' is 'yes', not true or false"),
        ({"overrides": "model.dim=3"}, "field 'overrides' is 'model.dim=3', not a list, each key=value"),
        ({"overrides": ["model.dim"]}, "field 'overrides' is ['model.dim'], not a list, each key=value"),
        ({"positive_score": 0.1}, "field 'positive_score' is none of table main"),
        ({"table": "small-n"}, "field 'negatives' is missing"),
        ({"negative": 4}, "unknown field 'negative'; did you mean 'negatives'?"),
        ({"table": "score-gap"}, "field 'step' is missing"),
        ({"table": "score-gap", "step": 1, "positive_score": 0.1, "negative_score": 0.1}, "field 'mrr' is none of"),
    ],
)
def test_wrong_fields_of_a_cell(fields: dict[str, object], message: str, tmp_path: Path) -> None:
    file = write_cells(tmp_path / "cells.toml", tiny_cell(), tiny_cell(**fields))
    with pytest.raises(UsageError, match=re.escape(f"{file}: cell 2: {message}")):
        read_published(file)


# --- choosing -------------------------------------------------------------------------------------------------------


def test_names_choose_tables_and_figures() -> None:
    both = select(CELLS, ["small-n"])
    assert (both.tables, both.figures) == (("small-n",), ("small-n",))
    order = select(CELLS, ["order"])
    assert (order.cells, order.figures) == ((), ("order",))
    everything = select(CELLS)
    assert (everything.tables, everything.figures) == (PAPER_TABLES, FIGURES)


def test_only_filters_by_any_field() -> None:
    chosen = select(CELLS, ["main", "ablation"], "model=rotate, dataset=wn18rr")
    assert Counter(cell.table for cell in chosen.cells) == {"main": 5, "ablation": 4}
    assert {cell["negatives"] for cell in select(CELLS, (), "negatives=4").cells} == {4}
    assert all(cell["gaussian"] is True for cell in select(CELLS, ["ablation"], "gaussian=True").cells)
    either = select(CELLS, ["main"], "model=rotate,sampler=eans,model=complex,dataset=wn18rr")
    assert [(cell["model"], cell["self_adversarial"]) for cell in either.cells] == [
        (model, adversarial) for model in ("complex", "rotate") for adversarial in (False, True)
    ]
    adversarial = select(CELLS, ["small-n"], "self_adversarial=true")
    assert adversarial.cells == ()
    assert {cell.method for cell in adversarial.drawn["small-n"]} == {"adv"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["mian"],), "unknown table or figure 'mian'; did you mean 'main'?"),
        (
            (["bets"],),
            "did you mean 'best'? (one of main, variance, small-n, one-negative, ablation, score-gap, best, choi",
        ),
        ((["best"], "sampler=eans"), "no cell of best fulfils --only sampler=eans"),
        (
            (["choices"], "dataset=wn18rr,model=complex"),
            "no cell of choices fulfils --only dataset=wn18rr,model=complex",
        ),
        (([], "modle=rotate"), "unknown key 'modle'; did you mean 'model'?"),
        (([], "model=rotat"), "no cell has model=rotat; did you mean 'rotate'?"),
        (([], "negatives=3"), "no cell has negatives=3 (one of 1, 16, 4, 8)"),
        (([], "model"), "'model' is not key=value"),
        ((["ablation"], "model=transe"), "no cell of ablation fulfils"),
    ],
)
def test_mistakes_in_a_choice_are_one_line(
    arguments: tuple[list[str], str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = call(capsys, "report", *arguments[0], *(["--only", arguments[1]] if len(arguments) > 1 else []))
    assert done.status == 2
    assert message in one_line(done.err)


# --- records --------------------------------------------------------------------------------------------------------


def test_records_are_files_named_after_their_run(tmp_path: Path) -> None:
    spec = RunSpec("fb15k-237/transe/eans+adv", ("sampler.negatives=4",), 1)
    record = keep(tmp_path, spec, 0.31, 0.52, 180.0)
    assert record.file == "fb15k-237--transe--eans+adv--sampler.negatives=4--seed1.json"
    (read,) = read_records(tmp_path).values()
    assert (read.spec, read.test) == (spec, {"mr": 180.0, "mrr": 0.31, "hits10": 0.52})
    keep(tmp_path, spec, 0.32)
    assert [record.test["mrr"] for record in read_records(tmp_path).values()] == [0.32]  # replaced
    assert spec.command == "eans train fb15k-237/transe/eans+adv --set sampler.negatives=4 --seed 1"


def test_names_are_safe_and_different() -> None:
    texts = ["model.dim=1", "data.name=a/b c", "data.name=a--b", "data.name=ä", "data.name=" + "x" * 300]
    found = [RunSpec("a/b/c", (text, *more), seed) for text in texts for more in ((), ("x.y=1",)) for seed in (0, 1)]
    file_names = {spec.name for spec in found}
    assert len(file_names) == len(found)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEF0123456789._+=%-") for name in file_names)
    assert max(map(len, file_names)) <= 200


def test_parts_of_names_stay_apart() -> None:
    recipes = ["a/b/c", "a/b--c", "a-/b/c", "a/-b/c", "a//b", "a/--b", "a/b/c/d=1", "a/b/c--d=1", "a/b"]
    found = [RunSpec(recipe, more) for recipe in recipes for more in ((), ("d=1",), ("d=1--e=2",), ("d=1", "e=2"))]
    assert len({spec.name for spec in found}) == len(found)
    long = "x" * 300
    assert RunSpec("a/b/c", (f"d={long} e=1",)).name != RunSpec("a/b/c", (f"d={long}", "e=1")).name


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"recipe": "a/b/c", "overrides": [], "seed": 0}'])
def test_damaged_record(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.json").write_text(text, "utf-8")
    with pytest.raises(RunError, match=r"bad\.json is not a run record"):
        read_records(tmp_path)


LOOK = {"step": 1000, "positive_score": -0.3, "negative_score": -1.7}
ORDER = {"entities": 3, "points": [[0, 0.5, 0.5]], "explained": [0.5, 0.2], "similarity": [[1.0]]}


def bins(edges: list[int], counts: int = 1) -> dict[str, list[int]]:
    """A histogram of substitution scores."""
    return {"edges": edges, **dict.fromkeys(("true", "train", "held_out"), [1] * counts)}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"overrides": [["x"]]}, "field 'overrides' is [['x']], not a list, each key=value"),
        ({"seed": "0"}, "field 'seed' is '0', not a whole number"),
        ({"seconds": None}, "field 'seconds' is None, not a number"),
        ({"hardware": None}, "field 'hardware' is None, not text"),
        ({"test": {"both": {"mr": 1.0, "mrr": "0.3", "hits@10": 0.5}}}, "field 'test.both.mrr' is '0.3', not a number"),
        ({"test": {"both": {"mr": 1.0, "mrr": math.nan, "hits@10": 0.5}}}, "field 'test.both.mrr' is nan, not a numb"),
        ({"test": [1]}, "field 'test' is [1], not a table of fields"),
        ({"protocol": {}}, "field 'protocol.ties' is missing"),
        ({"valid": {"both": {"mrr": None}}}, "field 'valid.both.mrr' is None, not a number"),
        ({"runs_at_a_time": 0}, "field 'runs_at_a_time' is 0, not a number from 1 on"),
        ({"total_seconds": "1"}, "field 'total_seconds' is '1', not a number"),
        ({"commit": 7}, "field 'commit' is 7, not text"),
        ({"versions": {"torch": 2}}, "field 'versions' is {'torch': 2}, not a table of texts"),
        ({"analysis": 1}, "field 'analysis' is 1, not a list of tables"),
        ({"analysis": [1]}, "field 'analysis.0' is 1, not a table of fields"),
        ({"analysis": [LOOK, {"step": "1"}]}, "field 'analysis.1.step' is '1', not a whole number"),
        ({"analysis": [{**LOOK, "cdf": ["x"]}]}, "field 'analysis.0.cdf' is ['x'], not a list of numbers or null"),
        ({"analysis": [{**LOOK, "substitution": {}}]}, "field 'analysis.0.substitution.edges' is missing"),
        (
            {"order": {"entities": 3, "points": [[1]]}},
            "field 'order.points' is [[1]], not a list of 1 or more, each a l",
        ),
        ({"order": {**ORDER, "points": []}}, "field 'order.points' is [], not a list of 1 or more"),
        ({"order": {**ORDER, "similarity": []}}, "field 'order.similarity' is [], not a square of numbers"),
        ({"order": {**ORDER, "similarity": [[1, 0], [1]]}}, "field 'order.similarity' is [[1, 0], [1]], not a square"),
        ({"analysis": [{"step": 1, "negative_score": -1.0}]}, "field 'analysis.0.positive_score' is missing"),
        ({"analysis": [{**LOOK, "positive_score": None}]}, "field 'analysis.0.positive_score' is None, not a number"),
        (
            {"analysis": [{**LOOK, "substitution": bins([])}]},
            "field 'analysis.0.substitution.edges' is [], not a list o",
        ),
        (
            {"analysis": [{**LOOK, "substitution": bins([0, 1], 2)}]},
            "field 'analysis.0.substitution.true' is [1, 1], no",
        ),
        ({"valid": None}, "field 'valid' is None, not a table of fields"),
        ({"valid": []}, "field 'valid' is [], not a table of fields"),
        ({"seconds": 10**400}, "field 'seconds' is 1000000"),
        ({"seed": 10**400}, "field 'seed' is 1000000"),
        ({"run_as": "transe"}, "field 'run_as' is 'transe', not a table of fields"),
        ({"run_as": {"recipe": "a/b/c"}}, "field 'run_as.overrides' is missing"),
    ],
)
def test_wrong_fields_of_a_record(
    fields: dict[str, object], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / keep(tmp_path, RunSpec("fb15k-237/transe/eans"), **fields).file
    for more in ([], ["--page", tmp_path / "page.md"]):
        done = call(capsys, "report", "--records", tmp_path, *more)
        assert done.status == 1
        assert one_line(done.err).startswith(f"eans: error: {file} is not a run record ({message}")
    assert list(tmp_path.iterdir()) == [file]


def test_a_record_of_a_recipe_that_was_renamed(tmp_path: Path) -> None:
    before = {"recipe": "a/b/old", "overrides": ["train.steps=9"]}
    spec = RunSpec("a/b/new")
    keep(tmp_path, spec, run_as=before, analysis=[{**LOOK, "substitution": bins([0, 1, 2], 2)}], order=ORDER)
    assert read_records(tmp_path)[spec]["run_as"] == before


def test_two_records_of_one_run(tmp_path: Path) -> None:
    record = keep(tmp_path, RunSpec("a/b/c"))
    (tmp_path / "copy.json").write_bytes((tmp_path / record.file).read_bytes())
    with pytest.raises(RunError, match="records of the same run"):
        read_records(tmp_path)


def test_no_folder_has_no_records(tmp_path: Path) -> None:
    assert read_records(tmp_path / "none") == {}


def test_committed_records_have_the_names_of_their_runs() -> None:
    records = read_records(ROOT / "records" / "paper")
    assert len(records) >= 4
    assert [record.file for record in records.values()] == [f"{spec.name}.json" for spec in records]
    drawn = [cell for name in FIGURES for cell in drawn_from(name, CELLS)]
    known = {cell.run().settings for cell in [*read_cells(), *drawn]}
    assert {spec.settings for spec in records} <= known


# --- the commit -----------------------------------------------------------------------------------------------------


def test_the_commit_is_that_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EANS_COMMIT", raising=False)
    package = tmp_path / "site" / "eans"
    module = package / "reproduction" / "records.py"
    module.parent.mkdir(parents=True)
    module.touch()
    monkeypatch.setattr(records, "__file__", str(module))

    def git(*arguments: str | Path) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path), *map(str, arguments)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert records.current_commit() == "unknown"
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "somebody else's")
    assert records.current_commit() == "unknown"
    git("add", "site")
    git("commit", "-q", "-m", "the package")
    commit = git("rev-parse", "HEAD")
    assert records.current_commit() == commit
    (tmp_path / "elsewhere").touch()
    assert records.current_commit() == commit
    (package / "new.py").touch()
    assert records.current_commit() == f"{commit}+changes"
    monkeypatch.setenv("EANS_COMMIT", "given")
    assert records.current_commit() == "given"


# --- the plan -------------------------------------------------------------------------------------------------------


def test_a_run_serves_several_tables_and_is_planned_once() -> None:
    selection = select(CELLS, ["main", "variance", "ablation"], "model=rotate,dataset=fb15k-237")
    plan = make_plan(selection, CELLS, 2, {})
    by_key = {run.spec.key: run for run in plan}
    assert len(by_key) == len(plan) == 2 * 7
    assert by_key["fb15k-237/rotate/eans seed=1"].uses == ("main", "variance", "ablation")
    assert by_key["fb15k-237/rotate/uniform seed=0"].uses == ("main", "ablation")


def test_what_has_a_record_is_not_run_again() -> None:
    selection = select(CELLS, ["main"], "model=transe,dataset=fb15k-237,sampler=eans")
    done = RunSpec("fb15k-237/transe/eans", seed=1)
    plan = make_plan(selection, CELLS, 2, memory(made_up(done)))
    assert [run.spec.key for run in missing(plan)] == [
        "fb15k-237/transe/eans seed=0",
        "fb15k-237/transe/eans+adv seed=0",
        "fb15k-237/transe/eans+adv seed=1",
    ]
    assert {run.spec.recipe for run in plan if run.analyse} == {"fb15k-237/transe/eans"}


def test_the_working_folder_is_not_among_the_records() -> None:
    assert working_folder(Path("records/paper")) == Path("records/.running/paper")


# --- the verdict ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mrr", "hits10", "verdict"),
    [
        (0.338, 0.526, True),
        (0.335, 0.522, True),  # just as far below as is allowed
        (0.3349, 0.526, False),
        (0.338, 0.5219, False),
        (0.400, 0.600, True),  # better is a pass
        (0.400, 0.500, False),  # one is not enough
    ],
)
def test_pass_rule(mrr: float, hits10: float, verdict: bool) -> None:
    published, measured = {"mr": 169.0, "mrr": 0.338, "hits10": 0.526}, {"mr": 9999.0, "mrr": mrr, "hits10": hits10}
    assert AS_GOOD.passes(published, measured) is verdict
    assert all(TABLES[name].rule is AS_GOOD for name in PAPER_TABLES if name != "score-gap")


@pytest.mark.parametrize(
    ("positive", "negative", "verdict"),
    [
        (-0.258, -5.805, True),
        (-0.308, -5.515, True),  # .05 and 5 % (.29) away
        (-0.309, -5.805, False),
        (-0.208, -6.095, True),
        (-0.258, -5.514, False),
    ],
)
def test_pass_rule_of_scores(positive: float, negative: float, verdict: bool) -> None:
    published = {"positive_score": -0.258, "negative_score": -5.805}
    assert AS_NEAR.passes(published, {"positive_score": positive, "negative_score": negative}) is verdict
    assert TABLES["score-gap"].rule is AS_NEAR


def test_means_and_standard_errors_by_hand() -> None:
    cell = find("variance", dataset="fb15k-237", model="transe", self_adversarial=False)
    runs = [made_up(cell.run(seed), mrr, 0.526, 170.0) for seed, mrr in enumerate((0.33, 0.34, 0.35))]
    other = made_up(RunSpec("fb15k-237/transe/eans", ("sampler.negatives=1",)), 0.1)
    (outcome,) = judge([cell], memory(*runs, other))
    assert outcome.measured == pytest.approx({"mr": 170.0, "mrr": 0.34, "hits10": 0.526})
    assert outcome.stderr == pytest.approx({"mr": 0.0, "mrr": 0.01 / 3**0.5, "hits10": 0.0})
    assert outcome.difference == pytest.approx({"mrr": 0.002, "hits10": 0.0})
    assert outcome.passed is True
    assert (outcome.seconds, outcome.hardware, seeds(outcome)) == (100.0, "Abacus", "0-2")
    (single,) = judge([cell], memory(runs[0]))
    assert (single.stderr, single.passed, seeds(single)) == ({}, False, "0")
    (none,) = judge([cell], {})
    assert (none.measured, none.difference, none.passed, none.verdict) == (None, None, None, "not run")
    assert summary([outcome, single, none]) == "1 of 3 cells pass, 1 fail, 1 not run"


def test_scores_come_from_the_analysis_at_their_step() -> None:
    cell = find("score-gap", sampler="eans", step=10_000)
    look = {"step": 10_000, "positive_score": -0.3, "negative_score": -1.7}
    content = made_up(cell.run(), analysis=[{**look, "step": 1_000, "positive_score": 9.0}, look])
    (outcome,) = judge([cell], memory(content))
    assert outcome.measured == {"positive_score": -0.3, "negative_score": -1.7}
    assert outcome.passed is True
    (record,) = memory(made_up(cell.run())).values()
    assert TABLES["score-gap"].measure.take(record, cell) is None


def test_seeds_of_different_recipes_are_told() -> None:
    cell = find("main", dataset="fb15k-237", model="transe", sampler="eans", self_adversarial=True)
    contents = [made_up(cell.run(seed), recipe_hash=f"hash{seed}") for seed in (0, 1)]
    (outcome,) = judge([cell], memory(*contents))
    assert in_full([outcome])[""].rows[0][-3] == "fail (recipes differ)"
    contents[1]["recipe_hash"] = "hash0"
    assert not judge([cell], memory(*contents))[0].recipes_differ


# --- the report as text ---------------------------------------------------------------------------------------------


@pytest.fixture
def some_records(tmp_path: Path) -> Path:
    folder = tmp_path / "records"
    cell = find("main", dataset="wn18rr", model="rotate", sampler="eans", self_adversarial=True)
    for seed in (0, 1):
        keep(folder, cell.run(seed), 0.489 + 0.001 * seed, 0.576, 3400.0)
    keep(folder, find("main", dataset="wn18rr", model="rotate", sampler="sans").run(), 0.4, 0.5)
    return folder


def test_json_has_the_published_fields_and_four_more(some_records: Path) -> None:
    done = eans("report", "--records", some_records, "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    cells = json.loads(done.stdout)
    published = tomllib.loads(resources.files("eans.reproduction").joinpath("published.toml").read_text("utf-8"))[
        "cell"
    ]
    assert len(cells) == len(published)
    for cell, fields in zip(cells, published, strict=True):
        extra = {key: cell.pop(key) for key in ("measured", "difference", "pass", "records")}
        assert cell == fields
        assert (extra["measured"] is None) == (extra["pass"] is None) == (extra["records"] == [])
    main = [cell for cell in json.loads(done.stdout) if cell["table"] == "main" and cell["pass"] is not None]
    sans, best = main
    assert best["measured"] == pytest.approx({"mr": 3400.0, "mrr": 0.4895, "hits10": 0.576})
    assert best["difference"] == pytest.approx({"mr": -2.0, "mrr": 0.0005, "hits10": 0.0})
    assert best["pass"] is True
    assert best["records"] == [f"wn18rr--rotate--eans+adv--seed{seed}.json" for seed in (0, 1)]
    assert (sans["own"], sans["pass"]) == (False, False)
    assert set(sans["difference"]) == {"mrr", "hits10"}  # no mean rank was published


def test_tables_for_people(some_records: Path) -> None:
    outcomes = judge(select(CELLS, ["main"], "model=rotate,dataset=wn18rr").cells, read_records(some_records))
    markdown = to_markdown(outcomes).splitlines()
    assert len(markdown) == 2 + 5
    assert markdown[-1] == (
        "| WN18RR | RotatE | EANS + self-adv. | 3402 | 3400 ± 0 | -2 | 0.489 | 0.4895 ± 0.0005 | +0.0005 "
        "| 0.576 | 0.5760 ± 0.0000 | +0.0000 | 0-1 | pass | 100 s | Abacus |"
    )
    assert "| fail (quoted) |" in markdown[4]
    assert "| not run |" in markdown[5]
    latex = to_latex(outcomes)
    assert r"0.4895 $\pm$ 0.0005" in latex
    assert len({line.count("&") for line in latex.splitlines() if line.endswith(r"\\")}) == 1
    rows = list(csv.DictReader(io.StringIO(to_csv(outcomes))))
    assert float(rows[-1]["measured_mrr"]) == pytest.approx(0.4895)
    assert (rows[-1]["seeds"], rows[-1]["pass"], rows[3]["pass"]) == ("2", "True", "")
    assert json.loads(to_json(outcomes))[-1]["pass"] is True
    assert render(outcomes, "markdown").startswith("## Main results\n\n| dataset")


def test_80_columns_are_enough(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """For all tables, with a standard error and both marks everywhere."""
    contents = {}
    cells = read_cells()
    for spec in [cell.run(seed) for cell in cells for seed in range(3)]:
        scores = {"positive_score": -0.3 - spec.seed, "negative_score": -5.8 + spec.seed}
        analysis = [{"step": step, **scores} for step in (1_000, 10_000, 100_000)]
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
        assert max(map(len, lines)) <= 80
        judged = [cell for cell in cells if TABLES[cell.table].rule]
        assert len(re.findall(r"(?:pass|fail|not run)[*!]*$", tables, re.MULTILINE)) == len(judged)  # none is folded
        others = [cell["setting"] for cell in cells if cell not in judged]
        assert all(any(line.startswith(setting) for line in lines) for setting in others)
        assert "Few negatives (small-n): WN18RR" in lines
        assert "Ablation (ablation): FB15k-237, RotatE" in lines
        assert "Beyond the paper (best): WN18RR" in lines
        place = lines.index("Labels of false negatives, WN18RR, RotatE, EANS + self-adv.")
        assert lines[place - 1] == "What the open choices do (choices):"
        assert "'*' marks numbers that the paper takes from earlier work" in rest
        assert ("'!' marks" in rest) == (found[0].passed is not None)


def test_a_wide_screen_has_everything(
    some_records: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(display_report, "console", lambda: Console(width=200, highlight=False, markup=False))
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
    assert "1 of 1 cell pass" in done.stdout


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
