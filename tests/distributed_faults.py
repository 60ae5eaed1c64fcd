"""Ranks that are killed, stopped, or cannot write, many times over: ``make test-distributed``, some minutes.

`test_restarts.py` has a few of them. This file is collected only where it is named.
"""

from __future__ import annotations

import pytest

from eans.runs import RunFolder
from test_restarts import folder, result, run, told

__all__ = ["folder"]  # the fixture

# Five starts each, of which every one is cut off: 20 in all.
KILLS = {
    "steps": "0:step:3,1:step:9,0:step:2,1:step:6,0:step:11",
    "messages": "1:message:12,0:message:60,1:message:50,0:message:45,1:sum:20",
    "checkpoints": "0:file:1,1:rows:2,0:publish:2,0:sync:1,0:file:4",
    "orders": "1:move:1,0:move:2,1:move:2,0:move:2,1:move:2",
}


@pytest.mark.parametrize("name", KILLS)
@pytest.mark.parametrize("size", [2])
def test_killed_five_times_the_run_ends_with_the_same_bits(folder, name, size):
    done = run(folder, name, kill=KILLS[name], restarts=5, size=size)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("failed (exitcode: -9)") == 5
    assert result(folder, name) == result(folder, "undisturbed")


def test_a_rank_that_does_not_answer_is_named(folder):
    """It is stopped, not killed: the others wait for so long, and say for whom."""
    done = run(folder, "stalled", kill="1:stall:9", seconds=10)
    assert done.returncode == 1
    assert told(done) == ["eans: error: rank 1 of 2 is gone, or does not answer"]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_full_disk_on_one_rank_is_told_once_and_the_run_goes_on(folder, rank):
    """On the first one the graph, the recipe and their sums come before checkpoints."""
    out = f"full-{rank}"
    done = run(folder, out, kill=f"{rank}:full:{3 if rank else 24}")
    assert done.returncode == 1
    (line,) = told(done)
    assert "No space left on device; what was there before is intact" in line
    assert RunFolder.open(folder / out).saved_step() > 0
    done = run(folder, out, resume=True)
    assert done.returncode == 0, done.stderr
    assert result(folder, out) == result(folder, "undisturbed")
