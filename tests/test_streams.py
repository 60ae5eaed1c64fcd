"""Commands whose standard input, output and error are closed, full, without a reader or in ASCII."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import eans as package
from eans.runs import RunFolder
from eans.signals import WORDS
from eans.streams import ESCAPES, LOST, standard_streams
from helpers_runs import COMMAND, environment, one_line, write_graph

LABELS = ("Ürümqi", "東京", "😀", "b", "c", "d")
ASCII = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
SETTINGS = "--set train.steps=20 --set model.dim=4 --set train.log_every=1"
needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")


def shell(command: str, redirection: str = "", **more: str) -> subprocess.CompletedProcess[str]:
    """A command as typed; the status is that of `eans` in a pipeline, too."""
    line = f"set -o pipefail; '{COMMAND}' {command} {redirection}"
    return subprocess.run(
        ["bash", "-c", line], env=environment(**more), capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    triples = [(LABELS[i], "größer", LABELS[(i * i + 1) % 6]) for i in range(6)]
    others = [(LABELS[i], "größer", LABELS[(i * i + 2) % 6]) for i in range(4)]
    known = package.KnowledgeGraph.from_labels(triples, others[:2], others[2:])
    return write_graph(known, tmp_path_factory.mktemp("graphs") / "Städte")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, graph: Path) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    package.train(package.load(graph), "transe", "uniform", out=out, dim=4, steps=20)
    return out


@pytest.mark.parametrize(
    ("redirection", "printed"), [(">&-", False), ("2>&-", True), ("<&-", True), (">&- 2>&- <&-", False)]
)
@pytest.mark.parametrize("command", ["evaluate RUN", "--help"])
def test_closed_streams(command: str, redirection: str, printed: bool, run: Path) -> None:
    result = shell(command.replace("RUN", str(run)), redirection)
    assert result.returncode == 0
    assert bool(result.stdout) == printed
    assert not result.stderr


def test_a_mistake_with_closed_streams() -> None:
    assert one_line(shell("recipes show nothing", ">&-").stderr).startswith("eans: error: unknown recipe")
    result = shell("recipes show nothing", "2>&-")
    assert (result.returncode, result.stdout) == (2, "")


def test_files_do_not_take_the_place_of_closed_streams(graph: Path, tmp_path: Path) -> None:
    """Otherwise what is printed would end up in the run's files."""
    result = shell(f"train transe/uniform --data '{graph}' {SETTINGS} --out {tmp_path}/run", ">&- 2>&- <&-")
    assert result.returncode == 0
    assert shell(f"verify {tmp_path}/run").returncode == 0


@needs_full
def test_full_output(run: Path) -> None:
    for command in ("data list", "recipes show transe", "--version"):
        result = shell(command, ">/dev/full")
        assert result.returncode == 1
        assert one_line(result.stderr) == "eans: error: cannot write to standard output: No space left on device"
    assert shell(f"verify {run}", "2>/dev/full").returncode == 0
    assert shell("verify nowhere", "2>/dev/full").returncode == 2


@pytest.mark.parametrize("command", ["data list", "recipes", "recipes show transe"])
def test_a_reader_that_leaves_ends_a_command_silently(command: str) -> None:
    result = shell(command, "| true")
    assert result.returncode in (0, 1)  # 0 if everything was in the pipe before
    assert not result.stderr


@pytest.mark.parametrize(
    ("redirection", "reason"),
    [("| head -n 1", "Broken pipe"), pytest.param(">/dev/full", "No space", marks=needs_full)],
)
def test_training_outlives_its_reader(redirection: str, reason: str, graph: Path, tmp_path: Path) -> None:
    result = shell(f"train transe/uniform --data '{graph}' {SETTINGS} --out {tmp_path}/run", redirection)
    assert result.returncode == 0
    assert one_line(result.stderr).startswith(LOST.partition("{")[0] + reason)
    assert package.Run.load(tmp_path / "run").metrics["training"]["steps"] == 20
    assert shell(f"verify {tmp_path}/run").returncode == 0


