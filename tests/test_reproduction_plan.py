"""What `eans reproduce` says before it begins: which runs, about how long, how many at a time; and while it waits."""

from __future__ import annotations

import io
import math
import os
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from eans import display_reproduction
from eans.display_reproduction import parse_workers, report_command, sharing_hint, time_in_words
from eans.errors import UsageError
from eans.reproduction import TABLES, Record, RunSpec, read_cells, read_records, select
from eans.reproduction.estimates import ON_A_CPU, ON_A_GPU, Estimate, estimate, steps_and_units, units_left
from eans.reproduction.forecast import Forecast
from eans.reproduction.plan import PlannedRun, make_plan
from eans.reproduction.published import FIELDS, MAY, read_published
from eans.reproduction.selection import KEYS
from eans.reproduction.sharing import SHARING_GAIN, gain, in_words, mps_is_running, with_workers
from helpers_reproduction import call, made_up, memory, tiny_cell, write_cells
from helpers_runs import one_line

ROOT = Path(__file__).resolve().parent.parent
CELLS = read_cells()
TRANSE = "fb15k-237/transe/eans"


def guess(records: dict[RunSpec, Record], recipe: str, *overrides: str, hardware: str = "Abacus") -> Estimate:
    found = estimate(RunSpec(recipe, overrides, seed=9), records, hardware)
    assert found is not None
    return found


# --- which runs -----------------------------------------------------------------------------------------------------

LOOK = {"step": 1000, "logged": {"positive_score": -0.5, "negative_score": -1.0}}
ORDER = {"entities": 2, "points": [[0, 1, 1]], "explained": [0.5, 0.5], "similarity": [[1]]}


@pytest.mark.parametrize(
    ("name", "fields", "without"),
    [
        ("score-gap", {"analysis": [{**LOOK, "step": step} for step in (1000, 10_000, 100_000)]}, "analysis"),
        (
            "negative-cdf",
            {"analysis": [{"step": step, "cdf": [0.5, 1.0]} for step in (1000, 10_000, 100_000)]},
            "analysis",
        ),
        ("substitution-histogram", {"analysis": [{**LOOK, "substitution": {}}]}, "analysis of substitution scores"),
        ("order", {"analysis": [LOOK], "order": ORDER}, "order of entities"),
    ],
)
def test_a_record_must_have_what_is_shown(name: str, fields: dict[str, object], without: str) -> None:
    spec = RunSpec(f"{TRANSE}+adv")
    selection = select(CELLS, [name], "sampler=eans")
    lesser = {} if name == "score-gap" else {"analysis": [LOOK]}
    (run,) = make_plan(selection, CELLS, 1, memory(made_up(spec, **lesser)))
    assert (run.spec, run.record, run.reason) == (spec, None, f"its record has no {without}")
    (run,) = make_plan(selection, CELLS, 1, memory(made_up(spec, **fields)))
    assert (run.record is not None, run.reason) == (True, "")


@pytest.mark.parametrize(
    ("name", "kept"),
    [("score-gap", "logged"), ("negative-cdf", "cdf")],
)
def test_every_step_must_have_what_is_shown(name: str, kept: str) -> None:
    """A look may lack it: of a step at which something was missing, or in an older record."""
    selection = select(CELLS, [name], "sampler=eans")
    shown = {"logged": LOOK["logged"], "cdf": [0.5, 1.0]}
    looks = [{"step": step, **shown} for step in (1000, 10_000, 100_000)]
    spec = RunSpec(f"{TRANSE}+adv")
    (run,) = make_plan(selection, CELLS, 1, memory(made_up(spec, analysis=looks)))
    assert run.reason == ""
    looks[1] = {**looks[1], kept: None}
    (run,) = make_plan(selection, CELLS, 1, memory(made_up(spec, analysis=looks)))
    assert (run.record, run.reason) == (None, "its record has no analysis at step 10,000")


