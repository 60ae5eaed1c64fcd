"""The command line, as typed: exit codes, one-line errors, output in a pipe and on a terminal.

Where only the arguments matter the entry point is called in this process; what depends on a process is run in one.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import eans as package
from eans import cli
from eans.cli.inspect import show_inspections
from eans.graph import KnowledgeGraph
from eans.recipes import names
from eans.runs import RunFolder
from helpers_runs import COMMAND, eans, environment, one_line, ring_graph, write_graph

SHORT = [
    "--set",
    "train.steps=20",
    "--set",
    "model.dim=8",
    "--set",
    "train.batch_size=32",
    "--set",
    "sampler.negatives=4",
]
ESCAPE = "\x1b"
LONG = "x" * 300  # more than the name of a file may have

Call = Callable[..., "Result"]


class Result:
    """What a command printed and how it ended."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Call the entry point with arguments, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EANS_DATA", raising=False)
    monkeypatch.setenv("EANS_CACHE", str(tmp_path / "cache"))

    def call(*arguments: str | Path) -> Result:
        with pytest.raises(SystemExit) as exit_:
            cli.main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Result(int(exit_.value.code or 0), printed.out, printed.err)

    return call


@pytest.fixture(scope="module")
def graph_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_graph(ring_graph(), tmp_path_factory.mktemp("graphs") / "ring")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that learnt something."""
    out = tmp_path_factory.mktemp("runs") / "run"
    package.train(ring_graph(), "transe", "eans", out=out, dim=16, steps=200, lr=0.02, batch_size=64, negatives=8)
    return out


def test_help_imports_no_library_that_takes_long() -> None:
    result = eans("--help")
    assert result.returncode == 0
    for word in ("train", "evaluate", "predict", "data", "recipes", "inspect", "report", "--version"):
        assert word in result.stdout
    imports = eans("--help", env=environment(PYTHONPROFILEIMPORTTIME="1")).stderr
    assert "typer" in imports
    assert not re.search(r"\| +(torch|numpy|numba|pandas|pyarrow|pydantic|optuna|safetensors)$", imports, re.MULTILINE)


def test_version_and_no_arguments(call: Call) -> None:
    assert (call("--version").out, call("--version").status) == (f"eans {package.__version__}\n", 0)
    bare = call()
    assert bare.status == 2
    assert "Usage: eans" in bare.out + bare.err
    for command in (
        ("train",),
        ("evaluate",),
        ("predict",),
        ("data",),
        ("data", "list"),
        ("recipes",),
        ("inspect", "sampler"),
        ("inspect", "run"),
        ("report",),
    ):
        assert call(*command, "--help").status == 0


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("train defalt/rotate/eans", "unknown recipe 'defalt/rotate/eans'; did you mean 'default/rotate/eans'?"),
        ("train default/rotat/eans", "unknown model 'rotat' in a recipe; did you mean 'rotate'?"),
        ("train default/rotate/foo", "unknown method 'foo' in a recipe (one of uniform, adv, eans,"),
        ("train GRAPH", "is a folder, not a recipe; a graph in it is given by --data"),
        ("train transe dim=16", "unexpected extra argument(s) (dim=16); settings are given with --set KEY=VALUE"),
        ("train transe --set dim=16", "unknown recipe key 'dim'; did you mean 'model.dim'?"),
        ("train transe --set loss.margin=1e300", "recipe key 'loss.margin' = 1e+300"),
        (
            "train transe/uniform --set loss.name=hinge --set sampler.name=none --set sampler.negatives=0",
            "loss.name 'hinge' compares positives with negatives, and sampler.name 'none' has none",
        ),
        (
            "train transe/softmax --set loss.correct_proposal=false --set sampler.name=none --set sampler.negatives=0",
            "loss.name 'softmax' compares positives with negatives, and sampler.name 'none' has none",
        ),
        ("train LONG", "recipe LONG: File name too long"),
        ("train LONG.toml", "recipe LONG.toml: File name too long"),
        ("train --data GRAPH --out LONG", "run folder LONG: File name too long"),
        ("train --resume LONG", "run folder LONG: File name too long"),
        ("evaluate LONG", "run folder LONG: File name too long"),
        ("inspect run RUN --out LONG", "--out LONG: File name too long"),
        ("report RUN --out LONG", "--out LONG: File name too long"),
        ("inspect sampler LONG", "run folder LONG: File name too long"),
        ("report LONG", "run folder LONG: File name too long"),
        ("report GRAPH", "is not a run folder"),
        ("report RUN --only x", "no such option or argument: --only; see eans report --help"),
        ("train TransF", "unknown recipe 'TransF'; did you mean 'trans"),
        ("train --set model.name=TransF", "unknown model.name 'TransF'; did you mean 'trans"),
        ("train nowhere.toml", "cannot read recipe nowhere.toml: No such file or directory"),
        ("train --data wn18r", "unknown dataset 'wn18r'; did you mean 'wn18rr'?"),
        ("train --set train.step=3", "unknown recipe key 'train.step'; did you mean 'train.steps'?"),
        ("train --set train.steps=few", "recipe key 'train.steps' = 'few'"),
        ("train --set train.steps", "'train.steps' is not an override"),
        ("train --set data.name=wn18r", "unknown dataset 'wn18r'; did you mean 'wn18rr'?"),
        ("train --data GRAPH --set sampler.name=uniformm", "did you mean 'uniform'?"),
        ("train --data GRAPH --device gpu", "unknown device 'gpu' (auto, cpu or cuda)"),
        ("train --data GRAPH --out RUN", "RUN exists already; choose another --out, or continue it with: eans train"),
        ("train --resume nowhere", "nowhere is not a run folder"),
        ("train --resume RUN --seed 3", "give no recipe, --data, --out, --seed, --set, --split or --budget"),
        ("train default --resume RUN", "give no recipe, --data, --out, --seed, --set, --split or --budget"),
        ("train --resume RUN --set train.lr=1", "give no recipe, --data, --out, --seed, --set, --split or --budget"),
        ("train --resume RUN --data GRAPH", "give no recipe, --data, --out, --seed, --set, --split or --budget"),
        ("train --resume RUN --strict", "--strict checks a folder of triples, and --resume reads none"),
        ("train --resume RUN --out x", "give no recipe, --data, --out, --seed, --set, --split or --budget"),
        ("evaluate nowhere", "nowhere is not a run folder"),
        ("evaluate RUN --split tset", "--split 'tset' is not one of train, valid, test; did you mean 'test'?"),
        ("evaluate RUN --ties optimstic", "did you mean 'optimistic'?"),
        ("evaluate RUN --test new.tsv --split test", "--test ranks a file instead of a split; give --test or --split"),
        ("predict RUN --head e1 --relation plus", "unknown relation 'plus'; did you mean 'plus"),
        ("predict RUN --head E1 --relation plus1", "unknown entity 'E1'; did you mean 'e1'?"),
        ("predict RUN --tail e99 --relation plus1", "unknown entity 'e99'; did you mean 'e"),
        ("predict RUN --head e1", "give exactly two of head, relation and tail"),
        ("predict RUN --head e1 --relation plus1 --tail e2", "give exactly two of head, relation and tail"),
        ("predict RUN --head e1 --relation plus1 -k 0", "k must be at least 1, got 0"),
        ("predict RUN --head e1 --relation plus1 --format jsn", "did you mean 'json'?"),
        ("predict RUN --head e1 --relation plus1 --known marked", "did you mean 'mark'?"),
        ("data info wordnet-cor", "did you mean 'wordnet-core'?"),
        ("data info EMPTY", "the name of the dataset is empty; give the name of a dataset, a file or a folder"),
        ("data get EMPTY", "unknown dataset ''"),
        ("train --data EMPTY", "--data is empty; give the name of a dataset, a file or a folder"),
        ("train transe/eans --data EMPTY", "--data is empty; give the name of a dataset, a file or a folder"),
        (
            "inspect sampler transe/uniform --data EMPTY",
            "--data is empty; give the name of a dataset, a file or a folder",
        ),
        ("data get fb15k237", "did you mean 'fb15k-237'?"),
        ("recipes show wn18r", "did you mean 'wn18rr"),
        ("inspect sampler transe/uniform transe/enas", "unknown method 'enas' in a recipe; did you mean 'eans'?"),
        ("inspect sampler runs/nowhere", "unknown recipe 'runs/nowhere'"),
        ("inspect sampler transe/uniform --format jsn", "did you mean 'json'?"),
        ("inspect sampler transe/uniform --steps 0", "--steps must be at least 1, got 0"),
        ("inspect sampler transe/uniform --every -3", "--every must be at least 1, got -3"),
        ("inspect sampler RUN --probe 0", "--probe must be at least 1, got 0"),
        ("inspect sampler RUN --steps 5", "a run folder is measured as it is: give no --data, --steps"),
        ("inspect sampler RUN --seed 5", "a run folder is measured as it is: give no --data, --steps"),
        ("inspect sampler RUN --device gpu", "unknown device 'gpu'"),
    ],
)
def test_mistakes_in_the_call(command: str, message: str, call: Call, run: Path, graph_folder: Path) -> None:
    places = {"RUN": str(run), "GRAPH": str(graph_folder), "EMPTY": ""}
    before = sorted(Path.cwd().rglob("*"))
    result = call(*(places.get(word, word.replace("LONG", LONG)) for word in command.split()))
    assert result.status == 2
    line = one_line(result.err)
    assert line.startswith("eans: error: ")
    assert message.replace("RUN", str(run)).replace("LONG", LONG) in line
    assert result.out == ""
    assert sorted(Path.cwd().rglob("*")) == before


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("trian", "No such command 'trian'. Did you mean 'train'? (see eans --help)"),
        ("train --epochs 3", "No such option: --epochs (see eans train --help)"),
        ("train --seed -1", "Invalid value for '--seed': Input should be greater than or equal to 0"),
        ("train --seed x", "Invalid value for '--seed': Input should be a valid integer"),
        ("data lst", "No such command 'lst'. Did you mean 'list'? (see eans data --help)"),
        ("recipes shw", "No such command 'shw'. Did you mean 'show'?"),
        ("evaluate", "Missing argument 'run' (see eans evaluate --help)"),
    ],
)
def test_mistakes_that_the_parser_finds(command: str, message: str, call: Call) -> None:
    result = call(*command.split())
    assert (result.status, result.out) == (2, "")
    assert one_line(result.err).startswith(f"eans: error: {message}")


def test_a_group_without_a_command_shows_its_help(call: Call) -> None:
    result = call("data")
    assert result.status == 2
    assert "Usage: eans data" in result.out + result.err


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train": "a\tr\tb\na\tr\n"}, "train.txt:2: expected 3 columns head<TAB>relation<TAB>tail, found 2"),
        ({"train": "a\tr\tb\n", "valid": "a\t\tb\n"}, "valid.txt:1: empty relation"),
        ({"train": "a\tr\tb\n", "test": ""}, "test.txt: the file is empty"),
        ({"train": None}, "the train split is missing"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value,
)
def test_bad_data_folder(files: dict[str, str | None], message: str, call: Call, tmp_path: Path) -> None:
    folder = write_graph(ring_graph(), tmp_path / "bad")
    for split, content in files.items():
        path = folder / f"{split}.txt"
        if content is None:
            path.unlink()
        else:
            path.write_text(content)
    result = call("train", "--data", folder)
    assert result.status == 1
    assert f"{folder}" in one_line(result.err)
    assert message in result.err


def test_failed_runs_exit_with_one(call: Call, graph_folder: Path) -> None:
    for arguments, message in (
        (["--out", "/proc/eans"], "cannot create folder /proc/eans"),
        (["--out", "run", "--set", "model.init_range=1e38", "--set", "sampler.name=uniform"], "not finite by step 1"),
    ):
        result = call("train", "--data", graph_folder, *SHORT, *arguments)
        assert result.status == 1
        assert message in one_line(result.err)


def test_an_interruption_is_one_line(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("eans.data.datasets", interrupted)
    result = call("data", "list")
    assert (result.status, result.err) == (130, "eans: error: interrupted\n")


@pytest.mark.parametrize(
    ("command", "before"),
    [
        ("report main --records x", "main is not a run folder; "),
        ("reproduce --only 'model=rotate'", ""),
        ("reproduce --help", ""),
    ],
)
def test_commands_that_have_left_say_where_they_went(command: str, before: str, call: Call) -> None:
    result = call(*shlex.split(command))
    there = f"{before}the paper's experiments are run from a checkout of the repository: python -m paper {command}"
    assert (result.status, result.out) == (2, "")
    assert one_line(result.err).replace("'", "") == f"eans: error: {there}".replace("'", "")
    assert "reproduce" not in call("--help").out


def test_only_commands_with_settings_speak_of_them(call: Call) -> None:
    assert "--set" not in call("data", "list", "a=b").err


def test_a_graph_of_training_triples_alone(call: Call, tmp_path: Path) -> None:
    folder = write_graph(ring_graph(), tmp_path / "mine")
    for split in ("valid", "test"):
        (folder / f"{split}.txt").unlink()
    result = call("train", "--data", folder, *SHORT, "--out", "run")
    assert result.status == 0
    assert "not evaluated: the graph has neither valid nor test triples" in result.out
    assert one_line(call("evaluate", "run").err).endswith("graph 'mine' has no test triples")
    assert call("predict", "run", "--head", "e1", "--relation", "plus1").status == 0


def test_the_name_of_a_folder_chooses_no_recipe(call: Call, tmp_path: Path) -> None:
    folder = write_graph(ring_graph(), tmp_path / "wn18rr")
    assert call("train", "--data", folder, *SHORT, "--out", "run").status == 0
    assert RunFolder.open(Path("run")).recipe().name == "default/rotate/eans+adv"


def test_train_in_a_pipe(graph_folder: Path, tmp_path: Path) -> None:
    """The real command; every option, and names that a markup language would swallow."""
    out = tmp_path / "my [run] :dog:"
    more = ["--seed", "5", "--device", "cpu", "--set", "train.log_every=5", "--set", "train.valid_every=10"]
    result = eans("train", "default/transe/eans", "--data", graph_folder, "--out", out, *more, *SHORT, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert ESCAPE not in result.stdout
    assert "\r" not in result.stdout
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[0] == "KnowledgeGraph('ring', 60 entities, 3 relations, train 157, valid 12, test 11)"
    assert lines[1] == "transe d=8 (512 parameters), eans negatives n=4, substitution loss, b=32, seed 5, cpu"
    assert lines[2] == "20 steps of 32 triples (2.0 passes over train per side)"
    validation = "validation every 10 steps on 12 triples, best weights kept, stops early after 5 without a better MRR"
    assert lines[3] == validation
    number = r"0\.\d{4}"
    for step in (10, 20):
        pattern = rf"step {step}: valid MRR {number}, Hits@10 {number}"
        assert [bool(re.fullmatch(pattern, line)) for line in lines if line.startswith(f"step {step}:")] == [True]
    pattern = rf"step 20/20  loss \d+\.\d{{4}}  valid MRR {number}  [\d,]+ triples/s"
    assert [bool(re.fullmatch(pattern, line)) for line in lines if line.startswith("step 20/")] == [True]
    ended = r"trained 20 steps in [\d.]+ s on cpu(; weights of step 10, the best valid MRR)?"
    assert re.fullmatch(ended, lines[-16])
    assert lines[-1] == f"run folder: {out}"
    recipe = package.Run.load(out).recipe
    assert (recipe.train.seed, recipe.train.steps, recipe.model.dim) == (5, 20, 8)
    assert recipe.data.name == str(graph_folder)


def test_default_names_of_run_folders(call: Call, graph_folder: Path) -> None:
    for _ in range(2):
        assert call("train", "--data", graph_folder, *SHORT).status == 0
    assert sorted(path.name for path in Path("runs").iterdir()) == [
        "ring-rotate-eans+adv-seed0",
        "ring-rotate-eans+adv-seed0-2",
    ]


def test_data_set_by_key_is_the_data_trained_on(call: Call, graph_folder: Path) -> None:
    result = call("train", "--set", f"data.name={graph_folder}", "--out", "run", *SHORT)
    assert result.status == 0, result.err
    assert package.Run.load("run").graph.name == "ring"
    assert package.Run.load("run").recipe.data.name == str(graph_folder)


def test_terminal_shows_a_bar(graph_folder: Path, tmp_path: Path) -> None:
    """On a pseudo-terminal: a bar with loss and speed; Ctrl-C there stops in good order."""
    master, slave = pty.openpty()
    steps = ["--set", "train.steps=100000", "--set", "train.log_every=5", "--set", "model.dim=8"]
    process = subprocess.Popen(
        [COMMAND, "train", "default/transe/eans", "--data", str(graph_folder), "--out", "run", *steps],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=tmp_path,
        env=environment(TERM="xterm-256color", COLUMNS="120", LINES="40"),
        start_new_session=True,
    )
    os.close(slave)
    shown = b""
    end = time.perf_counter() + 60
    interrupted = False
    while time.perf_counter() < end:
        try:
            block = os.read(master, 65536)
        except OSError:  # the other side has closed
            break
        shown += block
        if not interrupted and shown.count(b"triples/s") > 3:
            process.send_signal(signal.SIGINT)
            interrupted = True
    os.close(master)
    assert process.wait(timeout=30) == 130
    text = shown.decode()
    assert ESCAPE in text
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    order = ("loading PyTorch", "reading the graph", "preparing", "training", "triples/s")
    assert sorted(order, key=plain.index) == list(order)
    assert "preparing" not in plain[plain.index("triples/s") :]
    assert re.search(r"training .*━.* \d+/100000 .*loss \d+\.\d+ +[\d,]+ triples/s", plain)
    assert re.search(r"eans: error: stopped at step \d+ of 100000; continue with: eans train --resume run", plain)


def test_evaluate(call: Call, run: Path) -> None:
    table = call("evaluate", run)
    assert table.status == 0
    lines = table.out.splitlines()
    assert lines[0].split() == ["split", "side", "MR", "MRR", "Hits@1", "Hits@3", "Hits@10"]
    assert [line.split()[0] for line in lines[1:4]] == ["test", "head", "tail"]
    assert [line.split()[:2] for line in lines[4:6]] == [["baseline:", "frequency"], ["baseline:", "inverse-rule"]]
    assert "realistic ties" in lines[7]
    stored = json.loads((run / "metrics.json").read_text())
    report = json.loads(call("evaluate", run, "--json").out)
    assert list(report) == ["test", "protocol"]
    assert report["test"] == stored["test"]
    mean_ranks = {}
    for ties in ("optimistic", "realistic", "pessimistic"):
        report = json.loads(call("evaluate", run, "--json", "--ties", ties, "--split", "train").out)
        assert report["protocol"]["ties"] == ties
        mean_ranks[ties] = report["train"]["both"]["mr"]
    assert mean_ranks["optimistic"] <= mean_ranks["realistic"] <= mean_ranks["pessimistic"]


def test_evaluate_a_split_that_is_not_there(call: Call, tmp_path: Path) -> None:
    graph = KnowledgeGraph.from_labels([("a", "r", "b")], name="bare")
    package.train(graph, out=tmp_path / "bare-run", dim=4, steps=3, progress=False)
    result = call("evaluate", tmp_path / "bare-run")
    assert (result.status, one_line(result.err)) == (2, "eans: error: graph 'bare' has no test triples")
    assert call("train", "--resume", tmp_path / "bare-run").status == 0


@pytest.mark.parametrize(
    ("given", "target"),
    [
        (["--head", "e7", "--relation", "plus1"], "tail"),
        (["--tail", "e7", "--relation", "plus1"], "head"),
        (["--head", "e7", "--tail", "e8"], "relation"),
    ],
    ids=["tail", "head", "relation"],
)
def test_predict(given: list[str], target: str, call: Call, run: Path) -> None:
    count = 2
    rows = json.loads(call("predict", run, *given, "-k", "2", "--format", "json").out)
    assert [list(row) for row in rows] == [["head", "relation", "tail", "score", "known"]] * count
    assert not any(row["known"] for row in rows)
    assert rows[0]["score"] >= rows[1]["score"]
    assert len({row[target] for row in rows}) == count
    table = list(csv.DictReader(io.StringIO(call("predict", run, *given, "-k", "2", "--format", "csv").out)))
    assert [{**row, "score": float(row["score"]), "known": row["known"] == "True"} for row in table] == rows
    lines = call("predict", run, *given, "-k", "2").out.splitlines()
    assert lines[0].split() == ["rank", "head", "relation", "tail", "score"]
    shown = [line.split() for line in lines[1:]]
    expected = [[str(n), r["head"], r["relation"], r["tail"], f"{r['score']:.3f}"] for n, r in enumerate(rows, 1)]
    assert shown == expected
    marked = call("predict", run, *given, "-k", "60", "--known", "mark").out.splitlines()
    assert marked[0].split()[-1] == "known"
    assert any(line.split()[-1] == "yes" for line in marked[1:])


def test_evaluate_a_file(call: Call, run: Path, tmp_path: Path) -> None:
    """Labelled triples in a file: ranked like a split, and filtered against it, the run's own and each other."""
    file = tmp_path / "new.tsv"
    file.write_text("e1\tplus1\te3\ne1\tplus1\te4\n", "utf-8")
    shown = call("evaluate", run, "--test", file)
    assert (shown.status, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert lines[1].split()[:2] == ["test", "both"]
    assert lines[-1].startswith(f"filtered against train+valid+test+{file}, all 60 entities as candidates")
    found = json.loads(call("evaluate", run, "--test", file, "--json").out)
    loaded = package.Run.load(run)
    expected = loaded.evaluate([("e1", "plus1", "e3"), ("e1", "plus1", "e4")])
    assert (found["test"], found["test"]["triples"]) == (expected["test"], 2)
    assert found["protocol"]["split_sha256"] == expected["protocol"]["split_sha256"]
    assert found["protocol"]["filtered_against"] == ["train", "valid", "test", str(file)]
    assert found["protocol"]["test_file"] == str(file)
    (tmp_path / "test.tsv.gz").write_bytes(gzip.compress("".join(loaded.graph.text("test")).encode()))
    own = json.loads(call("evaluate", run, "--test", "test.tsv.gz", "--json").out)
    assert own["test"] == loaded.metrics["test"]
    assert "test_file" not in json.loads(call("evaluate", run, "--json").out)["protocol"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("e1\tplus1\te3\ne1\tplus1\te333\n", "new.tsv:2: unknown entity 'e333'; did you mean 'e33'?"),
        ("e1\tplus7\te3\n", "new.tsv:1: unknown relation 'plus7'; did you mean 'plus"),
        ("e1\te3\n", "new.tsv:1: expected 3 columns"),
        ("", "new.tsv: the file is empty"),
        (None, "new.tsv: cannot be read (No such file or directory)"),
    ],
)
def test_a_file_that_cannot_be_evaluated(
    call: Call, run: Path, tmp_path: Path, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "new.tsv").write_text(content, "utf-8")
    result = call("evaluate", run, "--test", "new.tsv")
    assert (result.status, result.out) == (1, "")
    assert one_line(result.err).startswith(f"eans: error: {message}")


