"""Published cells, the runs behind them, records, the plan and the verdict: everything that needs no training."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from eans.errors import UsageError
from eans.experiments import Experiment, RecordStore, plan
from eans.recipes import load, names
from eans.recipes.build import build_trainer, resolve
from helpers_paper import call, keep, made_up, memory, paper_cell, tiny_cell, write_cells
from helpers_runs import one_line, ring_graph
from paper.cells import Cell
from paper.layouts import LAYOUTS, seeds
from paper.plan import make_study
from paper.published import read_published
from paper.report import judge, summary
from paper.schema import read_records
from paper.selection import FIGURES, drawn_from, read_cells, select
from paper.tables import AS_GOOD, AS_NEAR, PAPER_TABLES, TABLES

ROOT = Path(__file__).resolve().parent.parent
CELLS = read_published()


# --- cells ----------------------------------------------------------------------------------------------------------


def test_every_published_cell_is_there() -> None:
    counts = Counter(cell.table for cell in CELLS)
    expected = {"main": 62, "variance": 20, "small-n": 40, "one-negative": 10, "ablation": 8, "score-gap": 6}
    assert counts == expected
    assert tuple(counts) == PAPER_TABLES
    best = paper_cell("main", dataset="wn18rr", model="rotate", sampler="eans", self_adversarial=True)
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
    assert paper_cell(table, model="rotate", **fields).run(2) == Experiment(
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
    assert {cell.run().recipe for cell in drawn_from("order", CELLS)} == {"fb15k-237/transe/eans+adv"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cells.toml: no \\[\\[cell\\]\\] section"),
        ("cell = 3", "cells.toml: no \\[\\[cell\\]\\] section"),
        ("cell = [3]", "cell 1: it is 3, but should be a valid dictionary"),
        ("[[cell]]\ntable = 'main'\n", "cell 1: field 'dataset' is missing"),
        ("[[cell]]\ntable = 3\n", "cell 1: field 'table' is 3, but should be a valid string"),
        ("[[cell]]\ntable='mian'\ndataset='a'\nmodel='b'\nown=true\n", "unknown table 'mian'; did you mean 'main'"),
        ("[[cell]]\ntable='main'\ndataset='a'\nmodel='b'\nown=true\nsampler='x'\n", "sampler 'x' is not known"),
        ("[[cell]]\ntable='main'\ndataset='a'\nmodel='b'\nown=true\n", "cell 1: it does not say what was run"),
        ("[[cell]]\ntable='main'\ndataset='a'\nmodel='b'\nown=true\nsampler='eans'\nhits10=0.5\n", "'mrr' is missing"),
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
        ({"sampler": ["eans"]}, "field 'sampler' is ['eans'], but should be a valid string"),
        ({"mr": "x"}, "field 'mr' is 'x', but should be a valid number"),
        ({"mrr": True}, "field 'mrr' is True, but should be a valid number"),
        ({"negatives": "x"}, "field 'negatives' is 'x', but should be a valid integer"),
        ({"own": "yes"}, "field 'own' is 'yes', but should be a valid boolean"),
        ({"overrides": "model.dim=3"}, "field 'overrides' is 'model.dim=3', but should be a valid list"),
        ({"overrides": ["model.dim"]}, "field 'overrides.0' is 'model.dim', but string should match pattern '='"),
        ({"positive_score": 0.1}, "field 'positive_score' is none of table main"),
        ({"table": "small-n"}, "field 'negatives' is missing"),
        ({"negative": 4}, "unknown field 'negative'; did you mean 'negatives'?"),
        ({"table": "score-gap"}, "field 'step' is missing"),
        ({"mrr": 33.8}, "field 'mrr' is 33.8, but should be less than or equal to 1"),
        ({"mr": 0.5}, "field 'mr' is 0.5, but should be greater than or equal to 1"),
        ({"method": "eans"}, "fields 'method' and 'sampler' both say what was run; leave one out"),
        ({"gaussian": True}, "fields 'sampler' and 'gaussian' both say what was run; leave one out"),
        ({"mrr_stderr": -3}, "field 'mrr_stderr' is -3, but should be greater than or equal to 0"),
        ({"sampler": "kbgan", "self_adversarial": True}, "sampler 'kbgan' with self_adversarial is not known (one of"),
        ({"overrides": ["train.seed =3"]}, "overrides have train.seed; seeds are chosen by --seeds"),
        ({"table": "score-gap", "step": 1, "positive_score": 0.1, "negative_score": 0.1}, "field 'mrr' is none of"),
    ],
)
def test_wrong_fields_of_a_cell(fields: dict[str, object], message: str, tmp_path: Path) -> None:
    file = write_cells(tmp_path / "cells.toml", tiny_cell(), tiny_cell(**fields))
    with pytest.raises(UsageError, match=re.escape(f"{file}: cell 2: {message}")):
        read_published(file)


def test_a_method_stands_alone(tmp_path: Path) -> None:
    fields = {name: value for name, value in tiny_cell(method="igan").fields.items() if name != "sampler"}
    alone = {name: value for name, value in fields.items() if name != "self_adversarial"}
    without = {name: value for name, value in alone.items() if name not in ("mrr", "hits10")}
    for given, message in (
        (fields, "fields 'method' and 'self_adversarial' both say what was run; leave one out"),
        ({**alone, "table": "small-n", "negatives": 1}, "table small-n goes by the field 'sampler', not by 'method'"),
        ({**without, "mr": 9}, "field 'mrr' is missing"),
        ({**without, "mrr_stderr": 0.1}, "field 'mrr' is missing"),
        ({**without, "runs": 3}, "field 'mrr' is missing"),
    ):
        with pytest.raises(UsageError, match=re.escape(message)):
            read_published(write_cells(tmp_path / "cells.toml", Cell(given)))
    cells = read_published(write_cells(tmp_path / "cells.toml", Cell(alone), Cell(without)))
    assert {cell.run().recipe for cell in cells} == {"wordnet-core/transe/igan"}


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
            (["ablation"], "dataset=wn18rr,model=complex"),
            "no cell of ablation fulfils --only dataset=wn18rr,model=complex",
        ),
        (([], "modle=rotate"), "unknown key 'modle'; did you mean 'model'?"),
        (([], "model=rotat"), "no cell has model=rotat; did you mean 'rotate'?"),
        (([], "negatives=3"), "no cell has negatives=3 (one of 1, 16, 4, 8)"),
        (([], "model"), "'model' is not key=value"),
        ((["ablation"], "model=transe"), "no cell of ablation fulfils"),
        (([], "question=kmeans"), "fulfils --only question=kmeans; name a table that has one: choices"),
    ],
)
def test_mistakes_in_a_choice_are_one_line(
    arguments: tuple[list[str], str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = call(capsys, "report", *arguments[0], *(["--only", arguments[1]] if len(arguments) > 1 else []))
    assert done.status == 2
    assert message in one_line(done.err)


# --- records --------------------------------------------------------------------------------------------------------


ANALYSIS = {"step": 1000, "logged": {"positive_score": -0.3, "negative_score": -1.7}}
ORDER = {"entities": 3, "points": [[0, 0.5, 0.5]], "explained": [0.5, 0.2], "similarity": [[1.0]]}


def bins(edges: list[int], counts: int = 1) -> dict[str, list[int]]:
    """A histogram of substitution scores."""
    return {"edges": edges, **dict.fromkeys(("true", "train", "held_out"), [1] * counts)}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"analysis": 1}, "field 'analysis' is 1, but should be a valid list"),
        ({"analysis": [1]}, "field 'analysis.0' is 1, but should be"),
        ({"analysis": [ANALYSIS, {"step": "1"}]}, "field 'analysis.1.step' is '1', but should be a valid integer"),
        ({"analysis": [{**ANALYSIS, "cdf": ["x"]}]}, "field 'analysis.0.cdf.0' is 'x', but should be a valid number"),
        ({"analysis": [{**ANALYSIS, "substitution": {}}]}, "field 'analysis.0.substitution.edges' is missing"),
        ({"order": {**ORDER, "points": [[1]]}}, "field 'order.points.0' is [1], but list should have at least 3 items"),
        ({"order": {**ORDER, "points": []}}, "field 'order.points' is [], but list should have at least 1 item"),
        ({"order": {**ORDER, "similarity": []}}, "field 'order.similarity' is [], but list should have at least 1"),
        ({"order": {**ORDER, "similarity": [[1, 0], [1]]}}, "has a similarity that is not square"),
        (
            {"analysis": [{"step": 1, "logged": {"negative_score": -1.0}}]},
            "field 'analysis.0.logged.positive_score' is missing",
        ),
        ({"analysis": [{"step": 1, "logged": 5}]}, "field 'analysis.0.logged' is 5, but should be"),
        (
            {"analysis": [{**ANALYSIS, "substitution": bins([])}]},
            "field 'analysis.0.substitution.edges' is [], but list should have at least 2 items",
        ),
        ({"analysis": [{**ANALYSIS, "substitution": bins([0, 1], 2)}]}, "has not one count per bin in each group"),
    ],
)
def test_wrong_fields_of_a_record(
    fields: dict[str, object], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / keep(tmp_path / "records", Experiment("fb15k-237/transe/eans"), **fields).file
    for more in ([], ["--page", tmp_path / "page.md"]):
        done = call(capsys, "report", "--records", tmp_path / "records", *more)
        assert done.status == 1
        line = one_line(done.err)
        assert line.startswith(f"paper: error: {tmp_path / 'records' / file.name} is not a run record of the paper (")
        assert message in line
    assert not (tmp_path / "page.md").exists()


def test_a_record_of_a_recipe_that_was_renamed(tmp_path: Path) -> None:
    before = {"recipe": "a/b/old", "overrides": ["train.steps=9"]}
    spec = Experiment("a/b/new")
    keep(tmp_path, spec, run_as=before, analysis=[{**ANALYSIS, "substitution": bins([0, 1, 2], 2)}], order=ORDER)
    assert read_records(RecordStore(tmp_path))[spec]["run_as"] == before


def test_committed_records_have_the_names_of_their_runs() -> None:
    records = read_records(RecordStore(ROOT / "paper" / "records"))
    assert len(records) >= 4
    assert [record.file for record in records.values()] == [f"{spec.name}.json" for spec in records]
    drawn = [cell for name in FIGURES for cell in drawn_from(name, CELLS)]
    known = {cell.run().settings for cell in [*read_cells(), *drawn]}
    assert {spec.settings for spec in records} <= known


# --- the plan -------------------------------------------------------------------------------------------------------


def test_a_run_serves_several_tables_and_is_planned_once() -> None:
    selection = select(CELLS, ["main", "variance", "ablation"], "model=rotate,dataset=fb15k-237")
    uses = {experiment.key: names for experiment, names in make_study(selection, CELLS, 2).uses.items()}
    assert len(uses) == 2 * 7
    assert uses["fb15k-237/rotate/eans seed=1"] == ("main", "variance", "ablation")
    assert uses["fb15k-237/rotate/uniform seed=0"] == ("main", "ablation")


def test_what_has_a_record_is_not_run_again(tmp_path: Path) -> None:
    selection = select(CELLS, ["main"], "model=transe,dataset=fb15k-237,sampler=eans")
    keep(tmp_path, Experiment("fb15k-237/transe/eans", seed=1))
    study = make_study(selection, CELLS, 2)
    found = plan(study.uses, RecordStore(tmp_path), extra=study)
    assert [one.experiment.key for one in found if one.record is None] == [
        "fb15k-237/transe/eans seed=0",
        "fb15k-237/transe/eans+adv seed=0",
        "fb15k-237/transe/eans+adv seed=1",
    ]
    analyses = {experiment.recipe: study.analysed.get(experiment.settings, ()) for experiment in study.uses}
    assert analyses == {"fb15k-237/transe/eans": (), "fb15k-237/transe/eans+adv": (1000, 10000, 100000)}


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
    cell = paper_cell("variance", dataset="fb15k-237", model="transe", self_adversarial=False)
    runs = [made_up(cell.run(seed), mrr, 0.526, 170.0) for seed, mrr in enumerate((0.33, 0.34, 0.35))]
    other = made_up(Experiment("fb15k-237/transe/eans", ("sampler.negatives=1",)), 0.1)
    (outcome,) = judge([cell], memory(*runs, other))
    assert outcome.measured == pytest.approx({"mr": 170.0, "mrr": 0.34, "hits10": 0.526})
    assert outcome.stderr == pytest.approx({"mr": 0.0, "mrr": 0.01 / 3**0.5, "hits10": 0.0})
    assert outcome.difference == pytest.approx({"mrr": 0.002, "hits10": 0.0})
    assert outcome.passed is True
    assert seeds(outcome) == "0-2"
    (single,) = judge([cell], memory(runs[0]))
    assert (single.stderr, single.passed, seeds(single)) == ({}, False, "0")
    (none,) = judge([cell], {})
    assert (none.measured, none.difference, none.passed, none.verdict) == (None, None, None, "not run")
    assert summary([outcome, single, none]) == "1 of 3 cells pass, 1 fail, 1 not run"


def test_scores_come_from_the_analysis_at_their_step() -> None:
    cell = paper_cell("score-gap", sampler="eans", step=10_000)
    logged = {"positive_score": -0.3, "negative_score": -1.7}
    early = {"step": 1_000, "logged": {**logged, "positive_score": 9.0}}
    content = made_up(cell.run(), analysis=[early, {"step": 10_000, "logged": logged}])
    (outcome,) = judge([cell], memory(content))
    assert outcome.measured == {"positive_score": -0.3, "negative_score": -1.7}
    assert outcome.passed is True
    (record,) = memory(made_up(cell.run())).values()
    assert TABLES["score-gap"].measure.take(record, cell) is None


def test_seeds_of_different_recipes_are_told() -> None:
    cell = paper_cell("main", dataset="fb15k-237", model="transe", sampler="eans", self_adversarial=True)
    contents = [made_up(cell.run(seed), recipe_hash=f"hash{seed}") for seed in (0, 1)]
    (outcome,) = judge([cell], memory(*contents))
    assert LAYOUTS["main"]([outcome])["FB15k-237, TransE"].table.rows[0][1] == "fail!"
    contents[1]["recipe_hash"] = "hash0"
    assert not judge([cell], memory(*contents))[0].recipes_differ


def test_what_is_judged_by_nothing_has_been_run_all_the_same() -> None:
    cell = Cell({"table": "choices", "dataset": "wn18rr", "model": "rotate", "method": "eans+adv", "overrides": []})
    (run,) = judge([cell], memory(made_up(cell.run())))
    (waiting,) = judge([cell], {})
    assert (run.passed, run.verdict, waiting.verdict) == (None, "not judged", "not run")


def test_times_that_cannot_be_compared_are_not_averaged() -> None:
    cell = paper_cell("one-negative", dataset="fb15k-237", model="transe")
    given = [(41.0, 1), (91.0, 4), (89.0, 3.8), (8.0, 1)]
    contents = [made_up(cell.run(n), seconds=s, runs_at_a_time=k) for n, (s, k) in enumerate(given)]
    contents[3]["hardware"] = "Zuse"
    (outcome,) = judge([cell], memory(*contents))
    found = outcome.to_dict()
    assert (found["seconds"], found["runs_at_a_time"], found["seeds"]) == (41.0, 1, [0, 1, 2, 3])
    assert found["hardware"] == "Abacus; Zuse"
    assert judge([cell], {})[0].to_dict()["seconds"] is None
