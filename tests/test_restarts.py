"""`torchrun` starts ranks again when one was killed: the run ends with the bits of one that nothing disturbed."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import helpers_ranks as ranks
from eans.runs import RunFolder
from eans.tensor_files import tensors_from_bytes
from helpers_runs import ring_graph, write_graph

KILLED = Path(__file__).with_name("helpers_killed.py")
SETTINGS = {
    "model.dim": 6,
    "sampler.negatives": 8,
    "sampler.proposal": "block",
    "sampler.blocks": 4,
    "sampler.reorder_every": 7,
    "train.steps": 30,
    "train.batch_size": 16,
    "train.checkpoint_every": 4,
    "train.valid_every": 10,
    "train.keep": "best",
    "train.optimizer": "lazy-adam",
}


def command(folder: Path, out: str, restarts: int = 0, size: int = 2, **settings: object) -> list[str]:
    """What starts the ranks."""
    chosen = [f"--set={key}={value}" for key, value in {**SETTINGS, **settings}.items()]
    train = ["train", "default/transe/eans", "--data", str(folder / "graph"), "--out", str(folder / out), *chosen]
    return [*launch(restarts, size), str(KILLED), *train]


def launch(restarts: int = 0, size: int = 2) -> list[str]:
    """``torchrun``, by the Python that runs the tests."""
    program = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*program, f"--max-restarts={restarts}", f"--nproc-per-node={size}"]


def run(
    folder: Path, out: str, kill: str = "", restarts: int = 0, size: int = 2, seconds: int = 60, resume: bool = False
) -> subprocess.CompletedProcess[str]:
    """Train to the end, from the beginning or from where a run has come to."""
    start = command(folder, out, restarts, size)
    if resume:
        start = [*launch(restarts, size), str(KILLED), "train", "--resume", str(folder / out)]
    environment = ranks.environment(KILL=kill, EANS_ANSWER_SECONDS=str(seconds))
    return subprocess.run(start, env=environment, capture_output=True, text=True, timeout=300)


def told(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of ours on standard error."""
    return [line for line in done.stderr.splitlines() if line.startswith("eans: ")]


def result(folder: Path, out: str) -> tuple[bytes, object, list[int]]:
    """The final weights, the metrics, and the steps in the log."""
    run = RunFolder.open(folder / out)
    log = [record["step"] for record in run.log()]
    metrics = run.metrics()
    return run.model_file.read_bytes(), [metrics[split] for split in ("valid", "test")], log


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the graph, and a run that nothing disturbed."""

    def fill(folder: Path) -> None:
        write_graph(ring_graph(), folder / "graph")
        done = run(folder, "undisturbed")
        assert done.returncode == 0, done.stderr

    return ranks.once(tmp_path_factory, "restarts", fill)


def test_killed_in_a_step_and_while_it_writes_a_checkpoint(folder):
    """In step 11 on one rank, then on the other one before a checkpoint that is written becomes the newest."""
    done = run(folder, "killed", kill="1:step:11,0:file:2", restarts=2)
    assert done.returncode == 0, done.stderr
    assert result(folder, "killed") == result(folder, "undisturbed")
    assert done.stdout.count("resuming at step") == 2


def test_the_ranks_have_what_one_process_has(folder):
    """Weights to a tolerance, although validations and checkpoints come in between; all is shown once."""
    one = [sys.executable, "-m", "eans", *command(folder, "alone")[len(launch()) + 1 :]]
    alone = subprocess.run(one, env=ranks.environment(), capture_output=True, text=True, timeout=300)
    assert alone.returncode == 0, alone.stderr
    found = [tensors_from_bytes(result(folder, out)[0], Path(out))[0] for out in ("alone", "undisturbed")]
    for name, table in found[0].items():
        torch.testing.assert_close(found[1][name], table, rtol=0, atol=1e-5)
    assert result(folder, "alone")[2] == result(folder, "undisturbed")[2]


def test_asked_to_stop_the_ranks_save_and_say_how_to_go_on(folder):
    process = subprocess.Popen(
        command(folder, "stopped", **{"train.steps": 3000}), env=ranks.environment(), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    latest = folder / "stopped" / "checkpoint" / "LATEST"
    end = time.monotonic() + 200
    while not latest.is_file() and time.monotonic() < end:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=200)
    said = [line for line in errors.splitlines() if line.startswith("eans: ")]
    (step,) = re.findall(r"eans: error: stopped at step (\d+) of 3000; continue with: eans train --resume", errors)
    assert said[0] == "eans: stopping; once more to stop at once"
    assert len(said) == 2
    assert latest.read_text() == f"step-{step}\n"
    manifest = json.loads((latest.parent / f"step-{step}" / "manifest.json").read_text())
    assert manifest["step"] == int(step)


def test_a_mistake_is_told_once(folder):
    done = subprocess.run(
        [*command(folder, "refused"), "--set=sampler.blocks=5"], env=ranks.environment(), capture_output=True,
        text=True, timeout=300,
    )  # fmt: skip
    assert told(done) == [
        "eans: error: sampler.blocks is 5, which 2 ranks cannot share alike; set a multiple of 2, or start another "
        "number of them"
    ]
    assert "eans/" not in done.stderr.replace(str(KILLED), "")  # no traceback of ours
    assert not (folder / "refused").exists()
