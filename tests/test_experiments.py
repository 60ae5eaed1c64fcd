"""Experiments, their records and tables of these: everything that needs no training. And the example of the page."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from eans.errors import RunError, UsageError
from eans.experiments import (
    Experiment,
    Mean,
    Planned,
    Record,
    RecordStore,
    Table,
    estimate,
    outdated,
    plan,
    prepare,
    recipe_hash,
    records,
    table,
)
from eans.recipes import Recipe, load
from eans.recipes.build import resolve
from eans.recipes.schema import TrainSection
from helpers_paper import keep, made_up, valid
from helpers_runs import environment, ring_graph

ROOT = Path(__file__).resolve().parent.parent
TRANSE = "fb15k-237/transe/eans"


# --- records --------------------------------------------------------------------------------------------------------


def test_records_are_files_named_after_their_run(tmp_path: Path) -> None:
    experiment = Experiment("fb15k-237/transe/eans+adv", ("sampler.negatives=4",), 1)
    record = keep(tmp_path, experiment, 0.31, 0.52, 180.0)
    assert record.file == "fb15k-237--transe--eans+adv--sampler.negatives=4--seed1.json"
    store = RecordStore(tmp_path)
    (read,) = store.read().values()
    assert (read.experiment, read.get("test.both.mrr"), read.get("test.both.none", 7)) == (experiment, 0.31, 7)
    keep(tmp_path, experiment, 0.32)
    assert [record.get("test.both.mrr") for record in store.read().values()] == [0.32]  # replaced
    assert store.read([experiment, Experiment("a/b/c")]) == store.read()


def test_names_are_safe_and_different() -> None:
    texts = ["model.dim=1", "data.name=a/b c", "data.name=a--b", "data.name=ä", "data.name=" + "x" * 300]
    found = [Experiment("a/b/c", (text, *more), seed) for text in texts for more in ((), ("x.y=1",)) for seed in (0, 1)]
    file_names = {experiment.name for experiment in found}
    assert len(file_names) == len(found)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEF0123456789._+=%-") for name in file_names)
    assert max(map(len, file_names)) <= 200


def test_parts_of_names_stay_apart() -> None:
    recipes = ["a/b/c", "a/b--c", "a-/b/c", "a/-b/c", "a//b", "a/--b", "a/b/c/d=1", "a/b/c--d=1", "a/b"]
    found = [Experiment(recipe, more) for recipe in recipes for more in ((), ("d=1",), ("d=1--e=2",), ("d=1", "e=2"))]
    assert len({experiment.name for experiment in found}) == len(found)
    long = "x" * 300
    assert Experiment("a/b/c", (f"d={long} e=1",)).name != Experiment("a/b/c", (f"d={long}", "e=1")).name


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"recipe": "a/b/c", "overrides": [], "seed": 0}'])
def test_damaged_record(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.json").write_text(text, "utf-8")
    with pytest.raises(RunError, match=r"bad\.json is not a run record"):
        RecordStore(tmp_path).read()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"overrides": [["x"]]}, "field 'overrides.0' is ['x'], but should be a valid string"),
        ({"overrides": ["x"]}, "field 'overrides.0' is 'x', but string should match pattern '='"),
        ({"seed": "0"}, "field 'seed' is '0', but should be a valid integer"),
        ({"seconds": None}, "field 'seconds' is None, but should be a valid number"),
        ({"seconds": math.inf}, "field 'seconds' is inf, but should be a finite number"),
        ({"hardware": None}, "field 'hardware' is None, but should be a valid string"),
        (
            {"test": {"both": {"mr": 1.0, "mrr": "0.3", "hits@10": 0.5}}},
            "field 'test.both.mrr' is '0.3', but should be",
        ),
        ({"test": {"both": {"mr": 1.0, "mrr": math.nan, "hits@10": 0.5}}}, "field 'test.both.mrr' is nan, but should"),
        ({"test": {"both": {"mr": 0, "mrr": 0.3, "hits@10": 0.5}}}, "field 'test.both.mr' is 0, but should be greater"),
        ({"test": {"both": {"mr": 9, "mrr": 1.7, "hits@10": 0.5}}}, "field 'test.both.mrr' is 1.7, but should be less"),
        ({"test": {"both": {"mr": 9, "mrr": 0.3}}}, "field 'test.both.hits@10' is missing"),
        ({"test": [1]}, "field 'test' is [1], but should be"),
        ({"protocol": {}}, "field 'protocol.ties' is missing"),
        ({"valid": {"both": {"mrr": True}}}, "field 'valid.both.mrr' is True, but should be a valid number"),
        (
            {"valid": {"both": {"mrr": -0.1}}},
            "field 'valid.both.mrr' is -0.1, but should be greater than or equal to 0",
        ),
        ({"valid": []}, "field 'valid' is [], but should be"),
        ({"runs_at_a_time": 0}, "field 'runs_at_a_time' is 0, but should be greater than or equal to 1"),
        ({"total_seconds": "1"}, "field 'total_seconds' is '1', but should be a valid number"),
        ({"commit": 7}, "field 'commit' is 7, but should be a valid string"),
        ({"versions": {"torch": 2}}, "field 'versions.torch' is 2, but should be a valid string"),
        ({"seconds": 10**400}, "field 'seconds' is 1000000"),
        ({"run_as": "transe"}, "field 'run_as' is 'transe', but should be"),
        ({"run_as": {"recipe": "a/b/c"}}, "field 'run_as.overrides' is missing"),
    ],
)
def test_wrong_fields_of_a_record(fields: dict[str, object], message: str, tmp_path: Path) -> None:
    experiment = Experiment(TRANSE)
    (tmp_path / "x.json").write_text(json.dumps({**made_up(experiment), **fields}), "utf-8")
    (tmp_path / "x.json").rename(tmp_path / f"{experiment.name}.json")
    with pytest.raises(RunError, match=re.escape(f"{experiment.name}.json is not a run record ({message}")):
        RecordStore(tmp_path).find(experiment)


def test_a_record_under_the_name_of_another_run(tmp_path: Path) -> None:
    record, other = keep(tmp_path, Experiment("a/b/c")), Experiment("a/b/d")
    (tmp_path / f"{other.name}.json").write_bytes((tmp_path / record.file).read_bytes())
    wrong = f"{other.name}.json is the record of a/b/c seed=0; "
    with pytest.raises(RunError, match=re.escape(f"{wrong}delete it")):
        RecordStore(tmp_path).read()
    (tmp_path / record.file).unlink()
    with pytest.raises(RunError, match=re.escape(f"{wrong}rename it to {record.file} or delete it")):
        RecordStore(tmp_path).find(other)


def test_folders(tmp_path: Path) -> None:
    assert RecordStore(tmp_path / "none").read() == {}
    assert RecordStore("paper/records").working == Path("paper/.running/records")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file is not a folder of run records"):
        RecordStore(tmp_path / "file").read()


def test_the_commit_is_that_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EANS_COMMIT", raising=False)
    package = tmp_path / "site" / "eans"
    module = package / "experiments" / "records.py"
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


# --- recipes of records ---------------------------------------------------------------------------------------------


def test_hashes_of_the_past_stay_valid() -> None:
    """Records carry them. A recipe that is changed on purpose has another; a new key at its default must not."""
    warm = "sampler.warm_start=true"
    recipe = resolve(load(TRANSE, [warm]), ring_graph(120))
    graph = ring_graph(120)
    assert recipe_hash(recipe, graph) == "7776fe380cc489ba"
    other = resolve(load(TRANSE, [warm, "train.seed=3"]), graph)
    assert recipe_hash(recipe, graph) == recipe_hash(other, graph)
    assert recipe_hash(Recipe(), graph) == recipe_hash(Recipe(name="other", train=TrainSection(seed=5)), graph)


def test_the_records_are_of_the_recipes_as_they_are() -> None:
    """Those of whole runs and of short trials, as far as graphs are on this machine: a hash needs the graph."""
    found = list(RecordStore(ROOT / "paper" / "records").read().values())
    for name in ("best-trials", "choice-trials", "sans-pools"):
        lines = (ROOT / "paper" / "trials" / f"{name}.jsonl").read_text("utf-8").splitlines()
        found += [Record(f"{name}.jsonl:{place}", json.loads(line)) for place, line in enumerate(lines, 1)]
        assert "recipe_hash" in found[-1].content
    assert [(record.file, record.experiment.settings) for record in outdated(found)] == []


# --- plans ----------------------------------------------------------------------------------------------------------


def test_a_plan_has_every_experiment_once_and_the_records_that_serve(tmp_path: Path) -> None:
    done, trial, new = (Experiment("wordnet-core/transe/eans", seed=seed) for seed in range(3))
    keep(tmp_path, done)
    content = {name: value for name, value in made_up(trial).items() if name != "test"}
    RecordStore(tmp_path).write(trial, {**content, "valid": valid(0.4)})
    experiments = [new, done, new, trial]
    found = plan(experiments, RecordStore(tmp_path))
    assert [one.experiment for one in found] == [new, done, trial]
    assert [one.record is not None for one in found] == [False, True, False]
    assert [one.reason for one in found] == ["", "", "its record has no test metrics"]
    assert [one.record is not None for one in plan(experiments, RecordStore(tmp_path), test=False)] == [
        False, True, True,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("experiment", "message"),
    [
        (Experiment("nope/transe/eans"), "nope/transe/eans: unknown recipe 'nope/transe/eans'"),
        (
            Experiment("wordnet-core/transe/eans", ("train.stepz=6",)),
            "wordnet-core/transe/eans train.stepz=6: unknown recipe key 'train.stepz'; did you mean 'train.steps'?",
        ),
        (Experiment("default/transe/eans", ("data.name=nope",)), "data.name=nope: unknown dataset 'nope'"),
    ],
)
def test_a_slip_is_named_before_anything_is_run(experiment: Experiment, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        plan([Experiment("wordnet-core/transe/eans"), experiment], RecordStore(tmp_path / "records"))


def test_estimates() -> None:
    def records_of(*contents: dict[str, object]) -> dict[Experiment, Record]:
        found = [Record("x.json", content) for content in contents]
        return {record.experiment: record for record in found}

    eans = Planned(Experiment(TRANSE, seed=9), None)  # 100,000 steps
    near = [
        made_up(Experiment(TRANSE, ("model.dim=9",)), seconds=500.0, steps=10_000),
        made_up(Experiment(TRANSE, seed=1), seconds=9e9, steps=9, hardware="Slide rule"),
        made_up(Experiment("fb15k-237/rotate/eans"), seconds=9e9, steps=9),
        made_up(Experiment(TRANSE, seed=3), seconds=9e9),  # an old one, which does not know its steps
    ]
    assert estimate(eans, records_of(*near), "Abacus") == pytest.approx(5000)
    same = made_up(Experiment(TRANSE), seconds=400.0, steps=50_000, runs_at_a_time=2.0)
    assert estimate(eans, records_of(*near, same), "Abacus") == pytest.approx(400)
    begun = Planned(eans.experiment, None, saved=75_000)
    assert estimate(begun, records_of(same), "Abacus") == pytest.approx(100)
    assert estimate(eans, records_of(same), "Zuse") is None


# --- tables ---------------------------------------------------------------------------------------------------------


def some_records() -> list[Record]:
    found = []
    for n, seed, mrr in ((4, 0, 0.30), (4, 1, 0.32), (16, 0, 0.5)):
        experiment = Experiment(TRANSE, (f"sampler.negatives={n}",), seed)
        found.append(Record("x.json", made_up(experiment, mrr, valid=valid(mrr + 0.1) if n == 4 else None)))
    return found


def test_a_table_has_means_over_seeds_and_their_standard_errors() -> None:
    found = table(some_records(), ("model", "sampler.negatives"), ("test.mrr", "test.mr", "valid.mrr", "seconds"))
    assert found.markdown().splitlines() == [
        "| model | sampler.negatives | test.mrr | test.mr | valid.mrr | seconds | runs |",
        "|---|---|---:|---:|---:|---:|---:|",
        "| transe | 4 | 0.3100 ± 0.0100 | 200.0 ± 0.0 | 0.4100 ± 0.0100 | 100.0 ± 0.0 | 2 |",
        "| transe | 16 | 0.5000 | 200.0 | - | 100.0 | 1 |",
    ]
    assert str(found).splitlines()[0] == (
        "model   sampler.negatives         test.mrr      test.mr        valid.mrr      seconds  runs"
    )
    assert str(found).splitlines()[2] == (
        "transe  16                          0.5000        200.0                -        100.0     1"
    )
    first, second = json.loads(found.json())
    assert (first["test.mrr"], first["test.mrr stderr"]) == (pytest.approx(0.31), pytest.approx(0.01))
    assert (second["valid.mrr"], second["test.mrr stderr"], second["runs"]) == (None, None, 1)
    header, _, last = found.csv().splitlines()
    assert header.startswith("model,sampler.negatives,test.mrr,test.mrr stderr,test.mr,")
    assert last == "transe,16,0.5,,200.0,,,,100.0,,1"


def test_a_mean_over_some_of_the_runs_is_none() -> None:
    (row,) = table(some_records(), ("recipe",), ("test.mrr", "valid.mrr")).rows
    assert row == [TRANSE, Mean(pytest.approx(0.3733, abs=1e-4), pytest.approx(0.0636, abs=1e-4)), Mean(None), 3]


def test_rows_by_what_nobody_knows() -> None:
    with pytest.raises(UsageError, match=r"rows by 'mehtod' are unknown \(one of settings, recipe"):
        table(some_records(), ("mehtod",))
    assert Table(["a"], [], 1).csv() == "a\n"


# --- the page -------------------------------------------------------------------------------------------------------


def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    """As a script of its own, with few steps; the second time nothing is left to run."""
    page = (ROOT / "docs" / "how-to" / "run-experiments.md").read_text("utf-8")
    script = page.split("```python\n")[1].split("```")[0].replace("train.steps=2000", "train.steps=10")
    assert len(script.splitlines()) <= 12
    (tmp_path / "study.py").write_text(script.replace("(0, 1, 2)", "(0, 1)"), "utf-8")
    kept = []
    for _ in range(2):
        command = [sys.executable, "study.py"]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        kept.append((done.stdout, [path.stat().st_mtime_ns for path in sorted((tmp_path / "my-records").iterdir())]))
    assert kept[0] == kept[1]
    lines = kept[0][0].splitlines()
    assert lines[0] == "| method | valid.mrr | valid.hits@10 | seconds | runs |"
    assert [re.split(r" \| ?", line)[0] for line in lines[2:]] == ["| uniform", "| adv", "| eans"]
    assert all(line.endswith("| 2 |") for line in lines[2:])


def test_experiments_train_to_the_end_unless_told_otherwise() -> None:
    recipe, _ = prepare(Experiment("wordnet-core/transe/eans", ("train.steps=5000",), 1))
    assert (recipe.train.valid_every, recipe.train.patience, recipe.train.keep) == (0, 0, "last")
    overrides = ("train.steps=5000", "train.valid_every=10", "train.keep=best", "train.patience=2")
    recipe, _ = prepare(Experiment("wordnet-core/transe/eans", overrides, 1))
    assert (recipe.train.valid_every, recipe.train.patience, recipe.train.keep) == (10, 2, "best")