def test_scores_must_be_of_the_steps_that_are_shown() -> None:
    selection = select(CELLS, ["score-gap"], "sampler=eans")
    looks = [{**LOOK, "step": step} for step in (1000, 10_000)]
    (run,) = make_plan(selection, CELLS, 1, memory(made_up(RunSpec(f"{TRANSE}+adv"), analysis=looks)))
    assert (run.record, run.reason) == (None, "its record has no analysis at step 100,000")
    # One that a run never comes to is not waited for.
    (run,) = make_plan(selection, CELLS, 1, memory(made_up(RunSpec(f"{TRANSE}+adv"), analysis=looks, steps=20_000)))
    assert run.record is not None


def test_the_order_is_drawn_from_one_seed() -> None:
    assert [run.spec.seed for run in make_plan(select(CELLS, ["order"]), CELLS, 3, {})] == [0]
    both = make_plan(select(CELLS, ["order", "negative-cdf"], "sampler=eans"), CELLS, 2, {})
    assert [run.uses for run in both] == [("negative-cdf", "order"), ("negative-cdf",)]


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
        (["--workers", "many"], "--workers must be auto or a number of runs, got 'many'"),
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
    assert one_line(done.err) == "eans: error: no cell of order is among these cells"


def test_the_hint_repeats_what_was_asked() -> None:
    command = report_command(["order"], "sampler=eans", Path("my records"), Path("c.toml"))
    assert command == "eans report order --only sampler=eans --records 'my records' --cells c.toml --out DIR"
    assert report_command([], "", Path("r"), None) == "eans report --records r --out DIR"


def test_the_page_knows_every_key_and_the_format_of_cells(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "running-experiments.md").read_text("utf-8")
    words = set(re.findall(r"`([\w+-]+)`", page))
    questions = {cell["question_id"] for cell in CELLS if cell.table == "choices"}
    assert {*KEYS, *questions, *FIELDS, *MAY} <= words
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
    ({"overrides": ["data.name=nope"]}, "unknown dataset 'nope'"),
]