def test_a_file_to_evaluate_is_checked(call: Call, run: Path, tmp_path: Path) -> None:
    seen = next(iter(package.Run.load(run).graph.text("train")))
    (tmp_path / "new.tsv").write_text(f"e1\tplus1\te3\n{seen}e1\tplus1\te3\n", "utf-8")
    result = call("evaluate", run, "--test", "new.tsv")
    assert result.status == 0
    repeated, leaked = result.err.splitlines()
    assert repeated.startswith("eans: warning: new.tsv:3: ('e1', 'plus1', 'e3') repeats line 1; 1 of 3 test triples")
    assert leaked.startswith("eans: warning: new.tsv:2: (")
    assert " is in train too; 1 of 3 test triples is in train: " in leaked


def test_labels_are_shown_as_they_are(call: Call, tmp_path: Path) -> None:
    long = "/film/" + "x" * 300
    labels = ["a [b]", "[red]c[/red]", ":dog:", "日本"]
    graph = KnowledgeGraph.from_labels([(labels[0], long, label) for label in labels[1:]], name="odd")
    package.train(graph, out=tmp_path / "odd", dim=4, steps=2)
    lines = call("predict", "odd", "--head", "a [b]", "--relation", long, "--known", "mark").out.splitlines()
    assert len(lines) == 5
    assert all(long in line for line in lines[1:])
    assert all(any(f" {label} " in line for line in lines[1:]) for label in labels)


