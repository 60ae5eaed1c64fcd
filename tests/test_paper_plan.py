"""What `python -m paper reproduce` says before it begins, and what it makes: which runs, their analyses, the report."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from eans.errors import Interrupted
from eans.experiments import Experiment, Record, RecordStore, plan, run_experiment
from eans.graph import KnowledgeGraph
from eans.inspection import Analyst
from eans.listener import Listener
from eans.recipes import load
from eans.recipes.build import build_trainer, resolve
from eans.training import Trainer
from helpers_paper import TINY, call, keep, made_up, memory, tiny_cell, write_cells
from helpers_runs import environment, one_line, ring_graph, write_graph
from paper import analysis
from paper.order import describe_order, principal_axes, similarity
from paper.plan import Study, make_study
from paper.published import read_published
from paper.schema import CellFields, read_records
from paper.selection import KEYS, read_cells, select

ROOT = Path(__file__).resolve().parent.parent
CELLS = read_cells()
TRANSE = "fb15k-237/transe/eans"
EANS = Experiment("wordnet-core/transe/eans", TINY)

# --- which runs -----------------------------------------------------------------------------------------------------

ANALYSIS = {"step": 1000, "logged": {"positive_score": -0.5, "negative_score": -1.0}}
ORDER = {"entities": 2, "points": [[0, 1, 1]], "explained": [0.5, 0.5], "similarity": [[1]]}


def lacks(names: list[str], experiment: Experiment, **fields: Any) -> str:
    """Why a record with these fields does not serve tables and figures."""
    study = make_study(select(CELLS, names, "sampler=eans"), CELLS, 1)
    assert list(study.uses) == [experiment]
    (record,) = memory(made_up(experiment, **fields)).values()
    return study.lacks(experiment, record)


@pytest.mark.parametrize(
    ("name", "fields", "without"),
    [
        ("score-gap", {"analysis": [{**ANALYSIS, "step": step} for step in (1000, 10_000, 100_000)]}, "analysis"),
        (
            "negative-cdf",
            {"analysis": [{"step": step, "cdf": [0.5, 1.0]} for step in (1000, 10_000, 100_000)]},
            "analysis",
        ),
        ("substitution-histogram", {"analysis": [{**ANALYSIS, "substitution": {}}]}, "analysis of substitution scores"),
        ("order", {"analysis": [ANALYSIS], "order": ORDER}, "order of entities"),
    ],
)
def test_a_record_must_have_what_is_shown(name: str, fields: dict[str, object], without: str) -> None:
    experiment = Experiment(f"{TRANSE}+adv")
    lesser = {} if name == "score-gap" else {"analysis": [ANALYSIS]}
    assert lacks([name], experiment, **lesser) == f"its record has no {without}"
    assert lacks([name], experiment, **fields) == ""


@pytest.mark.parametrize(("name", "kept"), [("score-gap", "logged"), ("negative-cdf", "cdf")])
def test_every_step_must_have_what_is_shown(name: str, kept: str) -> None:
    """An analysis may lack it: of a step at which something was missing, or in an older record."""
    shown = {"logged": ANALYSIS["logged"], "cdf": [0.5, 1.0]}
    analyses = [{"step": step, **shown} for step in (1000, 10_000, 100_000)]
    experiment = Experiment(f"{TRANSE}+adv")
    assert lacks([name], experiment, analysis=analyses) == ""
    analyses[1] = {**analyses[1], kept: None}
    assert lacks([name], experiment, analysis=analyses) == "its record has no analysis at step 10,000"


def test_scores_must_be_of_the_steps_that_are_shown() -> None:
    analyses = [{**ANALYSIS, "step": step} for step in (1000, 10_000)]
    experiment = Experiment(f"{TRANSE}+adv")
    assert lacks(["score-gap"], experiment, analysis=analyses) == "its record has no analysis at step 100,000"
    # One that a run never comes to is not waited for.
    assert lacks(["score-gap"], experiment, analysis=analyses, steps=20_000) == ""


def test_the_order_is_drawn_from_one_seed() -> None:
    assert [one.seed for one in make_study(select(CELLS, ["order"]), CELLS, 3).uses] == [0]
    both = make_study(select(CELLS, ["order", "negative-cdf"], "sampler=eans"), CELLS, 2)
    assert list(both.uses.values()) == [("negative-cdf", "order"), ("negative-cdf",)]


def test_one_method_and_one_question() -> None:
    assert {cell.run().recipe for cell in select(CELLS, ["main", "best"], "method=best,model=rotate").cells} == {
        "fb15k-237/rotate/best",
        "wn18rr/rotate/best",
    }
    questions = {cell["question_id"]: cell["question"] for cell in CELLS if cell.table == "choices"}
    assert len(set(questions.values())) == len(questions)
    for short, title in questions.items():
        chosen = select(CELLS, ["choices"], f"question={short}").cells
        assert {cell["question"] for cell in chosen} == {title}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["choices", "--only", "question=kmean"], "no cell has question=kmean; did you mean 'kmeans'?"),
        (["main", "--only", "model=rotate", "--only", "method=best"], "fulfils --only model=rotate,method=best"),
        (["--workers", "many"], "Invalid value for '--workers': "),
        (["--workers", "0"], "--workers must be at least 1, got 0"),
        (["--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["--only", "modle=rotate"], "unknown key 'modle'; did you mean 'model'?"),
        (["--device", "tpu"], "unknown device 'tpu'"),
        (["--seed", "1"], "No such option: --seed"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = call(capsys, "reproduce", "--dry-run", *arguments)
    assert done.status == 2
    assert message in one_line(done.err)


def test_a_figure_that_other_cells_do_not_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = write_cells(tmp_path / "cells.toml", tiny_cell())
    done = call(capsys, "reproduce", "order", "--cells", cells, "--dry-run")
    assert done.status == 2
    assert one_line(done.err) == "paper: error: no cell of order is among these cells"


def test_the_page_knows_every_key_and_the_format_of_cells(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to" / "run-experiments.md").read_text("utf-8")
    words = set(re.findall(r"`([\w+-]+)`", page))
    questions = {cell["question_id"] for cell in CELLS if cell.table == "choices"}
    assert {*KEYS, *questions, *CellFields.model_fields} <= words
    (tmp_path / "cells.toml").write_text(page.split("```toml\n")[1].split("```")[0], "utf-8")
    (cell,) = read_published(tmp_path / "cells.toml")
    assert cell.run().settings == "wordnet-core/transe/adv train.steps=2000"


def test_help_knows_every_key(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    words = set(re.findall(r"\w+", call(capsys, "reproduce", "--help").out))
    assert set(KEYS) <= words


SLIPS = [
    ({"dataset": "nope"}, "unknown recipe 'nope/transe/uniform'"),
    ({"overrides": ["train.stepz=600"]}, "unknown recipe key 'train.stepz'; did you mean 'train.steps'?"),
    ({"overrides": ["data.name=nope"]}, "wordnet-core/transe/uniform data.name=nope: unknown dataset 'nope'"),
]


@pytest.mark.parametrize(("slip", "message"), SLIPS)
def test_a_slip_in_the_last_recipe_comes_before_the_plan(
    slip: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = write_cells(tmp_path / "cells.toml", tiny_cell(), tiny_cell(**slip))
    done = call(capsys, "reproduce", "--cells", cells, "--records", tmp_path / "records", "--dry-run")
    assert (done.status, done.out) == (2, "")
    assert one_line(done.err).startswith(f"paper: error: {cells}: ")
    assert message in done.err


# --- analyses -------------------------------------------------------------------------------------------------------

STUDY = Study({EANS: ("score-gap",)}, {EANS.settings: (5, 10)})


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordStore:
    """With analyses early enough for a run of twenty steps, and glances on the way."""
    for name, value in (("SPAN", 4), ("EVERY", 2), ("BATCHES", 3)):
        monkeypatch.setattr(analysis, name, value)
    return RecordStore(tmp_path / "records")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """The record of a run without analyses."""
    return run_experiment(EANS, RecordStore(tmp_path_factory.mktemp("plain") / "records"), device="cpu")


def stop_after(step: int) -> Listener:
    steps: list[int] = []
    return Listener(tick=steps.append, stop=lambda: bool(steps) and steps[-1] >= step)


def untimed(analyses: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in found.items() if key != "seconds"} for found in analyses]


def test_analyses_do_not_change_the_run(plain: Record, store: RecordStore) -> None:
    assert STUDY.lacks(EANS, plain) == "its record has no analysis"
    record = run_experiment(EANS, store, device="cpu", extra=STUDY)
    assert (record["test"], record["losses"]) == (plain["test"], plain["losses"])
    assert [found["step"] for found in record["analysis"]] == [5, 10, 20]
    first, *_, last = record["analysis"]
    assert len(first["cdf"]) == 2  # negatives
    assert first["positive_score"] == float(f"{first['positive_score']:.6g}") < 0
    assert last["substitution"].keys() >= {"edges", "true", "train", "held_out"}
    assert record["order"]["entities"] == 6481
    assert STUDY.lacks(EANS, record) == ""
    (read,) = read_records(store).values()
    assert read.content == record.content


def test_scores_are_means_over_the_steps_before(store: RecordStore) -> None:
    seen: dict[int, dict[str, float | None]] = {}
    analysts: list[Analyst] = []

    def start(_: object, graph: KnowledgeGraph, trainer: Trainer) -> None:
        analysts.append(Analyst(trainer, graph, 1))
        tick(0)

    def tick(step: int) -> None:
        seen[step] = analysts[0].look_ahead(3)

    record = run_experiment(EANS, store, device="cpu", extra=STUDY, listener=Listener(start, tick=tick))
    # Before step 5 from 1 on, before step 10 from 6 on, before step 20 from 16 on; what is at an end counts half.
    counted = [{2: 1, 4: 1}, {6: 1, 8: 2, 10: 1}, {16: 1, 18: 2, 20: 1}]
    for found, times in zip(record["analysis"], counted, strict=True):
        for name in ("positive_score", "negative_score"):
            total = sum((seen[step][name] or 0.0) * count for step, count in times.items())
            assert found["logged"][name] == pytest.approx(total / sum(times.values()), rel=1e-5)


def test_means_of_scores_need_all_their_glances(store: RecordStore) -> None:
    with pytest.raises(Interrupted):
        run_experiment(EANS, store, device="cpu", extra=STUDY, listener=stop_after(7))
    notes = store.working / EANS.name / "notes.json"
    content = json.loads(notes.read_text("utf-8"))
    lost = [glance for glance in content["ahead"] if glance["step"] != 6]
    assert len(lost) == len(content["ahead"]) - 1
    notes.write_text(json.dumps({**content, "ahead": lost}), "utf-8")
    record = run_experiment(EANS, store, device="cpu", extra=STUDY)
    assert [found["logged"] is None for found in record["analysis"]] == [False, True, False]


def test_an_interrupted_run_keeps_what_it_saw(plain: Record, store: RecordStore, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):  # between two glances of the second analysis
        run_experiment(EANS, store, device="cpu", extra=STUDY, listener=stop_after(7))
    notes = store.working / EANS.name / "notes.json"
    content = json.loads(notes.read_text("utf-8"))
    assert [glance["step"] for glance in content["ahead"]] == [0, 2, 4, 6]
    # What a process left that was killed later, but whose last checkpoint is of step 7:
    content["ahead"].append({**content["ahead"][0], "step": 8, "seconds": 50.0})
    content["analyses"].append({**content["analyses"][0], "step": 10, "seconds": 50.0})
    content["looks"] = content.pop("analyses")  # as earlier versions called it
    notes.write_text(json.dumps(content), "utf-8")
    record = run_experiment(EANS, store, device="cpu", extra=STUDY)
    undisturbed = run_experiment(EANS, RecordStore(tmp_path / "other"), device="cpu", extra=STUDY)
    assert untimed(record["analysis"]) == untimed(undisturbed["analysis"])
    assert record["order"] == undisturbed["order"]
    assert (record["test"], record["losses"]) == (plain["test"], plain["losses"])
    assert -1 < record["seconds"] < 100  # of training, without what was forgotten


# --- the command ----------------------------------------------------------------------------------------------------

DIVERGES = [*TINY, "train.lr=1e30"]


def test_reproduce_runs_what_is_missing_and_reports_failures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = write_cells(
        tmp_path / "cells.toml",
        tiny_cell(),
        tiny_cell(table="variance"),  # the same run
        tiny_cell(mrr=0.99, hits10=0.99, sampler="eans"),
        tiny_cell(model="distmult", overrides=DIVERGES),
    )
    options = ["--cells", cells, "--records", tmp_path / "records", "--device", "cpu"]
    planned = call(capsys, "reproduce", *options, "--seeds", "1", "--dry-run")
    assert planned.status == 0, planned.err
    assert "3 of 3 runs to do" in planned.out
    assert "time unknown for 3" in planned.out
    assert not (tmp_path / "records").exists()
    done = call(capsys, "reproduce", *options, "--seeds", "1", "--workers", "2")
    assert done.status == 1
    assert "the loss is not finite" in one_line(done.err)
    assert one_line(done.err).startswith("eans: failed: wordnet-core/distmult/uniform ")
    assert "2 of 4 cells pass, 1 fail, 1 not run" in done.out
    records = RecordStore(tmp_path / "records").read()
    assert {one.recipe for one in records} == {"wordnet-core/transe/uniform", "wordnet-core/transe/eans"}
    again = call(capsys, "reproduce", "--only", "model=transe", *options, "--seeds", "1")
    assert again.status == 0
    assert "0 of 2 runs to do" in again.out
    (first, *_) = (tmp_path / "records").glob("*.json")
    first.write_text(re.sub(r'"recipe_hash": "\w+"', '"recipe_hash": "older"', first.read_text("utf-8")), "utf-8")
    more = call(capsys, "reproduce", *options, "--seeds", "2", "--dry-run")
    note = "its recipe has changed since; delete it to have the run made again"
    assert one_line(more.err) == f"paper: note: {first}: {note}"
    assert "4 of 6 runs to do" in more.out
    assert re.search(r"about [\d.]+ s for 2 of them, one at a time; time unknown for 2, of which", more.out)


def test_trials_leave_test_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = write_cells(tmp_path / "cells.toml", tiny_cell())
    options = ["--cells", cells, "--records", tmp_path / "records", "--seeds", "1", "--device", "cpu"]
    done = call(capsys, "reproduce", *options, "--no-test")
    assert (done.status, done.err) == (0, "")
    assert "0 of 1 cells pass, 0 fail, 1 not run" in done.out
    (record,) = RecordStore(tmp_path / "records").read().values()
    assert ("valid" in record.content, "test" in record.content) == (True, False)
    assert "0 (its record has no test metrics)" in call(capsys, "reproduce", *options, "--dry-run").out
    assert "0 of 1 runs to do" in call(capsys, "reproduce", *options, "--no-test", "--dry-run").out


def test_cells_about_a_graph_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = write_graph(ring_graph(30), tmp_path / "graph")
    cell = tiny_cell(dataset="default", overrides=[*TINY, f"data.name={graph}"])
    cells = write_cells(tmp_path / "cells.toml", cell)
    options = ["--cells", cells, "--records", tmp_path / "mine", "--seeds", "1", "--device", "cpu"]
    done = call(capsys, "reproduce", *options)
    assert done.status == 0, done.err
    assert "Main results (main): graph, TransE" in done.out
    assert "1 of 1 cells pass" in done.out
    assert "0 of 1 runs to do" in call(capsys, "reproduce", *options).out


def test_interrupting_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = [*TINY[1:], "train.steps=600", "train.checkpoint_every=20"]
    cells = write_cells(tmp_path / "cells.toml", tiny_cell(), tiny_cell(overrides=long))
    store, experiment = RecordStore(tmp_path / "records"), tiny_cell(overrides=long).run()
    options = ["reproduce", "--cells", cells, "--records", store.folder, "--seeds", "1", "--device", "cpu"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT}
    command = [sys.executable, "-m", "paper", *map(str, options)]
    process = subprocess.Popen(command, env=environment(), start_new_session=True, **pipes)
    deadline = time.monotonic() + 60
    while not (store.working / experiment.name / "checkpoint.safetensors").is_file() and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does: all processes get it
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines() == [
        "eans: stopping; once more to stop at once",
        "paper: error: stopped with 1 of 2 runs done; the same call continues from here",
    ]
    (step,) = re.findall(r": stopped at step (\d+) of 600, its state is saved", out)
    done = call(capsys, *options)
    assert (done.status, done.err) == (0, "")
    assert "1 of 2 runs to do" in done.out
    assert f" 0 (continues at step {step})" in done.out
    assert "2 of 2 cells pass" in done.out


def test_a_graph_that_cannot_be_had_leaves_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("EANS_DATA", raising=False)
    monkeypatch.setenv("EANS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("EANS_MIRROR", "http://127.0.0.1:9/none")
    only = "dataset=wn18rr,model=transe,method=eans"
    done = call(capsys, "reproduce", "main", "--only", only, "--seeds", "1", "--records", tmp_path / "mine")
    assert done.status == 1
    assert "set EANS_DATA to a folder and put the files into wn18rr/ there" in done.err
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == []


def test_the_plan_names_every_run_and_what_it_is_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path / "records", Experiment("wn18rr/rotate/eans+adv"))
    only = "dataset=wn18rr,model=rotate,method=eans+adv"
    options = ["--records", tmp_path / "records", "--seeds", "2", "--only", only]
    done = call(capsys, "reproduce", "main", "choices", *options, "--dry-run")
    lines = [re.split("  +", line.rstrip()) for line in done.out.splitlines()]
    assert lines[0] == ["run", "for", "seeds to run", "with a record", "time each"]
    assert lines[1] == ["wn18rr/rotate/eans+adv", "main, choices (kmeans, line, labels)", "1", "0", "-"]
    settings = {cell.run().settings for cell in select(CELLS, ["main", "choices"], only).cells}
    assert {line[0] for line in lines[1:-1]} == settings
    assert plan([Experiment("wn18rr/rotate/eans+adv")], RecordStore(tmp_path / "records"))[0].record is not None


# --- the order ------------------------------------------------------------------------------------------------------


def test_the_order_of_a_trainer() -> None:
    graph = ring_graph(200)
    trainer = build_trainer(resolve(load("default/transe/eans", ["model.dim=8"], data=graph.name), graph), graph)
    for _ in range(3):
        trainer.step()
    before = torch.get_rng_state()
    found = describe_order(trainer, points=50, parts=10)
    assert torch.equal(before, torch.get_rng_state())
    assert found is not None
    assert (found["step"], found["entities"]) == (3, 200)
    positions = [point[0] for point in found["points"]]
    assert (positions[0], positions[-1], len(set(positions))) == (0, 199, 50)
    alike = torch.tensor(found["similarity"])
    assert alike.shape == (10, 10)
    assert torch.equal(alike, alike.T)
    off = ~torch.eye(10, dtype=torch.bool)
    assert alike.diagonal().mean() > alike[off].mean()  # neighbours are alike
    assert 0 < found["explained"][1] <= found["explained"][0] <= 1
    json.dumps(found)
    uniform = build_trainer(resolve(load("default/transe/uniform", data=graph.name), graph), graph)
    assert describe_order(uniform) is None


def test_similarity_by_hand() -> None:
    features = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0], [-1.0, 0.0]])
    # cosines: (1, 2) 0; (3, 4) -1; across: 1, -1, 0, 0
    torch.testing.assert_close(similarity(features, 2), torch.tensor([[0.0, 0.0], [0.0, -1.0]]))


def test_principal_axes_by_hand() -> None:
    points = torch.tensor([[0.0, 3.0, 0.0], [0.0, -3.0, 0.0], [1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]], dtype=torch.float64)
    axes, shares = principal_axes(points)
    assert axes.T.tolist() == [pytest.approx([0.0, 1.0, 0.0]), pytest.approx([1.0, 0.0, 0.0])]
    assert shares == pytest.approx([0.9, 0.1])
