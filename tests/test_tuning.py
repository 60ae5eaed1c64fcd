"""The search for the best model: spaces, time, trials, what is kept, and going on after an interruption."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
import torch

import eans as library
from eans.errors import Interrupted, RunError, UsageError
from eans.listener import Listener
from eans.recipes.build import resolve
from eans.tuning import Space, tune
from eans.tuning.places import Here
from eans.tuning.plan import Plan, completed, plan_for
from eans.tuning.report import methods, not_tried, seeds_table, trials
from eans.tuning.search import Search, _next
from eans.tuning.space import METHOD, Candidate, space_text
from eans.tuning.study import JOURNAL, Entry, Study
from eans.tuning.trial import MOST_PASSES, Cost, Outcome, Pruned, affordable, run_trial
from helpers_runs import eans, one_line, ring_graph, write_graph

SMALL = """
[methods."transe/adv"]
"model.dim" = { choices = [4, 8], first = 8 }
"train.lr" = { low = 1e-3, high = 1e-1, log = true, first = 0.05 }
"train.batch_size" = 32
"sampler.negatives" = { low = 2, high = 6 }

[methods."distmult/all"]
"model.dim" = 8
"train.batch_size" = 16
"train.lr" = { low = 1e-3, high = 1e-1, log = true }
"""


@pytest.fixture
def space(tmp_path: Path) -> Path:
    """A file with a space of two methods."""
    path = tmp_path / "space.toml"
    path.write_text(SMALL)
    return path


def entry(number: int, method: str, mrr: float | None, rung: int = 0, **facts: Any) -> Entry:
    return Entry(rung, number, Candidate(method, {}, {}), mrr, 1.0, facts)


def outcome(mrr: float) -> Outcome:
    return Outcome(mrr, 10, 1.0, 1.5, 8, lambda: pytest.fail("a trial that is told is not finished"))


def here(graph: library.KnowledgeGraph) -> Here:
    return Here(graph, torch.device("cpu"), 0, Listener())


def rows_of(study: Path) -> list[dict[str, str]]:
    """The trials that a search has written."""
    return list(csv.DictReader((study / "trials.csv").read_text().splitlines()))


# Spaces


def test_every_method_of_the_package_has_a_first_candidate() -> None:
    space, graph = Space.read(), ring_graph()
    assert len(space.methods) >= 5
    for method in space.methods:
        first = space.first(method)
        recipe = resolve(first.recipe("ring", seed=3), graph)
        assert recipe.name == f"default/{method}"
        assert recipe.train.seed == 3
        assert all(kind.has(first.values[key]) for key, kind in space.ranges(method).items())


def test_suggestions_lie_in_their_ranges() -> None:
    space = Space.read()
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    seen = set()
    for _ in range(60):
        trial = study.ask()
        candidate = space.suggest(trial)
        seen.add(candidate.method)
        assert all(kind.has(candidate.values[key]) for key, kind in space.ranges(candidate.method).items())
        assert space.of(trial.params) == candidate
        candidate.recipe("ring")  # every suggestion is a recipe
    assert seen == set(space.methods)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[methods", "not a TOML file"),
        ("", "has no methods"),
        ("a = 1", "has no methods"),
        ("methods = 3", "has no methods"),
        ('[methods]\n"transe/adv" = 3', "no table of recipe keys"),
        ('[methods."transe/none-such"]', "none-such"),
        ('[methods."transe/adv"]\n"train.lrr" = 0.1', "train.lrr"),
        ('[methods."transe/adv"]\n"train.lr" = { low = 0.1 }', "needs low and high, or choices"),
        ('[methods."transe/adv"]\n"train.lr" = { low = 0.2, high = 0.1 }', "low < high"),
        ('[methods."transe/adv"]\n"train.lr" = { low = 0, high = 0.1, log = true }', "above 0"),
        ('[methods."transe/adv"]\n"train.lr" = { low = 0.1, high = 0.2, first = 0.3 }', "not in the range"),
        ('[methods."transe/adv"]\n"train.lr" = { choices = [0.1], low = 0.2 }', "has choices"),
        ('[methods."transe/adv"]\n"train.lr" = { lo = 0.1, high = 0.2 }', "lo"),
        ('[methods."transe/adv"]\n"train.lr" = { low = "a", high = 0.2 }', "low"),
        ('[methods."transe/adv"]\n"model.dim" = { choices = [-1, 4] }', "model.dim"),
        ('[methods."transe/adv"]\n"loss.penalty_weight" = 0.1', "penalty"),
    ],
)
def test_mistakes_in_a_space_are_one_line(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        Space.parse(text, "my.toml")
    assert str(caught.value).startswith("my.toml: ")
    assert "\n" not in str(caught.value)


def test_middle_values_are_tried_first_where_none_is_given() -> None:
    space = Space.parse(SMALL, "small")
    first = space.first("distmult/all")
    assert first.values["train.lr"] == pytest.approx(1e-2)
    assert space.first("transe/adv").values["sampler.negatives"] == 4
    assert first.fixed == {"model.dim": 8, "train.batch_size": 16}
    assert space.only(["distmult/all"]).methods.keys() == {"distmult/all"}
    with pytest.raises(UsageError, match="did you mean 'transe/adv'"):
        space.only(["transe/ad"])


# Time


def test_steps_fill_the_time_up_to_a_number_of_passes() -> None:
    cost = Cost(step=0.01, batch_size=10, triples=95)
    assert cost.per_pass == pytest.approx(0.01 * 2 * 10)
    assert cost.steps(1.0) == 80
    assert cost.steps(1e6) == MOST_PASSES * 20
    assert Cost(5.0, 10, 95).steps(1.0) == 1


def test_plan_leaves_out_what_is_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {"transe/adv": Cost(1e-4, 10, 1000), "distmult/all": Cost(1.0, 10, 1000)}
    space, graph = Space.parse(SMALL, "small"), ring_graph()
    monkeypatch.setattr("eans.tuning.jobs.measure", lambda recipe, *_: costs[recipe.name.removeprefix("default/")])
    plan = completed(plan_for(graph, space, SMALL, 0), space, 80.0, here(graph))
    assert list(plan.step_seconds) == ["transe/adv"]
    assert "a pass over train takes 200.0 s" in plan.left_out["distmult/all"]
    costs["distmult/all"] = Cost(1e-3, 10, 1000)
    plan = completed(plan_for(graph, space, SMALL, 0), space, 80.0, here(graph))
    assert plan.seconds == (1.0, 4.0, 12.0)
    assert not plan.left_out


def test_plan_gives_slow_graphs_longer_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    space, graph = Space.parse(SMALL, "small"), ring_graph()
    monkeypatch.setattr("eans.tuning.jobs.measure", lambda *_: Cost(0.01, 10, 1000))  # four passes: 8 s
    plan = completed(plan_for(graph, space, SMALL, 0), space, 80.0, here(graph))
    assert plan.seconds == (8.0, 8.0, 12.0)


def test_methods_that_do_not_fit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(recipe: Any, *_: Any) -> Cost:
        if recipe.model.name == "distmult":
            raise MemoryError
        return Cost(1e-3, 10, 100)

    monkeypatch.setattr("eans.tuning.jobs.measure", measure)
    space, graph = Space.parse(SMALL, "small"), ring_graph()
    plan = completed(plan_for(graph, space, SMALL, 0), space, 10.0, here(graph))
    assert plan.left_out == {"distmult/all": "not enough memory"}


def test_memory_that_is_not_there_is_a_reason() -> None:
    with pytest.raises(RunError, match=r"^not enough memory$"), affordable():
        torch.empty(1 << 50)
    with pytest.raises(RuntimeError, match="size of tensor"), affordable():  # anything else is no such reason
        torch.zeros(2) + torch.zeros(3)


# Trials


def test_a_trial_takes_about_its_time_and_ranks_no_test() -> None:
    ranked: set[str] = set()
    listener = Listener(ranking=lambda split, *_: ranked.add(split))
    candidate = Space.parse(SMALL, "small").first("transe/adv")
    cpu = torch.device("cpu")
    run_trial(candidate, ring_graph(), 0.2, rung=0, seed=0, device=cpu, listener=listener)  # compiles
    began = time.perf_counter()
    found = run_trial(candidate, ring_graph(), 0.5, rung=2, seed=0, device=cpu, listener=listener)
    run = found.better_than(0.0)
    assert run is not None
    assert time.perf_counter() - began < 20  # a bound for machines under load; not a benchmark
    assert ranked == {"valid"}
    assert "test" not in run.metrics
    assert run.metrics["valid"]["both"]["mrr"] == pytest.approx(found.mrr)
    assert found.steps == run.metrics["training"]["steps"] > 1


def test_a_trial_is_pruned_by_what_its_validations_say() -> None:
    seen: list[tuple[float, int]] = []

    def prune(mrr: float, validation: int) -> bool:
        seen.append((mrr, validation))
        return validation == 2

    candidate = Space.parse(SMALL, "small").first("distmult/all")
    with pytest.raises(Pruned):
        run_trial(
            candidate, ring_graph(), 1.0, rung=0, seed=0, device=torch.device("cpu"), listener=Listener(), prune=prune
        )
    assert [number for _, number in seen] == [1, 2]


def test_large_models_are_tried_smaller_where_they_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '[methods."transe/adv"]\n"model.dim" = 256\n"train.batch_size" = 32\n"sampler.negatives" = 2'
    costs: list[int] = []

    def measure(recipe: Any, *_: Any) -> Cost:
        costs.append(recipe.model.dim)
        return Cost(recipe.model.dim * 1e-3, 32, 158)

    monkeypatch.setattr("eans.tuning.trial.measure", measure)
    candidate = Space.parse(text, "small").first("transe/adv")
    common: dict[str, Any] = {"seed": 0, "device": torch.device("cpu"), "listener": Listener()}
    assert run_trial(candidate, ring_graph(), 8.0, rung=0, **common).dim == 64
    assert costs == [256, 128, 64]
    assert run_trial(candidate, ring_graph(), 1.0, rung=1, **common).dim == 256
    # What an earlier trial has shown is not measured again, unless that one was smaller.
    measured = len(costs)
    run = run_trial(candidate, ring_graph(), 1.0, rung=1, known=(256, 0.01), **common).better_than(0.0)
    assert run is not None
    assert run.recipe.train.steps == 80
    assert len(costs) == measured
    run_trial(candidate, ring_graph(), 1.0, rung=1, known=(64, 0.01), **common)
    assert len(costs) == measured + 1


# Studies


def test_study_goes_on_where_it_was(tmp_path: Path) -> None:
    space = Space.parse(SMALL, "small")
    study = Study(tmp_path, space, 0)
    asked = []
    for mrr in (0.1, 0.3, 0.2):
        trial, candidate = study.ask()
        asked.append(candidate)
        study.told(trial, outcome(mrr), 1.5)
    assert asked[:2] == [space.first(method) for method in space.methods]
    trial, _ = study.ask()
    study.told(trial, None, 0.5, "diverged")
    study.ask()  # cut off
    best = study.best(0)[0]
    study.add(1, best, outcome(0.4), 2.0)
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(b'{"op_code": 4, "wor')  # torn by a kill
    (tmp_path / f"{JOURNAL}.lock").symlink_to(tmp_path / JOURNAL)

    again = Study(tmp_path, space, 0)
    assert [found.mrr for found in again.entries(0)] == [0.1, 0.3, 0.2, None]
    assert [found.candidate for found in again.entries(0)][:3] == asked
    assert again.entries(1)[0].number == best.number == 1
    assert again.best(0, (1,))[0].number == 2
    assert sum(found.took for found in again.entries()) == pytest.approx(7.0)
    trial, _ = again.ask()
    again.told(trial, outcome(0.5), 1.0)
    assert again.best(0)[0].mrr == 0.5


def test_importance_names_what_decides(tmp_path: Path) -> None:
    study = Study(tmp_path, Space.parse(SMALL, "small").only(["transe/adv"]), 0)
    assert study.importances("transe/adv") == {}
    for _ in range(20):
        trial, candidate = study.ask()
        study.told(trial, outcome(float(candidate.values["train.lr"])), 1.0)
    assert study.most_tried() == "transe/adv"
    found = study.importances("transe/adv")
    assert max(found, key=found.__getitem__) == "train.lr"
    assert set(found) == {"train.lr", "model.dim", "sampler.negatives"}


def test_the_second_to_rise_is_of_another_method() -> None:
    below = [entry(3, "a", 0.9), entry(1, "a", 0.8), entry(2, "b", 0.1)]
    assert _next(below, []).number == 3
    assert _next(below[1:], below[:1]).number == 2
    assert _next(below[1:], [below[0], below[2]]).number == 1
    assert _next(below[1:2], below[:1]).number == 1


def test_the_best_rise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With trials that take no time to speak of: which candidates get longer ones, and that the time is kept."""
    graph, space = ring_graph(), Space.parse(SMALL, "small")
    recipe = space.first("transe/adv").recipe("ring")
    seen: list[tuple[int, float, float]] = []

    def trial(candidate: Candidate, _: Any, seconds: float, *, rung: int, **__: Any) -> Outcome:
        time.sleep(seconds)
        mrr = round(1 - abs(float(candidate.values["train.lr"]) - 0.02) + 0.001 * rung, 6)
        seen.append((rung, mrr, seconds))
        run = library.Run(recipe, graph, None, {"valid": {"both": {"mrr": mrr}}}, [])  # type: ignore[arg-type]
        return Outcome(mrr, 10, seconds, seconds, 8, lambda: run)

    monkeypatch.setattr("eans.tuning.jobs.run_trial", trial)
    monkeypatch.setattr(library.Run, "save", lambda self, _: self)
    plan = Plan("", "", 0, (0.02, 0.08, 0.24), dict.fromkeys(space.methods, 1e-3))
    study, began = Study(tmp_path, space, 0), time.monotonic()
    best = Search(here(graph), study, plan, 3.0, 1, "cpu", tmp_path, None, began).run()
    assert time.monotonic() - began < 4
    assert best.metrics["valid"]["both"]["mrr"] == max(mrr for _, mrr, _ in seen)
    by_rung = {rung: [mrr for found, mrr, _ in seen if found == rung] for rung in (0, 1, 2)}
    assert len(by_rung[0]) > len(by_rung[1]) > len(by_rung[2]) >= 1
    assert all(seconds <= plan.seconds[rung] for rung, _, seconds in seen)
    first = next(place for place, (rung, *_) in enumerate(seen) if rung == 1)
    assert seen[first][1] == pytest.approx(max(mrr for _, mrr, _ in seen[:first]) + 0.001)
    assert by_rung[2][0] == pytest.approx(max(by_rung[1][:2]) + 0.001, abs=2e-3)


