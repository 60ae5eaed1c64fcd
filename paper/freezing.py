"""``python -m paper freeze``: choose recipes and seeds before test is ranked; and what `reproduce` may rank by that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eans.errors import UsageError
from eans.experiments import Experiment, Extra, KeepRanks, RecipeHashes, Record, RecordStore, Watch
from paper.ledger import Ledger
from paper.plan import make_study
from paper.selection import read_cells, select

if TYPE_CHECKING:
    from eans import Run


def freeze(names: Sequence[str], only: str, seeds: int, records: Path, cells: Path, why: str) -> None:
    """Enter what tables and figures need, and has not been ranked on test, into the ledger."""
    if seeds < 1:
        raise UsageError(f"--seeds must be at least 1, got {seeds}")
    if not why.strip():
        raise UsageError("--why must say by what the recipes were chosen, for example 'highest valid MRR of 12 trials'")
    known, file = read_cells(cells), records.parent / "ledger.jsonl"
    ledger = Ledger(file)
    if not ledger.entries:
        ledger.open(RecordStore(records))
    hashes, chosen = RecipeHashes(), dict[str, list[Experiment]]()
    for experiment in make_study(select(known, names, only), known, seeds).uses:
        if not ledger.is_ranked(experiment) and not ledger.is_frozen(experiment, hashes.of(experiment)):
            chosen.setdefault(experiment.settings, []).append(experiment)
    for settings, experiments in chosen.items():
        if not hashes.of(experiments[0]):
            raise UsageError(f"the graph of {settings} is not on this machine: see eans data list")
        found = [experiment.seed for experiment in experiments]
        ledger.freeze(experiments[0], hashes.of(experiments[0]), found, why)
        print(f"frozen: {settings}, {'seed' if len(found) == 1 else 'seeds'} {', '.join(map(str, found))}")
    print(f"commit {file} before test is ranked" if chosen else "all of it has been frozen or ranked before")


def check(ledger: Ledger, experiments: Iterable[Experiment]) -> None:
    """May the test triples be ranked for all of these?

    Raises:
        UsageError: naming the first one for which they may not, and the fix.
    """
    hashes = RecipeHashes()
    for experiment in experiments:
        if ledger.is_ranked(experiment):
            raise UsageError(f"test was ranked for {experiment.key} before; restore its record instead")
        if not ledger.is_frozen(experiment, hashes.of(experiment)):
            raise UsageError(
                f"{experiment.key} is not frozen: choose by valid (--no-test), then call python -m paper freeze and"
                f" commit {ledger.file}"
            )


class WithRanks(Extra):
    """Another extra, and the rank of every test triple; a record that has no ranks serves nevertheless."""

    def __init__(self, extra: Extra) -> None:
        self.extra = extra

    def lacks(self, experiment: Experiment, record: Record) -> str:
        """What the other one misses."""
        return self.extra.lacks(experiment, record)

    def watch(self, experiment: Experiment, folder: Path) -> Watch:
        """Observe for both."""
        ranks = KeepRanks("test").watch(experiment, folder)
        other = self.extra.watch(experiment, folder)
        return ranks if other is None else _Both(other, ranks)


class _Both(Watch):
    """An observer, and one that only adds fields."""

    def __init__(self, first: Watch, second: Watch) -> None:
        super().__init__(first.listener)
        self.first, self.second = first, second

    @property
    def seconds(self) -> float:
        return self.first.seconds + self.second.seconds

    def fields(self, run: Run) -> dict[str, Any]:
        return self.first.fields(run) | self.second.fields(run)
