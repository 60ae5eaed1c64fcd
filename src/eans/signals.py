"""Ctrl-C, SIGTERM and SIGHUP, which comes when a terminal is closed, as requests to stop in good order."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType

__all__ = ["SIGNALS", "WORDS", "StopRequests", "stop_while_importing"]

LIBRARIES = ("numpy", "torch", "numba", "pyarrow", "matplotlib")
WORDS = "eans: stopping; once more to stop at once"
TOGETHER = 1.0  # seconds
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stop_while_importing() -> None:
    """End the program in one line if Ctrl-C comes while a library is imported; later it is a `KeyboardInterrupt`.

    An exception inside the start of a library shows as whatever that library makes of it, up to an abort.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        loading = (getattr(sys.modules.get(name), "__spec__", None) for name in LIBRARIES)
        if any(getattr(spec, "_initializing", False) for spec in loading):
            os.write(2, b"eans: error: interrupted\n")
            os._exit(130)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # one that was told to ignore it goes on doing so
        signal.signal(signal.SIGINT, handle)


class StopRequests:
    """Counts how often one was asked to stop.

    Signals that come within a second of a request belong to it: `timeout` and batch systems send theirs to a process
    and to its group, and so twice.

    Args:
        on_request: is told the count, inside the signal handler: anything may be going on, such as printing.
    """

    def __init__(self, on_request: Callable[[int], None] = lambda _: None) -> None:
        self.count = 0
        self._on_request = on_request
        self._counted_at = 0.0

    @property
    def asked(self) -> bool:
        """Once or more: save and stop."""
        return self.count > 0

    @property
    def insisted(self) -> bool:
        """More than once: stop at once."""
        return self.count > 1

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Count signals meanwhile. Those that come after a stop find nothing left to stop and are ignored.

        SIGHUP stays ignored where it was, which is how `nohup` lets a program go on without a terminal.
        """
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        numbers = [number for number in SIGNALS if not (number == signal.SIGHUP and ignored)]
        previous = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, signal.SIG_IGN if self.asked else handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        now = time.monotonic()
        if self.asked and now - self._counted_at < TOGETHER:
            return
        self.count, self._counted_at = self.count + 1, now
        self._on_request(self.count)