# The whole


def test_tune(tmp_path: Path, space: Path) -> None:
    graph, ranked = ring_graph(), []
    listener = Listener(ranking=lambda split, *_: ranked.append(split))
    run = tune(graph, 4.0, out=tmp_path / "out", space=space, seeds=2, listener=listener, progress=False)
    assert set(run.metrics) >= {"valid", "test", "protocol", "training"}
    study = tmp_path / "out" / "study"
    rows = rows_of(study)
    complete = [row for row in rows if row["ended"] == "complete"]
    assert {row["method"] for row in rows} == {"transe/adv", "distmult/all"}
    best = max(float(row["valid MRR"]) for row in complete)
    assert run.metrics["valid"]["both"]["mrr"] == pytest.approx(best)
    # Test is ranked by the runs with further seeds, and for the winner when all is over: by no trial.
    assert ranked.count("test") == sum(1 for split in ranked[ranked.index("test") :] if split == "test")
    assert "valid" in ranked[: ranked.index("test")]
    report = (study / "study.md").read_text()
    assert "standard deviation" in report
    assert "## Not tried" in report
    assert (study / "study.png").is_file()
    assert not (study / "best").exists()
    assert eans("verify", tmp_path / "out").returncode == 0

    loaded = library.Run.load(tmp_path / "out")
    assert loaded.metrics == json.loads(json.dumps(run.metrics))
    again = library.train(graph, recipe=str(tmp_path / "out" / "recipe.toml"), progress=False)
    assert again.metrics["test"] == run.metrics["test"]
    other = library.Run.load(study / "seeds" / "seed1")
    assert other.recipe.train.seed == 1
    assert seeds_table([run, other]).rows[-2][1].value == pytest.approx(
        (run.metrics["valid"]["both"]["mrr"] + other.metrics["valid"]["both"]["mrr"]) / 2
    )
    # What is complete is not searched again.
    assert tune(graph, 4.0, out=tmp_path / "out", space=space, seeds=2, progress=False).metrics == loaded.metrics


