"""Ranks of single triples in a record, so that two methods can be compared triple by triple."""

from __future__ import annotations

import zlib
from base64 import b85decode, b85encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from eans.errors import RunError
from eans.experiments.extras import Extra, Watch
from eans.experiments.records import Experiment, Record

if TYPE_CHECKING:
    from eans.graph import Split
    from eans.run import Run

SIDES = ("head", "tail")


class KeepRanks(Extra):
    """Every triple's ranks go into the record: ``ranks.SPLIT.SIDE``, twice the realistic rank as int32, deflated, in
    the base 85 of RFC 1924.

    Args:
        split: of which triples.
    """

    def __init__(self, split: Split) -> None:
        self.split: Split = split

    def lacks(self, experiment: Experiment, record: Record) -> str:
        """A record of another study may have no ranks."""
        del experiment
        return "" if record.get(f"ranks.{self.split}") else f"its record has no ranks of the {self.split} triples"

    def watch(self, experiment: Experiment, folder: Path) -> Watch:
        """Ranks once more after the run."""
        del experiment, folder
        return RankKeeper(self.split)


class RankKeeper(Watch):
    """See `KeepRanks`."""

    def __init__(self, split: Split) -> None:
        from eans.listener import Listener

        super().__init__(Listener())
        self.split: Split = split

    def fields(self, run: Run) -> dict[str, Any]:
        """The ranks of both sides."""
        from eans.evaluation import rank
        from eans.run import MEGABYTE

        found = rank(run.model, run.graph, self.split, memory=run.recipe.evaluation.memory_mb * MEGABYTE)
        return {"ranks": {self.split: {side: encoded(found.ranks(side).numpy()) for side in found.greater}}}


def encoded(ranks: NDArray[np.float64]) -> str:
    """Ranks ``[n]``, multiples of a half, as text."""
    return b85encode(zlib.compress((2 * ranks).astype("<i4").tobytes(), 9)).decode()


def decoded(text: str) -> NDArray[np.float64]:
    """What `encoded` was given."""
    return np.frombuffer(zlib.decompress(b85decode(text)), "<i4") / 2


def ranks_of(record: Record, split: str) -> NDArray[np.float64]:
    """The realistic ranks of a record's triples, ``[n, 2]``: head, tail."""
    try:
        return np.stack([decoded(record["ranks"][split][side]) for side in SIDES], axis=1)
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        raise RunError(f"{record.file}: its ranks of the {split} triples cannot be read; delete the record") from error
