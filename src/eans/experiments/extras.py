"""What a study keeps in its records besides metrics: an `Extra` observes a run while it trains, and adds fields."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from eans.experiments.records import Experiment, Record

if TYPE_CHECKING:  # which loads PyTorch
    from eans.listener import Listener
    from eans.run import Run


class Watch:
    """Observes one run; derive from it. Its state belongs into the run's folder, so that an interruption loses nothing.

    Attributes:
        listener: callbacks for the run.
        seconds: what observing took; the record's training time is without it.
    """

    def __init__(self, listener: Listener) -> None:
        self.listener = listener

    @property
    def seconds(self) -> float:
        """None by default."""
        return 0.0

    def fields(self, run: Run) -> dict[str, Any]:
        """What to add to the record of the finished run: JSON values by name."""
        del run
        return {}


class Extra:
    """Derive from it for fields of your own, in a module that can be imported: it is sent to other processes."""

    def lacks(self, experiment: Experiment, record: Record) -> str:
        """Why a record does not serve, such as ``"its record has no analysis"``; nothing if it does."""
        del experiment, record
        return ""

    def watch(self, experiment: Experiment, folder: Path) -> Watch | None:
        """What observes a run that has its state in `folder`; None if nothing does."""
        del experiment, folder
        return None