def test_a_search_that_is_stopped_keeps_the_best(tmp_path: Path, space: Path) -> None:
    steps = [0]
    study = tmp_path / "out" / "study"

    def stop() -> bool:
        steps[0] += 1
        journal = study / JOURNAL
        return steps[0] % 10 == 0 and journal.is_file() and journal.read_text().count('"took"') >= 2

    run = tune(ring_graph(), 600.0, out=tmp_path / "out", space=space, listener=Listener(stop=stop), progress=False)
    assert "test" in run.metrics
    assert 2 <= len(rows_of(study)) <= 3


def test_a_search_of_something_else_is_refused(tmp_path: Path, space: Path) -> None:
    graph, common = ring_graph(), {"out": tmp_path / "out", "space": space, "progress": False}
    plan = plan_for(graph, Space.read(space), space_text(space), 0)
    folder = tmp_path / "out" / "study"
    folder.mkdir(parents=True)
    Plan(plan.graph, plan.space, plan.seed, (1.0, 2.0, 3.0), {"transe/adv": 1.0}).save(folder)
    assert plan.earlier(folder).seconds == (1.0, 2.0, 3.0)
    with pytest.raises(UsageError, match="another graph"):
        tune(ring_graph(30), 1, **common)
    with pytest.raises(UsageError, match="another seed"):
        tune(graph, 1, seed=1, **common)
    with pytest.raises(UsageError, match="another space"):
        tune(graph, 1, methods=["transe/adv"], **common)
    (folder / "plan.json").write_text("{")
    with pytest.raises(RunError, match=r"plan\.json: damaged"):
        tune(graph, 1, **common)


