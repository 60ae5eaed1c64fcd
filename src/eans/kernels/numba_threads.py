"""How the CPU kernels are compiled, and how threads share their loops."""

# Numba's decorator is untyped.
# mypy: disable-error-code="import-untyped,import-not-found,no-untyped-def,no-untyped-call,untyped-decorator,misc"

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache, partial
from typing import Any

import numba
import torch
from numba.core import event

from eans.phases import COMPILING, phase

# Sums may be re-ordered (vector instructions need that), but NaN and infinity keep their meaning: they tell that a run
# diverged. Without the interpreter's lock, Python threads run the loops side by side; Numba's own thread pools are not
# used, because one aborts in a forked process and another when two threads call it. The cache makes compiling an
# expense of the first run on a machine.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}


class _Compiling(event.Listener):
    """Says by what name the present work goes while Numba compiles, which it does not where its cache has the code."""

    def __init__(self) -> None:
        self.open = threading.local()  # any thread may compile

    def on_start(self, event: Any) -> None:
        del event
        stack = self.open.__dict__.setdefault("stack", [])
        stack.append(phase(COMPILING))
        stack[-1].__enter__()

    def on_end(self, event: Any) -> None:
        del event
        self.open.stack.pop().__exit__(None, None, None)


event.register("numba:compile", _Compiling())


def compiled(function: Callable[..., Any]) -> Any:
    """The function as a loop that is compiled when it is first called, and kept for later processes if possible."""
    try:
        return numba.njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # Numba found no folder that it may write
        return numba.njit(**_OPTIONS)(function)


# For a function that loops call: it becomes a part of each.
inlined: Callable[..., Any] = numba.njit(forceinline=True, **_OPTIONS)

# Elements (of candidate rows) below which a second thread costs more than it gives: waking it takes some 50 us.
SERIAL_BELOW = 1 << 19
# Elements of one operation of PyTorch's from which its threads are worth waking, which happens a hundred times a step.
SHARED_FROM = 1 << 19


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="eans-kernels")


# A forked child has none of its parent's threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


# Threads of the loops while PyTorch's own operations have one; None: as many as PyTorch's.
_loop_threads: ContextVar[int | None] = ContextVar("loop_threads", default=None)


def threads_for(elements: int) -> int:
    """Threads of a loop over that many elements: one, or as many as PyTorch has outside `small_operations`."""
    return (_loop_threads.get() or torch.get_num_threads()) if elements >= SERIAL_BELOW else 1


@contextmanager
def small_operations(elements: int) -> Iterator[None]:
    """Inside, PyTorch's own operations, on tensors of at most so many elements, use one thread if that is faster.

    PyTorch wakes its threads for each operation on more than 32,768 elements. A training step is a hundred of these.
    The number of threads is that of this Python thread, but one that first uses PyTorch meanwhile starts with one too.
    """
    threads = torch.get_num_threads()
    if elements >= SHARED_FROM or threads == 1:
        yield
        return
    token = _loop_threads.set(threads)
    try:
        torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(threads)
        _loop_threads.reset(token)


def share(work: Callable[..., None], tasks: Iterable[tuple[Any, ...]], threads: int) -> None:
    """Call ``work(*task)`` for every task, on this thread and ``threads - 1`` others; the order is not defined.

    What `work` holds, such as large arrays, is free when this returns: the queue alone has it, and a helper that comes
    too late finds the queue empty.
    """
    queue = deque(partial(work, *task) for task in tasks)

    def drain() -> None:
        while True:
            try:
                call = queue.popleft()
            except IndexError:
                return
            call()

    helpers = min(threads, len(queue)) - 1
    # With this thread's context, so that its listener is told what a helper compiles.
    futures = [_pool(threads - 1).submit(copy_context().run, drain) for _ in range(helpers)]
    try:
        drain()
    finally:
        queue.clear()  # after an error here: nothing left to start
        for future in futures:
            if not future.cancel():  # one that has not started would find nothing to do
                future.result()


def share_rows(work: Callable[[int, int], None], rows: int, threads: int) -> None:
    """`share` calls of ``work(first, last)`` for rows ``[0, rows)``.

    There are more parts than threads: the cores of a machine are seldom equally free.
    """
    share(work, cuts(rows, 4 * threads if threads > 1 else 1), threads)


def run_rows(loop: Callable[..., None], rows: int, elements: int, *arguments: Any) -> None:
    """Let threads share the rows of a loop over ``[first, last)``, its last two arguments, and so many elements."""
    share_rows(lambda first, last: loop(*arguments, first, last), rows, threads_for(elements))


def cuts(size: int, parts: int, step: int = 1) -> list[tuple[int, int]]:
    """``[0, size)`` as at most `parts` intervals whose inner ends are multiples of `step`."""
    width = max(1, -(-size // (max(1, parts) * step))) * step
    return [(start, min(start + width, size)) for start in range(0, size, width)]