def test_data_commands(call: Call, graph_folder: Path) -> None:
    lines = call("data", "list").out.splitlines()
    assert lines[0].split()[:3] == ["name", "entities", "relations"]
    names = ["wordnet-core", "fb15k-237", "wn18rr", "nations", "umls", "kinships", "wordnet", "debian"]
    assert [line.split()[0] for line in lines[1:9]] == names
    assert [line.split(":")[0] for line in lines[10::2]] == names
    assert "bundled" in lines[1]
    assert all("not here yet" in line for line in lines[2:4])
    assert all("not built yet" in line for line in lines[4:9])
    info = call("data", "info", "wordnet-core").out
    graph = package.load("wordnet-core")
    for piece in (repr(graph), *graph.sha256.values(), "licence: WordNet"):
        assert piece in info
    assert "'ring', 60 entities" in call("data", "info", graph_folder).out
    (folder,) = call("data", "get", "wordnet-core").out.splitlines()
    assert (Path(folder) / "train.txt.gz").is_file()


def test_recipe_commands(call: Call, tmp_path: Path) -> None:
    lines = call("recipes").out.splitlines()
    assert [line.split()[0] for line in lines] == list(names())
    assert sum(line.endswith("(default)") for line in lines) == 4
    shown = call("recipes", "show", "fb15k-237/rotate/eans+adv").out
    (tmp_path / "copy.toml").write_text(shown)
    assert call("recipes", "show", "copy.toml").out == shown
    assert "dim = 1000" in shown
    keys = call("recipes", "keys").out.splitlines()
    assert keys[0].split() == ["key", "default", "meaning"]
    wanted: list[Any] = ["model.dim", "200", "nominal", "width"]
    assert next(line for line in keys if line.startswith("model.dim")).split()[:4] == wanted


