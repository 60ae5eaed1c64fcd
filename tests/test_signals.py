"""Requests to stop, by signals."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eans import signals
from eans.cli.train import watching
from eans.errors import Interrupted
from eans.signals import StopRequests


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The time in its only entry; afterwards this process listens to signals again."""
    now = [100.0]
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
    before = {number: signal.getsignal(number) for number in signals.SIGNALS}
    yield now
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("handler", "importing", "outcome"),
    [
        ("default_int_handler", True, (130, "eans: error: interrupted\n")),
        ("default_int_handler", False, (1, "raised\n")),
        ("SIG_IGN", True, (0, "")),  # as a program in the background is started
    ],
    ids=["importing", "later", "ignored"],
)
def test_ctrl_c_while_a_library_is_imported(handler: str, importing: bool, outcome: tuple[int, str]) -> None:
    """One line and the status of an interruption, whatever the library would make of an exception."""
    program = f"""
import importlib.machinery, os, signal, sys, types
from eans.signals import stop_while_importing
signal.signal(signal.SIGINT, signal.{handler})
sys.modules["numba"] = library = types.ModuleType("numba")
library.__spec__ = importlib.machinery.ModuleSpec("numba", None)
library.__spec__._initializing = {importing}
stop_while_importing()
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    sys.exit("raised")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == outcome


def test_signals_that_come_together_are_one_request(clock: list[float]) -> None:
    told: list[int] = []
    stop = StopRequests(told.append)
    with stop.caught():
        assert not stop.asked
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        assert stop.asked
        assert not stop.insisted
        for _ in range(3):  # hammering is no way to be ignored
            clock[0] += 0.4
            os.kill(os.getpid(), signal.SIGINT)
        assert stop.insisted
    assert told == [1, 2]


def test_a_second_request_may_raise_in_the_middle_of_things(clock: list[float]) -> None:
    def interrupt(count: int) -> None:
        if count > 1:
            raise KeyboardInterrupt

    stop = StopRequests(interrupt)
    with stop.caught():
        os.kill(os.getpid(), signal.SIGINT)
        clock[0] += 2.0
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_signals_after_a_stop_are_ignored_and_others_restored() -> None:
    before = signal.getsignal(signal.SIGINT)
    stop = StopRequests()
    with stop.caught():
        pass
    assert signal.getsignal(signal.SIGINT) is before
    with stop.caught():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_training_stops_at_once_when_asked_again(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    def train() -> None:
        with watching(Path("somewhere")) as listener:
            os.kill(os.getpid(), signal.SIGTERM)
            assert listener.stop()
            clock[0] += 2.0
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted) as caught:
        train()
    assert str(caught.value) == "stopped at once; continue with: eans train --resume somewhere"
    assert capsys.readouterr().err == f"{signals.WORDS}\n"