def test_a_terminal_that_is_closed_stops_training_in_good_order(graph: Path, tmp_path: Path) -> None:
    """SIGHUP comes, and neither stream can be written any more."""
    out, errors = tmp_path / "run", tmp_path / "errors"
    settings = SETTINGS.replace("steps=20", "steps=1000000").split()
    command = [COMMAND, "train", "transe/uniform", "--data", str(graph), *settings, "--out", str(out)]
    for own_errors in (False, True):
        process, terminal = pty.fork()
        if process == 0:
            if own_errors:
                os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
            os.execve(command[0], command, environment())
        deadline = time.monotonic() + 120
        while not (out / "log.jsonl").is_file():
            assert time.monotonic() < deadline
            if select.select([terminal], [], [], 0.01)[0]:
                os.read(terminal, 1 << 16)
        os.close(terminal)
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 130
        assert RunFolder.open(out).saved_step() > 0
        shutil.rmtree(out)
    # The note is there if something was printed before the signal came.
    lines = [line for line in errors.read_text().splitlines() if not line.startswith("eans: note: ")]
    assert lines[:-1] == [WORDS]
    assert lines[-1].startswith("eans: error: stopped at step ")


def test_training_outlives_the_reader_of_both_streams(graph: Path, tmp_path: Path) -> None:
    result = shell(f"train transe/uniform --data '{graph}' {SETTINGS} --out {tmp_path}/run", "2>&1 | head -n 1")
    assert result.returncode == 0
    assert len(result.stdout.splitlines()) == 1
    assert package.Run.load(tmp_path / "run").metrics


def test_ascii(run: Path, tmp_path: Path) -> None:
    """Labels are typed in UTF-8, and shown as JSON writes them."""
    given = f"predict {run} --head Ürümqi --relation größer --known mark"
    result = shell(f"{given} --format json", **ASCII)
    assert not result.stderr
    assert result.stdout.isascii()
    assert {row["head"] for row in json.loads(result.stdout)} == {"Ürümqi"}
    assert {"東京", "😀"} < {row["tail"] for row in json.loads(result.stdout)}
    assert "\\u00dcr\\u00fcmqi" in shell(given, **ASCII).stdout
    assert one_line(shell(given.replace("qi", "q"), **ASCII).stderr).endswith("did you mean '\\u00dcr\\u00fcmqi'?")
    for command in (f"report {run} --format json", "recipes keys", "train --help", "recipes show transe"):
        result = shell(command, **ASCII)
        assert (result.returncode, result.stderr) == (0, ""), command
    out = tmp_path / "läuft"
    result = shell(f"train transe/uniform --data '{write_again(run, tmp_path)}' {SETTINGS} --out '{out}'", **ASCII)
    assert (result.returncode, result.stderr) == (0, "")
    assert package.Run.load(out).recipe.data.name == str(tmp_path / "Straße")


def write_again(run: Path, folder: Path) -> Path:
    """The run's graph as a folder with a name that is not ASCII."""
    return write_graph(package.Run.load(run).graph, folder / "Straße")


def test_a_folder_whose_name_is_no_text(graph: Path, tmp_path: Path) -> None:
    name = f"{tmp_path}/$'caf\\xe9'"
    copied = subprocess.run(["bash", "-c", f"cp -r '{graph}' {name}"], check=False)
    if copied.returncode:
        pytest.skip("the file system takes no such name")
    result = shell(f"train transe/uniform --data {name} {SETTINGS} --out {tmp_path}/run")
    assert (result.returncode, result.stderr) == (0, "")
    assert package.Run.load(tmp_path / "run").recipe.data.name == f"{tmp_path}/caf\\xe9"


def test_characters_that_an_encoding_lacks() -> None:
    with standard_streams():
        assert "aÜ東😀\udcff".encode("ascii", ESCAPES) == b"a\\u00dc\\u6771\\ud83d\\ude00\\udcff"


def test_python_warnings_are_one_line() -> None:
    code = (
        "import warnings; from eans.errors import EansWarning; from eans.streams import standard_streams\n"
        "with standard_streams(): warnings.warn('one\\ntwo', EansWarning); warnings.warn('other')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    first, *rest = done.stderr.splitlines()
    assert first == "eans: warning: one\\ntwo"
    assert rest[0].endswith("UserWarning: other")