@pytest.mark.parametrize(("slip", "message"), SLIPS)
def test_a_slip_in_the_last_recipe_comes_before_the_plan(
    slip: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = write_cells(tmp_path / "cells.toml", tiny_cell(), tiny_cell(**slip))
    done = call(capsys, "reproduce", "--cells", cells, "--records", tmp_path / "records", "--dry-run")
    assert (done.status, done.out) == (2, "")
    assert message in one_line(done.err)


# --- on the screen --------------------------------------------------------------------------------------------------


def plan_lines(width: int, monkeypatch: pytest.MonkeyPatch, *tables: str) -> list[str]:
    """The plan of tables on a terminal of this width, without records."""
    screen = Console(width=width, file=io.StringIO(), highlight=False, markup=False)
    monkeypatch.setattr(display_reproduction, "console", lambda: screen)
    plan = make_plan(select(CELLS, tables), CELLS, 3, {})
    display_reproduction.show_plan(plan, {run.spec: Estimate(600.0, True, "Abacus") for run in plan})
    assert isinstance(screen.file, io.StringIO)
    return [line.rstrip() for line in screen.file.getvalue().splitlines()]


def test_the_plan_breaks_no_word_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = plan_lines(80, monkeypatch, *TABLES)
    words = {word for line in lines for word in line.split()}
    assert max(map(len, lines)) <= 80
    for cell in CELLS:
        assert {cell.run().recipe, *cell.run().overrides} <= words
    assert [line.split() for line in lines[:2]] == [
        ["seeds", "with", "a", "estimated"],
        ["run", "for", "to", "run", "record", "time", "each"],
    ]
    assert all(line.endswith("  ~ 10 min") for line in lines[2:] if "/" in line)


def test_a_run_is_one_line_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    for width, tables, headings in ((80, ["main"], 2), (82, ["small-n"], 2), (10_000, [*TABLES], 1)):
        lines = plan_lines(width, monkeypatch, *tables)
        runs = {run.spec.settings for run in make_plan(select(CELLS, tables), CELLS, 3, {})}
        assert len(lines) == headings + len(runs)
        assert {line.split("  ")[0] for line in lines[headings:]} == runs


def test_on_a_narrow_screen_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = plan_lines(40, monkeypatch, "small-n")
    assert max(map(len, lines)) <= 40
    assert "sampler.negatives=16" in "".join(line[:20].strip() for line in lines)


# --- how long -------------------------------------------------------------------------------------------------------


def test_the_same_settings_take_as_long() -> None:
    records = memory(
        made_up(RunSpec(TRANSE, seed=0), total_seconds=100.0),
        made_up(RunSpec(TRANSE, seed=1), total_seconds=400.0, runs_at_a_time=2),
        made_up(RunSpec("fb15k-237/rotate/eans"), total_seconds=9e9),
        made_up(RunSpec(TRANSE, seed=2), total_seconds=9e9, hardware="Slide rule"),
    )
    assert guess(records, TRANSE) == (pytest.approx(150.0), False, "Abacus")


def test_what_differs_is_reckoned() -> None:
    records = memory(made_up(RunSpec(TRANSE), total_seconds=100.0))
    half = guess(records, TRANSE, "train.steps=50000")
    assert half == (pytest.approx(50.0), True, "Abacus")
    times = [guess(records, TRANSE, f"sampler.negatives={n}").seconds for n in (1, 16, 256, 1024)]
    assert times == sorted(times)
    assert times[1] < 2 * times[0]  # Adam and the step itself
    assert times[3] > 2 * times[2]  # the pairs
    assert guess(records, "fb15k-237/transe/uniform").seconds < 90  # one query instead of three
    assert guess(records, TRANSE, "model.dim=2000").seconds > 150
    assert 150 < guess(records, "fb15k-237/rotate/eans").seconds < 250  # rows twice as wide


def test_the_nearest_records_count() -> None:
    near = [
        RunSpec(TRANSE, ("sampler.warm_start=true",)),
        RunSpec("fb15k-237/rotate/eans+adv"),
        RunSpec("fb15k-237/transe/adv"),
        RunSpec("wn18rr/complex/best"),
    ]
    for nearest in range(len(near)):
        speeds = {spec: 1.0 if place == nearest else 50.0 for place, spec in enumerate(near) if place >= nearest}
        records = memory(
            *(
                made_up(spec, total_seconds=speed * 1e-12 * math.prod(steps_and_units(spec, ON_A_GPU)))
                for spec, speed in speeds.items()
            )
        )
        expected = 1e-12 * math.prod(steps_and_units(RunSpec(TRANSE), ON_A_GPU))
        assert guess(records, TRANSE) == (pytest.approx(expected), True, "Abacus")


def test_other_hardware_is_better_than_nothing() -> None:
    records = memory(
        made_up(RunSpec(TRANSE), total_seconds=100.0, hardware="Slide rule"),
        made_up(RunSpec(TRANSE, seed=1), total_seconds=100.0, hardware="Slide rule"),
        made_up(RunSpec(TRANSE, seed=2), total_seconds=900.0, hardware="Knotted rope"),
        made_up(RunSpec("g/unknown/recipe"), total_seconds=1.0),
    )
    assert guess(records, TRANSE) == (pytest.approx(100.0), False, "Slide rule")
    assert estimate(RunSpec(TRANSE), {}, "Abacus") is None
    assert estimate(RunSpec("g/unknown/recipe", seed=3), records, "Abacus") is None


def test_runs_that_gained_by_sharing_take_longer_alone() -> None:
    one = RunSpec(TRANSE, ("sampler.negatives=1",))
    shared = {"total_seconds": 100.0, "runs_at_a_time": 4.0}
    for device, expected in (("cuda", 25 * SHARING_GAIN), ("cpu", 25.0)):
        records = memory(made_up(one, device=device, **shared))
        assert guess(records, TRANSE, *one.overrides).seconds == pytest.approx(expected)
    large = memory(made_up(RunSpec(TRANSE), device="cuda", **shared))
    assert guess(large, TRANSE).seconds == pytest.approx(25.0)


def test_what_is_done_takes_no_time() -> None:
    records = memory(made_up(RunSpec(TRANSE), total_seconds=100.0))
    rest = estimate(RunSpec(TRANSE, seed=1), records, "Abacus", saved=75_000)
    assert rest is not None
    assert rest.seconds == pytest.approx(25.0)


def test_records_foretell_each_other() -> None:
    """As docs/running-experiments.md has it, each one from those of its hardware."""
    records = read_records(ROOT / "records" / "paper")
    errors = []
    for spec, record in records.items():
        others = {other: record for other, record in records.items() if other != spec}
        if record["hardware"] not in {other["hardware"] for other in others.values()}:
            continue
        found = estimate(spec, others, record["hardware"])
        itself = estimate(spec, {spec: record}, record["hardware"])
        assert found is not None
        assert itself is not None
        errors.append(math.log(found.seconds / itself.seconds))
    assert statistics.quantiles(map(abs, errors), n=3)[1] < math.log(1.3)
    high, low = f"{math.exp(max(errors)):.1f} times too high", f"{math.exp(-min(errors)):.1f} times too low"
    page = " ".join((ROOT / "docs" / "running-experiments.md").read_text("utf-8").split())
    assert f"two thirds are within a factor of 1.3, and the worst are {high} and {low}." in page


def test_small_steps_cost_next_to_nothing_on_a_cpu() -> None:
    """From runs of the bundled graph to one of the paper's, whose steps have a thousand times the pairs."""
    small, large = RunSpec("wordnet-core/transe/uniform", ("train.steps=1000",)), RunSpec(TRANSE)
    ratios = []
    for device, of in (("cpu", ON_A_CPU), ("cuda", ON_A_GPU)):
        records = memory(made_up(small, total_seconds=10.0, device=device))
        found = estimate(large, records, "Abacus")
        assert found is not None
        assert found.seconds == pytest.approx(10.0 * units_left(large, of=of) / units_left(small, of=of))
        ratios.append(found.seconds)
    assert ratios[0] > 10 * ratios[1]


def test_times_in_words() -> None:
    known, similar = Estimate(60.0, False, "Abacus"), Estimate(600.0, True, "Abacus")
    assert time_in_words([known, known]) == "60 s"
    assert time_in_words([similar, known, None]) == "~ 10 min, 60 s, unknown"
    assert time_in_words([None, None]) == "unknown"
    assert time_in_words([]) == ""


# --- how many at a time ---------------------------------------------------------------------------------------------


def planned(recipe: str = TRANSE, *overrides: str, seed: int = 0) -> PlannedRun:
    return PlannedRun(RunSpec(recipe, overrides, seed), ("main",), (), None)


SMALL = "sampler.negatives=16"
MIXED = [
    planned(),
    planned(TRANSE, SMALL),
    planned(TRANSE, "sampler.negatives=1"),
    planned(seed=1),
    planned(TRANSE, SMALL, seed=1),
]


def test_small_runs_go_together() -> None:
    runs = with_workers(MIXED, None, sharing=True)
    assert [(MIXED.index(PlannedRun(run.spec, run.uses, (), None)), run.at_a_time) for run in runs] == [
        *((1, 3), (2, 3), (0, 1)),
        *((4, 3), (3, 1)),
    ]
    assert in_words(runs) == "3 with at most 16 negatives 3 at a time, 2 one at a time"
    assert [gain(run, sharing=True) for run in runs] == [SHARING_GAIN, SHARING_GAIN, 1.0, SHARING_GAIN, 1.0]
    assert with_workers([planned("fb15k-237/complex/best")], None, sharing=True)[0].at_a_time == 1  # all entities


def test_without_mps_or_with_a_number() -> None:
    alone = with_workers(MIXED, None, sharing=False)
    assert (alone, in_words(alone)) == (MIXED, "one at a time")
    four = with_workers(MIXED, 4, sharing=False)
    assert ([run.spec for run in four], in_words(four)) == ([run.spec for run in MIXED], "4 at a time")
    assert [gain(run, sharing=False) for run in four] == [1.0] * 5
    assert with_workers(MIXED[:1], 4, sharing=True)[0].at_a_time == 1
    assert (parse_workers("auto"), parse_workers("3")) == (None, 3)
    with pytest.raises(UsageError, match="--workers must be at least 1, got -1"):
        parse_workers("-1")


def test_mps_shows_itself_by_its_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert not mps_is_running()
    (tmp_path / "control").touch()
    assert not mps_is_running()
    (tmp_path / "control").unlink()
    os.mkfifo(tmp_path / "control")
    assert mps_is_running()


def test_a_hint_where_mps_would_help() -> None:
    assert sharing_hint(MIXED).startswith("3 of them have at most 16 negatives: after `nvidia-cuda-mps-control -d`")
    assert sharing_hint(MIXED[:2]) == ""


# --- how long still -------------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in a list of one, for tests to set."""
    now = [1000.0]
    monkeypatch.setattr("eans.reproduction.forecast.time.monotonic", lambda: now[0])
    return now


def test_the_forecast_believes_what_it_sees(clock: list[float]) -> None:
    first, second, third = (RunSpec(TRANSE, seed=seed) for seed in range(3))
    forecast = Forecast({first: 100.0, second: 50.0, third: None}, belief=25.0)
    assert (forecast.total, forecast.seconds_left()) == (225.0, 225.0)
    clock[0] += 60.0  # the process starts
    forecast.advance(first, 400, 1000)  # it goes on from there
    assert (forecast.done, forecast.seconds_left()) == (0.0, 225.0)
    clock[0] += 60.0
    forecast.advance(first, 460, 1000)  # the first report that some steps are done
    assert (forecast.done, forecast.seconds_left()) == (10.0, 215.0)
    clock[0] += 175.0  # a third as fast as estimated, or less
    forecast.advance(first, 760, 1000)
    assert forecast.done == 60.0
    assert forecast.seconds_left() == pytest.approx(165 * 200 / 75)
    forecast.finish(first)
    forecast.drop(second)  # failed before it began
    assert (forecast.total, forecast.done) == (175.0, 100.0)
    forecast.finish(third)
    assert forecast.seconds_left() == 0.0


def test_without_estimates_nothing_is_said_too_soon(clock: list[float]) -> None:
    specs = [RunSpec(TRANSE, seed=seed) for seed in range(4)]
    forecast = Forecast(dict.fromkeys(specs), belief=25.0)
    clock[0] += 100.0
    for step in (0, 10):
        forecast.advance(specs[0], step, 1000)
    clock[0] += 1.0
    forecast.advance(specs[0], 50, 1000)
    assert (forecast.seconds_left(), forecast.seconds_left_of(specs[0])) == (None, None)
    forecast.advance(specs[0], 70, 1000)  # more than a twentieth of this run, not of all
    assert forecast.seconds_left() is None
    assert forecast.seconds_left_of(specs[0]) == pytest.approx(930 / 60)
    clock[0] += 9.0
    assert forecast.seconds_left() == pytest.approx(3.93 * 10 / 0.06)
    assert forecast.seconds_left_of(specs[1]) is None
    forecast.finish(specs[0])
    assert forecast.done / forecast.total == 0.25


def test_a_share_of_the_work_is_enough(clock: list[float]) -> None:
    specs = [RunSpec(TRANSE, seed=seed) for seed in range(4)]
    forecast = Forecast(dict.fromkeys(specs, 1e6), belief=0.0)
    forecast.advance(specs[0], 0, 1000)
    forecast.advance(specs[0], 1, 1000)
    clock[0] += 2.0
    forecast.advance(specs[0], 190, 1000)
    assert forecast.seconds_left() is None
    forecast.advance(specs[0], 201, 1000)
    assert forecast.seconds_left() == pytest.approx(3.799 * 2 / 0.2)


def test_the_last_run_has_nobody_beside_it(clock: list[float]) -> None:
    specs = [RunSpec(TRANSE, seed=seed) for seed in range(4)]
    forecast = Forecast(dict.fromkeys(specs), belief=0.0)
    for step in (0, 100, 600):
        clock[0] += 50.0
        for spec in specs:
            forecast.advance(spec, step, 1000)
    for spec in specs[1:]:
        forecast.finish(spec)
    assert forecast.seconds_left() == forecast.seconds_left_of(specs[0]) == pytest.approx(40.0)
