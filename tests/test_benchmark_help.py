"""Every program among the benchmarks says what it is for, and does nothing else, when it is asked."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py") if "__main__" in path.read_text("utf-8"))


def test_there_are_programs() -> None:
    assert {"cpu", "gpu"} <= set(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
def test_help(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ending:
        runpy.run_module(f"benchmarks.{name}", run_name="__main__")
    assert ending.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ")
