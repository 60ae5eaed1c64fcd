"""The `eans` command, killed at a given place: ``python helpers_killed.py train ...`` as ``torchrun`` starts it.

``KILL`` says where, for each start of the ranks: ``RANK:PLACE:COUNT``, separated by commas. The process gets SIGKILL
when it comes to the place for so many times; at ``stall`` it is stopped instead, at ``full`` its disk is full.
Nothing of `eans` knows of this.
"""

from __future__ import annotations

import errno
import os
import signal
from typing import Any

from eans import checkpoints
from eans.cli import main
from eans.distributed import ShardedTable, World
from eans.sharded_step import ShardedStep

PLACES: dict[str, tuple[Any, str]] = {
    "message": (World, "exchange"),
    "step": (ShardedStep, "_scores"),
    "sum": (World, "total"),
    "move": (ShardedTable, "move"),
    "file": (checkpoints, "atomic_write"),
    "rows": (checkpoints, "_written"),
    "publish": (checkpoints.Checkpoints, "_publish"),
    "sync": (checkpoints, "sync_folder"),
    "stall": (ShardedStep, "_scores"),
    "full": (os, "fsync"),
}


def arm() -> None:
    """Have this process killed where ``KILL`` says, if it is this start and this rank."""
    orders = os.environ.get("KILL", "").split(",")
    start = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    rank, place, count = (orders[start] if start < len(orders) and orders[start] else "-1:step:0").split(":")
    if rank != os.environ["RANK"]:
        return
    owner, name = PLACES[place]
    function, left = getattr(owner, name), [int(count)]

    def call(*args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if left[0] == 0 and place == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGSTOP if place == "stall" else signal.SIGKILL)
        return function(*args, **kwargs)

    setattr(owner, name, call)


if __name__ == "__main__":
    arm()
    main()