def inspected(*arguments: str | Path) -> list[str | Path]:
    return ["inspect", "sampler", *arguments, "--device", "cpu"]


def test_inspect_shows_a_table(call: Call, run: Path, graph_folder: Path) -> None:
    """Recipes and a run side by side: the last measurement of each."""
    result = call(*inspected("transe/uniform", "transe/eans", run, "--data", graph_folder, "--steps", "12", *SHORT))
    assert result.status == 0
    assert "eans:" not in result.err  # what takes more than two seconds says how far it is
    lines = result.out.splitlines()
    assert lines[1].split()[:4] == ["negatives", "step", "gap", "positive"]
    assert [line.split()[:2] for line in lines[2:5]] == [["uniform", "12"], ["eans", "12"], [run.name, "200"]]
    assert all(len(line.split()) == 14 for line in lines[2:5])
    assert lines[5].startswith("last measurement, ring, 157 training triples on both sides, cpu")


def test_inspect_on_a_narrow_screen(capsys: pytest.CaptureFixture[str]) -> None:
    """One column for each sampler instead of one row, so that no number is cut."""
    found = package.inspect_sampler(ring_graph(), "transe", "eans", dim=4, steps=3, device="cpu")
    show_inspections([found, found], Console(width=60, highlight=False))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["eans", "eans"]
    assert lines[1].split() == ["step", "3", "3"]
    assert [line.split("  ")[0] for line in lines[2:4]] == ["score gap", "above positive"]
    assert max(map(len, lines[:14])) <= 60
    show_inspections([found] * 7, Console(width=60, highlight=False))
    lines = capsys.readouterr().out.splitlines()
    heads = [line.split() for line in lines if not line.startswith("last") and not any(map(str.isdigit, line))]
    assert heads == [["eans"] * 4, ["eans"] * 3]
    assert max(map(len, lines[:-1])) <= 60