def test_graphs_without_valid_triples_are_refused(tmp_path: Path) -> None:
    graph = library.KnowledgeGraph.from_labels([("a", "r", "b"), ("b", "r", "c")])
    with pytest.raises(UsageError, match="no valid triples to choose by"):
        tune(graph, 1, out=tmp_path / "out", progress=False)
    assert not (tmp_path / "out").exists()


def test_a_search_in_which_nothing_ends_well(tmp_path: Path, space: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Outcome:
        time.sleep(0.2)
        raise RunError("diverged")

    monkeypatch.setattr("eans.tuning.jobs.run_trial", fail)
    with pytest.raises(RunError, match="no trial has ended well: diverged"):
        tune(ring_graph(), 2, out=tmp_path / "out", space=space, progress=False)
    monkeypatch.setattr("eans.tuning.jobs.run_trial", lambda *_, **__: (_ for _ in ()).throw(Interrupted("now")))
    with pytest.raises(Interrupted, match="stopped before a trial has ended"):
        tune(ring_graph(), 20, out=tmp_path / "out", space=space, progress=False)


def test_command(tmp_path: Path) -> None:
    data = write_graph(ring_graph(), tmp_path / "data")
    assert eans("tune", "--show-space").stdout == space_text()
    for arguments, says in (
        (["train", "--data", data, "--budget", "soon"], "'soon' is not a duration"),
        (["train", "rotate/adv", "--data", data, "--budget", "1s"], "--budget searches for a recipe"),
        (["train", "--set", "model.dim=4", "--data", data, "--budget", "1s"], "--budget searches for a recipe"),
        (["tune", "--data", data, "--budget", "1s", "--method", "transe"], "no method 'transe'"),
        (["tune", "--data", data, "--budget", "1s", "--space", tmp_path / "none"], "cannot read space"),
        (["tune", "--data", data, "--budget", "1s", "--out", data], "exists already"),
    ):
        assert says in one_line(eans(*arguments).stderr)


def test_what_was_not_tried_is_named(tmp_path: Path) -> None:
    study = Study(tmp_path, Space.parse(SMALL, "small"), 0)
    trial, candidate = study.ask()
    study.told(trial, outcome(0.5), 1.0)
    plan = Plan("", "", 0, (1.0, 4.0, 12.0), dict.fromkeys(study.space.methods, 0.1), {"rotate/adv": "too slow"})
    lines = not_tried(study, plan)
    assert candidate.method == "transe/adv"
    assert lines == ["rotate/adv: too slow", "transe/adv: model.dim = 4", "distmult/all: the time was over before"]
    assert METHOD not in candidate.values
    assert methods(study, plan).rows[0][:2] == ["transe/adv", 1]
    assert trials(study.entries()).rows[0][4].value == 0.5
