"""Resume to the same bits: real processes, killed, interrupted or out of disk, against one that was left alone."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from safetensors.torch import load_file

from eans.api import Run, resume
from eans.errors import RunError
from eans.runs import RunFolder
from eans.training import Diverged
from helpers_runs import COMMAND, eans, environment, one_line, outcome, ring_graph, write_graph

STEPS = 240
RECIPE = """
[model]
name = "transe"
dim = 16
[sampler]
name = "eans"
negatives = 8
reorder_every = 15
[loss]
adversarial_temperature = 1.0
[train]
seed = 1  # its best validation is far better than the last one, whatever the kernels round
steps = 240
batch_size = 32
lr = 0.1
lr_drop = 0.5
log_every = 7
valid_every = 20
keep = "best"
checkpoint_every = 10
"""
# Forks processes that have the library loaded already, so that many kills cost little: each line on stdin is a
# command; the answers are the child's process id and, later, its exit status. Its errors go to the file argv[1].
NURSERY = """
import os, sys
import eans.cli.train, eans.run_progress
from eans import KnowledgeGraph, cli, train
line = [("a", "r", "b")]
train(KnowledgeGraph.from_labels(line, line, line), dim=2, steps=2, valid_every=1)  # whatever loads late, loads now
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        cli.main(line.rstrip("\\n").split("\\t"))
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Nursery:
    """Starts `eans` commands in forked children."""

    def __init__(self, errors: Path) -> None:
        self.errors = errors
        self.process = subprocess.Popen(
            [sys.executable, "-c", NURSERY, str(errors)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        return line

    def run(self, *arguments: str, meanwhile: Callable[[int], None] = lambda _: None) -> int:
        """The exit status of a command; `meanwhile` gets the process id."""
        assert self.process.stdin is not None
        self.process.stdin.write("\t".join(arguments) + "\n")
        self.process.stdin.flush()
        meanwhile(int(self.line()))
        return int(self.line())

    def resume(self, folder: Path, meanwhile: Callable[[int], None] = lambda _: None) -> int:
        """`eans train --resume`."""
        return self.run("train", "--resume", str(folder), meanwhile=meanwhile)

    def close(self) -> None:
        self.process.communicate()


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    nursery = Nursery(tmp_path_factory.mktemp("nursery") / "errors")
    yield nursery
    nursery.close()


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the recipe, the graph, and the run that nobody disturbed (``whole``)."""
    folder = tmp_path_factory.mktemp("resume")
    (folder / "recipe.toml").write_text(RECIPE)
    write_graph(ring_graph(), folder / "graph")
    result = eans("train", "recipe.toml", "--data", "graph", "--out", "whole", cwd=folder)
    assert result.returncode == 0, result.stderr
    return folder


@pytest.fixture
def begun(workshop: Path, tmp_path: Path) -> Path:
    """A copy of the undisturbed run as it was before its first step."""
    folder = tmp_path / "run"
    whole = RunFolder.open(workshop / "whole")
    with RunFolder.create(folder, whole.recipe(), whole.graph()).lock():
        return folder


def kill_after(seconds: float) -> Callable[[int], None]:
    def kill(pid: int) -> None:
        time.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    return kill


def kill_while_writing(folder: Path, patience: float = 5.0) -> Callable[[int], None]:
    """Kill as soon as a half-written checkpoint is in the folder."""

    def kill(pid: int) -> None:
        end = time.perf_counter() + patience
        while time.perf_counter() < end:
            if any(name.startswith(".checkpoint") for name in os.listdir(folder)):  # noqa: PTH208 - speed counts
                break
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    return kill


def at_step(folder: Path, step: int, act: Callable[[int], None]) -> Callable[[int], None]:
    """Do something to the process once the folder has a checkpoint of `step` or later."""

    def wait(pid: int) -> None:
        end = time.perf_counter() + 60
        while checkpoint_step(folder) < step and time.perf_counter() < end:
            time.sleep(0.002)
        act(pid)

    return wait


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def checkpoint_step(folder: Path) -> int:
    """The step of the checkpoint; 0 without one."""
    if not (folder / "checkpoint.safetensors").is_file():
        return 0
    content = (folder / "checkpoint.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return int(json.loads(header["__metadata__"]["trainer"])["step"])


def test_the_undisturbed_run_is_worth_comparing_with(workshop: Path) -> None:
    _, metrics, log = outcome(workshop / "whole")
    assert 0 < metrics["training"]["best_valid_step"] < STEPS
    steps = [record["step"] for record in log if "loss" in record]
    assert steps == [*range(7, STEPS, 7), STEPS]
    assert [record["step"] for record in log if "valid" in record] == list(range(20, STEPS + 1, 20))


def test_killed_command_resumes_to_the_same_bits(workshop: Path, tmp_path: Path) -> None:
    """The real command: killed before its first checkpoint, then at random, then left to finish."""
    out = tmp_path / "run"
    first = [COMMAND, "train", workshop / "recipe.toml", "--data", workshop / "graph", "--out", out]
    again = [COMMAND, "train", "--resume", out]

    def ready(kill_number: int) -> bool:
        return (out / "recipe.toml").is_file() if kill_number == 0 else checkpoint_step(out) >= 70 * kill_number

    for kill_number, command in enumerate((first, again, again)):
        process = subprocess.Popen(
            [str(part) for part in command], env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        while process.poll() is None and not ready(kill_number):
            time.sleep(0.002)
        process.kill()
        _, errors = process.communicate()
        assert process.returncode == -signal.SIGKILL, errors.decode()
        if kill_number == 0:
            assert checkpoint_step(out) == 0
    result = eans("train", "--resume", out)
    assert result.returncode == 0, result.stderr
    assert "resuming at step" in result.stdout
    weights, metrics, log = outcome(out)
    expected_weights, expected_metrics, expected_log = outcome(workshop / "whole")
    assert weights == expected_weights
    assert log == expected_log
    assert metrics.pop("training")["recipe"] == str(workshop / "recipe.toml")
    assert expected_metrics.pop("training")["recipe"] == "recipe.toml"
    assert metrics == expected_metrics


def test_adagrad_resumes_to_the_same_bits(begun: Path, tmp_path: Path, nursery: Nursery) -> None:
    change(begun, {'optimizer = "adam"': 'optimizer = "adagrad"'})
    whole = shutil.copytree(begun, tmp_path / "whole")
    assert nursery.resume(whole) == 0
    for step in (50, 150):  # before and after the drop
        assert nursery.resume(begun, at_step(begun, step, kill)) == -signal.SIGKILL
    assert nursery.resume(begun) == 0
    assert outcome(begun) == outcome(whole)
    found, expected = (load_file(folder / "checkpoint.safetensors") for folder in (begun, whole))
    assert {name.split(".")[2] for name in expected if name.startswith("optimizer.")} == {"step", "sum"}
    assert all(value.equal(found[name]) for name, value in expected.items())

    (begun / "metrics.json").unlink()
    change(begun, {'optimizer = "adagrad"': 'optimizer = "adam"'})
    with pytest.raises(RunError, match="does not fit its run's recipe"):
        resume(begun)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_many_kills_at_random(seed: int, workshop: Path, begun: Path, nursery: Nursery) -> None:
    chance = random.Random(seed)
    steps = [0]
    longest = 0.15
    while not (begun / "metrics.json").exists() and len(steps) < 60:
        nursery.resume(begun, kill_after(chance.uniform(0.0, longest)))
        steps.append(checkpoint_step(begun))
        if steps[-1] == steps[-2]:  # on a busy machine all takes longer
            longest *= 1.1
    assert steps == sorted(steps)
    assert len(set(steps)) >= 3, "too few different places"
    assert nursery.resume(begun) == 0
    assert outcome(begun) == outcome(workshop / "whole")


def test_kills_while_the_checkpoint_is_written(workshop: Path, begun: Path, nursery: Nursery) -> None:
    torn = 0
    for _ in range(12):
        status = nursery.resume(begun, kill_while_writing(begun))
        assert status in (0, -signal.SIGKILL)
        torn += any(begun.glob(".checkpoint*.tmp"))
        if (begun / "checkpoint.safetensors").is_file():
            load_file(begun / "checkpoint.safetensors")  # always a whole one
    assert torn, "no kill hit a write"
    assert nursery.resume(begun) == 0
    assert outcome(begun) == outcome(workshop / "whole")
    assert not list(begun.glob(".*.tmp"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_signals_save_and_tell_how_to_resume(
    number: signal.Signals, workshop: Path, begun: Path, nursery: Nursery
) -> None:
    assert nursery.resume(begun, at_step(begun, 100, lambda pid: os.kill(pid, number))) == 130
    stopped = checkpoint_step(begun)
    assert nursery.errors.read_text().splitlines() == [
        "eans: stopping; once more to stop at once",
        f"eans: error: stopped at step {stopped} of {STEPS}; continue with: eans train --resume {begun}",
    ]
    assert Run.load(begun).metrics == {}
    assert nursery.resume(begun) == 0
    assert outcome(begun) == outcome(workshop / "whole")


def test_nohup_lets_training_go_on(begun: Path) -> None:
    """Without a terminal, and with nobody to read what it prints."""
    process = subprocess.Popen(
        ["nohup", COMMAND, "train", "--resume", str(begun)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=environment(),
    )
    at_step(begun, 100, lambda pid: os.kill(pid, signal.SIGHUP))(process.pid)
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, b"")
    assert Run.load(begun).metrics


def test_two_signals_in_a_row_are_one_request(workshop: Path, begun: Path, nursery: Nursery) -> None:
    def twice(pid: int) -> None:
        os.kill(pid, signal.SIGINT)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)

    assert nursery.resume(begun, at_step(begun, 100, twice)) == 130
    assert nursery.errors.read_text().splitlines()[1].startswith("eans: error: stopped at step")
    assert nursery.resume(begun) == 0
    assert outcome(begun) == outcome(workshop / "whole")


def test_resume_of_a_complete_run_says_so(workshop: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(workshop / "whole", tmp_path / "run")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    result = eans("train", "--resume", folder)
    assert result.returncode == 0
    assert f"{folder} is complete already" in result.stdout
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_end_of_training_is_not_repeated(workshop: Path, tmp_path: Path, nursery: Nursery) -> None:
    """Killed between the last checkpoint and the evaluation."""
    folder = shutil.copytree(workshop / "whole", tmp_path / "run")
    (folder / "metrics.json").unlink()
    (folder / "model.safetensors").unlink()
    assert nursery.resume(folder) == 0
    assert outcome(folder) == outcome(workshop / "whole")


def test_a_second_process_is_turned_away(begun: Path, nursery: Nursery) -> None:
    with RunFolder.open(begun).lock():
        assert nursery.resume(begun) == 1
    assert one_line(nursery.errors.read_text()) == f"eans: error: another process is training in {begun}"
    assert nursery.resume(begun) == 0  # the lock went with its holder


def test_torn_log_and_leftovers_do_no_harm(workshop: Path, begun: Path, nursery: Nursery) -> None:
    assert nursery.resume(begun, at_step(begun, 50, kill)) == -signal.SIGKILL
    with (begun / "log.jsonl").open("a") as log:
        log.write('{"step": 9999, "loss": 0.5, "seconds": 9.0}\n{"step": 57, "los')
    (begun / ".checkpoint.safetensors.zzzz.tmp").write_bytes(b"half")
    assert all("step" in record for record in Run.load(begun).history)
    assert nursery.resume(begun) == 0
    assert outcome(begun) == outcome(workshop / "whole")


def test_disk_full_in_the_middle(workshop: Path, begun: Path, nursery: Nursery) -> None:
    def fill(pid: int) -> None:
        size = (begun / "checkpoint.safetensors").stat().st_size
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size // 2, size // 2))

    assert nursery.resume(begun, at_step(begun, 50, fill)) == 1
    line = one_line(nursery.errors.read_text())
    assert line.startswith(f"eans: error: cannot write {begun}/")
    assert line.endswith("File too large; what was there before is intact")
    assert not list(begun.glob(".*.tmp"))
    assert 50 <= checkpoint_step(begun) < STEPS
    assert nursery.resume(begun) == 0
    assert outcome(begun) == outcome(workshop / "whole")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda content: content[: len(content) // 2], "is damaged"),
        (lambda _: b"", "is damaged"),
        (lambda _: b"not tensors at all", "is damaged"),
        (lambda content: b"\xff" * 64 + content[64:], "is damaged"),
    ],
    ids=["truncated", "empty", "garbage", "header"],
)
def test_damaged_checkpoint(damage: Callable[[bytes], bytes], reason: str, workshop: Path, begun: Path) -> None:
    content = (workshop / "whole" / "checkpoint.safetensors").read_bytes()
    (begun / "checkpoint.safetensors").write_bytes(damage(content))
    with pytest.raises(RunError, match=reason) as caught:
        resume(begun)
    message = str(caught.value)
    assert str(begun / "checkpoint.safetensors") in message
    assert "\n" not in message


def change(folder: Path, changes: dict[str, str]) -> None:
    """Edit the recipe of a run; a resumed run goes by its recipe."""
    recipe = (folder / "recipe.toml").read_text()
    for old, new in changes.items():
        assert old in recipe
        recipe = recipe.replace(old, new)
    RunFolder.open(folder).manifest.write(folder / "recipe.toml", recipe.encode())


# From the next step on: a loss that is infinite whatever the weights, or weights that explode.
INFINITE_LOSS = {'penalty = "none"': 'penalty = "l3"\npenalty_weight = 1e38'}
EXPLODING_WEIGHTS = {"lr = 0.1": "lr = 2e37", "reorder_every = 15": "reorder_every = 100000"}


@pytest.mark.parametrize("changes", [INFINITE_LOSS, EXPLODING_WEIGHTS], ids=["loss", "weights"])
def test_divergence_leaves_a_finite_checkpoint(changes: dict[str, str], begun: Path, nursery: Nursery) -> None:
    assert nursery.resume(begun, at_step(begun, 50, kill)) == -signal.SIGKILL
    change(begun, changes)
    assert nursery.resume(begun) == 1
    assert "the loss is not finite by step" in one_line(nursery.errors.read_text())
    tensors = load_file(begun / "checkpoint.safetensors")
    assert all(bool(tensor.isfinite().all()) for tensor in tensors.values())
    assert Run.load(begun).recipe.train.steps == STEPS
    with pytest.raises(Diverged):
        resume(begun)


@pytest.mark.parametrize("changes", [INFINITE_LOSS, EXPLODING_WEIGHTS], ids=["loss", "weights"])
def test_after_divergence_the_last_good_state_goes_on(
    changes: dict[str, str], workshop: Path, begun: Path, nursery: Nursery
) -> None:
    assert nursery.resume(begun, at_step(begun, 50, kill)) == -signal.SIGKILL
    change(begun, changes)
    assert nursery.resume(begun) == 1
    change(begun, {new: old for old, new in changes.items()})
    assert nursery.resume(begun) == 0
    assert outcome(begun) == outcome(workshop / "whole")