def test_inspect_in_other_formats(call: Call, graph_folder: Path) -> None:
    def asked(format_: str) -> str:
        more = ["--every", "10", "--probe", "50", "--seed", "3", "--format", format_]
        return call(*inspected("transe/eans", "--data", graph_folder, *more, *SHORT)).out

    (found,) = json.loads(asked("json"))
    assert [measurement["step"] for measurement in found["measurements"]] == [0, 10, 20]
    assert (found["name"], found["graph"], found["probe"], found["seed"]) == ("default/transe/eans", "ring", 50, 3)
    rows = list(csv.DictReader(io.StringIO(asked("csv"))))
    for row, measurement in zip(rows, found["measurements"], strict=True):
        assert row["name"] == "default/transe/eans"
        assert (int(row["step"]), float(row["gap"]), float(row["known"])) == (
            measurement["step"],
            measurement["gap"],
            measurement["known"],
        )


def test_inspect_writes_numbers_and_a_figure(call: Call, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    assert call(*inspected(run, "--out", "measured")).status == 0
    names = {"inspection.json", "inspection.csv", "inspection.png", "inspection.svg"}
    assert {path.name for path in Path("measured").iterdir()} == names
    monkeypatch.setattr("eans.figures.find_spec", lambda _: None)
    result = call(*inspected(run, "--out", "more"))
    assert result.status == 2
    assert "figures need matplotlib, which the extra 'figures' brings" in one_line(result.err)
    assert not Path("more").exists()


def test_python_m_eans_is_the_command() -> None:
    done = [
        subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=60)
        for command in ([COMMAND, "train", "no/such"], [sys.executable, "-m", "eans", "train", "no/such"])
    ]
    assert done[0].returncode == done[1].returncode == 2
    assert done[0].stderr == done[1].stderr != ""


