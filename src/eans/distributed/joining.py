"""How a process finds the others, and how they end together: in good order, or with one line that says why not."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from eans.devices import choose_device
from eans.distributed.world import ALONE, Lost, World
from eans.errors import RunError, UsageError

JOIN_SECONDS = 120.0  # after which a rank that has not come is given up
ANSWER_SECONDS = 600.0  # after which one that does not answer is, if EANS_ANSWER_SECONDS says nothing else: it may read
# a checkpoint, or cluster for all
MEET_SECONDS = 0.05  # between two looks at who has come
NOTICE_SECONDS = 5.0  # for the others to notice that a rank has stopped, and to say why
BACKENDS = {"cpu": "gloo", "cuda": "nccl"}
SAID, STOPPED = "said", "stopped"  # of the store: who says what went wrong, and who has stopped


def ranks_of_environment() -> tuple[int, int, int]:
    """The rank of this process, its number on this machine, and how many there are, as ``torchrun`` says: 0, 0, 1
    without it.
    """
    rank, local, size = (int(os.environ.get(name, default)) for name, default in _NAMES.items())
    return rank, local, size


_NAMES = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}


@contextlib.contextmanager
def joined(device: str = "auto") -> Iterator[World]:
    """The ranks that were started together with this process; it alone where ``torchrun`` started none.

    What goes wrong on one rank ends all. One of them raises what it was; the others end without a word.

    Args:
        device: of this rank's tensors, see `eans.devices.choose_device`. Of GPUs, each rank of a machine takes its own.
    """
    rank, local, size = ranks_of_environment()
    if size == 1:
        yield ALONE
        return
    store, restarted = _meet(rank, size)
    try:
        place = _device_of_rank(device, rank, local)
        timeout = timedelta(seconds=_answer_seconds())
        group: dict[str, Any] = {"device_id": place} if place.type == "cuda" else {}
        dist.init_process_group(BACKENDS[place.type], store=store, rank=rank, world_size=size, timeout=timeout, **group)
        world = World(rank, size, place, restarted)
        yield world
        world.any(False)  # all have come to the end
    except BaseException as error:
        if not _speaks(store, error, rank, local, size):
            raise SystemExit(1) from None
        raise
    dist.destroy_process_group()
    atexit.register(_leave)


def _device_of_rank(device: str, rank: int, local: int) -> torch.device:
    """Each rank of a machine has a GPU to itself."""
    chosen = choose_device(device)
    if chosen.type != "cuda" or chosen.index is not None:
        return chosen
    if local >= torch.cuda.device_count():
        raise RunError(
            f"rank {rank} is number {local} on its machine, which has {torch.cuda.device_count()} GPUs; "
            "start fewer with --nproc-per-node, or use --device cpu"
        )
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def _answer_seconds() -> float:
    given = os.environ.get("EANS_ANSWER_SECONDS", str(ANSWER_SECONDS))
    with contextlib.suppress(ValueError):
        if 0 < (seconds := float(given)) < float("inf"):
            return seconds
    raise UsageError(f"EANS_ANSWER_SECONDS is {given!r}; give seconds, such as {ANSWER_SECONDS:g}, or unset it")


def _meet(rank: int, size: int) -> tuple[Store, bool]:
    """Find the others: what all of them can read and write, and whether any of them was started before."""
    try:
        common = next(rendezvous("env://", rank, size, timeout=timedelta(seconds=JOIN_SECONDS)))[0]
        came = _come(common, rank, size)
    except (RuntimeError, ValueError) as error:
        raise RunError(f"rank {rank} of {size} cannot join the others: {str(error).splitlines()[0]}") from error
    return PrefixStore(_name_of_start(came), common), any(not number.endswith(b"/0") for number in came)


def _come(store: Store, rank: int, size: int) -> list[bytes]:
    """A number that each process of this start has drawn, and how often ``torchrun`` started it again.

    The store may outlive a restart, with the number of a process that was there before. Nobody answers for it then: all
    wait until the new process of that rank has put its own there.
    """
    keys = [f"eans/came/{other}" for other in range(size)]
    store.set(keys[rank], f"{uuid.uuid4().hex}/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}")
    end = time.monotonic() + JOIN_SECONDS
    while True:
        absent = [str(other) for other, key in enumerate(keys) if not store.check([key])]
        if not absent:
            came = store.multi_get(keys)
            here = [f"{_name_of_start(came)}/here/{other}" for other in range(size)]
            store.set(here[rank], "")
            if store.check(here):
                return came
            absent = [str(other) for other, key in enumerate(here) if not store.check([key])]
        if time.monotonic() > end:
            raise RunError(f"rank {', '.join(absent)} of {size} did not come within {JOIN_SECONDS:g} s")
        time.sleep(MEET_SECONDS)


def _name_of_start(came: list[bytes]) -> str:
    """Another one for each start. The counters of ``torchrun`` would not do: each machine counts its own failures."""
    return f"eans/{hashlib.sha256(b' '.join(came)).hexdigest()}"


def _speaks(store: Store, error: BaseException, rank: int, local: int, size: int) -> bool:
    """Is it for this rank to say what went wrong? It has stopped, and ends when the others have as well.

    Where the store has gone, or does not answer, one rank of each machine says what it knows.
    """
    found = [local == 0]

    def ask() -> None:
        with contextlib.suppress(Exception):
            dist.destroy_process_group()  # the others wait for nothing then
        with contextlib.suppress(RuntimeError):
            store.set(f"{STOPPED}/{rank}", "")
            mine = _is_first_to_say(store, error, rank, size)
            _until(lambda: not _running(store, size))
            found[0] = mine

    # The store of a machine that is cut off leaves a question without an answer, and knows no timeout for most of them.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(4 * NOTICE_SECONDS)
    return found[0]


def _is_first_to_say(store: Store, error: BaseException, rank: int, size: int) -> bool:
    """One rank is; of those that only lost another one, none if that says itself what happened."""
    if isinstance(error, Lost):
        _until(lambda: store.check([SAID]))
        if not store.check([SAID]) and (gone := _running(store, size)):
            error.args = (f"rank {', '.join(map(str, gone))} of {size} is gone, or does not answer",)
    if rank:  # what all know, the first one says
        _until(lambda: store.check([SAID]), NOTICE_SECONDS / 5)
    return not store.check([SAID]) and bool(store.add(SAID, 1) == 1)


def _running(store: Store, size: int) -> list[int]:
    """The ranks that have not stopped, as far as they said."""
    return [rank for rank in range(size) if not store.check([f"{STOPPED}/{rank}"])]


def _until(done: Any, seconds: float = NOTICE_SECONDS) -> None:
    end = time.monotonic() + seconds
    while not done() and time.monotonic() < end:
        time.sleep(0.02)


def _leave() -> None:
    """End at once: threads of the transport may still wake up in an interpreter that is being taken down, and abort."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