def test_a_reader_that_leaves(run: Path) -> None:
    pipeline = f"'{COMMAND}' evaluate '{run}' --json | head -n 1"
    result = subprocess.run(
        ["bash", "-c", pipeline], env=environment(), capture_output=True, text=True, check=True, timeout=60
    )
    assert (result.stdout, result.stderr) == ("{\n", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_finds_no_room(run: Path) -> None:
    for options in ("--json", ""):
        command = f"'{COMMAND}' evaluate '{run}' {options} > /dev/full"
        result = subprocess.run(
            ["bash", "-c", command], env=environment(), capture_output=True, text=True, check=False, timeout=60
        )
        assert result.returncode == 1
        assert one_line(result.stderr) == "eans: error: cannot write to standard output: No space left on device"


@pytest.mark.parametrize("name", ["a/b/c", "graph/train.txt/run", "/proc/nothing/run", "two\nlines/\x1b[31mred"])
def test_run_folders_that_cannot_be(name: str, call: Call, graph_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    (tmp_path / "two\nlines").write_text("a file")
    (tmp_path / "graph").symlink_to(graph_folder)
    result = call("train", "transe/uniform", "--data", graph_folder, *SHORT, "--out", name)
    assert result.status == 1
    shown = name.replace("\n", "\\n").replace("\x1b", "\\x1b")
    assert one_line(result.err).startswith(f"eans: error: cannot create folder {shown}: ")
    assert result.err.endswith("; choose another --out\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["TransE"],
        ["TransE/Uniform"],
        ["Default/TransE/uniform"],
        ["--set", "model.name=TransE", "--set", "sampler.name=Uniform", "--set", "loss.name=LogSigmoid"],
        ["bom.toml"],
    ],
)
def test_names_as_papers_write_them(arguments: list[str], call: Call, graph_folder: Path, tmp_path: Path) -> None:
    """And a recipe with the byte order mark that some editors write."""
    (tmp_path / "bom.toml").write_text('[model]\nname = "TransE"\n', "utf-8-sig")
    result = call("train", *arguments, "--data", graph_folder, *SHORT, "--out", "run")
    assert (result.status, result.err) == (0, "")
    assert package.Run.load(tmp_path / "run").recipe.model.name == "transe"


def test_recipes_that_cannot_be_read(call: Call, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.toml")
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "binary.toml").write_bytes(bytes(range(256)))
    (tmp_path / "deep.toml").write_text(f"a = {'[' * 5000}")
    for name, message in (
        ("fifo", "cannot read recipe fifo.toml: it is not a file"),
        ("folder", "cannot read recipe folder.toml: Is a directory"),
        ("binary", "binary.toml: not a TOML recipe: "),
        ("deep", "deep.toml: not a TOML recipe: "),
    ):
        result = call("train", f"{name}.toml")
        assert result.status == 2
        assert one_line(result.err).startswith(f"eans: error: {message}")


def test_runs_at_the_same_time_get_folders_of_their_own(tmp_path: Path) -> None:
    graph = write_graph(ring_graph(), tmp_path / "ring")
    command = [COMMAND, "train", "transe/uniform", "--data", str(graph), *SHORT]
    runs = [
        subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    for run in runs:
        _, errors = run.communicate(timeout=120)
        assert run.returncode == 0, errors
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        "ring-transe-uniform-seed0",
        "ring-transe-uniform-seed0-2",
        "ring-transe-uniform-seed0-3",
    ]


@pytest.mark.parametrize(
    ("overrides", "status", "message"),
    [
        (["model.dim=3000000000000"], 1, "not enough memory; lower model.dim"),
        (["train.batch_size=100000000000"], 2, "train.batch_size is 100000000000, but the graph has"),
        (["loss.penalty=l3", "loss.penalty_weight=0.0"], 2, "loss.penalty 'l3' does nothing while"),
    ],
    ids=["dim", "batch", "penalty"],
)
def test_settings_that_cannot_work(call: Call, overrides: list[str], status: int, message: str, tmp_path: Path) -> None:
    graph = write_graph(ring_graph(), tmp_path / "ring")
    settings = [part for override in overrides for part in ("--set", override)]
    result = call("train", "transe/uniform", "--data", graph, *settings)
    assert result.status == status
    assert message in one_line(result.err)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("recipe", ["distmult/stay-positive", "simple/stay-positive"])
def test_training_without_negatives(call: Call, recipe: str) -> None:
    """On the bundled graph, from start to finish."""
    few = ["--set", "train.steps=6", "--set", "model.dim=8", "--set", "train.log_every=3"]
    result = call("train", recipe, "--out", "run", *few, "--device", "cpu")
    assert result.status == 0, result.err
    log = [json.loads(line) for line in Path("run/log.jsonl").read_text("utf-8").splitlines()]
    assert [record["step"] for record in log] == [3, 6]
    assert all(record["negative"] == 0.0 < record["positive"] for record in log)
    assert all(0.0 < record["stay-positive"] < 1e9 for record in log)
    assert json.loads(Path("run/metrics.json").read_text("utf-8"))["test"]["both"]["mrr"] > 0
    assert "negatives = 0" in Path("run/recipe.toml").read_text("utf-8")


@pytest.mark.parametrize("sampler", ["kbgan", "igan"])
def test_training_with_a_generator(call: Call, sampler: str) -> None:
    few = ["--set", "train.steps=6", "--set", "model.dim=8", "--set", "train.batch_size=64"]
    few += ["--set", "sampler.pretrain_steps=3"]
    result = call("train", f"transe/{sampler}", "--out", "run", *few, "--device", "cpu")
    assert result.status == 0, result.err
    assert json.loads(Path("run/metrics.json").read_text("utf-8"))["test"]["both"]["mrr"] > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("sampler.negatives=0", "sampler.negatives is 0; set at least 1, or sampler.name 'none' to train without"),
        ("sampler.name=none", "sampler 'none' draws no negatives, but sampler.negatives is 16; set it to 0"),
        ("sampler.negatives=-1", "greater than or equal to 0"),
        ("loss.penalty=stay-positive loss.penalty_weight=1", "model 'rotate' has no closed form of the sum"),
        ("sampler.name=igan sampler.memory_limit_mb=3", "sampler 'igan' needs 51 MB for 512 positives"),
    ],
)
def test_what_cannot_work_leaves_nothing_behind(call: Call, settings: str, message: str) -> None:
    pairs = [part for setting in settings.split() for part in ("--set", setting)]
    result = call("train", "--out", "run", *pairs, "--device", "cpu")
    assert result.status != 0
    assert message in one_line(result.err)
    assert not Path("run").exists()


def test_each_command_is_a_module() -> None:
    shared = {"__init__", "answers", "graphs", "moved", "options", "tables"}
    modules = {path.stem for path in Path(cli.__file__).parent.glob("*.py")}
    shown = {command.callback.__name__ for command in cli.app.registered_commands if not command.hidden}  # type: ignore[union-attr]
    groups = {group.name for group in cli.app.registered_groups}
    assert modules - shared == shown | groups
