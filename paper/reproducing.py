"""``python -m paper reproduce``: the plan, the runs while they train, and the report in the end."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from eans.errors import UsageError
from eans.experiments import (
    Experiment,
    Extra,
    Planned,
    RecordStore,
    Table,
    estimate,
    hardware_of,
    outdated,
    plan,
    run_with_display,
)
from eans.progress import duration
from paper.freezing import WithRanks, check
from paper.ledger import Ledger
from paper.plan import Study, make_study
from paper.published import PAPER
from paper.report import judge
from paper.reporting import show_report
from paper.schema import read_records
from paper.selection import read_cells, select


def reproduce(
    names: Sequence[str],
    only: str,
    seeds: int,
    device: str,
    records: Path,
    cells: Path,
    workers: int,
    test: bool,
    dry_run: bool,
) -> bool:
    """Run what has no record; says whether every run that was begun came to its end."""
    for option, number in (("--seeds", seeds), ("--workers", workers)):
        if number < 1:
            raise UsageError(f"{option} must be at least 1, got {number}")
    known = read_cells(cells)
    selection = select(known, names, only)
    store, hardware = RecordStore(records), hardware_of(device)
    found = read_records(store)
    for reason in selection.empty:
        print(f"paper: note: {reason}", file=sys.stderr)
    study = make_study(selection, known, seeds)
    try:
        planned = plan(study.uses, store, test=test, extra=study)
    except UsageError as error:
        raise UsageError(f"{cells}: {error}" if cells != PAPER else str(error)) from error
    todo = [one for one in planned if one.record is None]
    seconds = {one.experiment: estimate(one, found, hardware) for one in todo}
    show_plan(planned, study, seconds)
    print(totals(todo, len(planned), hardware, list(seconds.values())))
    for record in outdated(one.record for one in planned if one.record is not None):
        old = f"{records / record.file}: its recipe has changed since; delete it to have the run made again"
        print(f"paper: note: {old}", file=sys.stderr)
    if dry_run:
        return True
    ledger = Ledger.beside(records) if test else None
    if ledger is not None:
        ledger.enter(store)  # those of a call that was killed
        check(ledger, seconds)
    extra: Extra = study if ledger is None else WithRanks(study)
    try:
        failed = run_with_display(list(seconds), store, device=device, workers=workers, test=test, extra=extra)
    finally:
        if ledger is not None:
            ledger.enter(store)
    show_report(judge(selection.cells, read_records(store)))
    if selection.figures:
        print(f"figures ({', '.join(selection.figures)}): draw them with python -m paper report --out DIR")
    return not failed


def show_plan(planned: Sequence[Planned], study: Study, seconds: Mapping[Experiment, float | None]) -> None:
    """What is there, what is to be run, and about how long each takes."""
    settings: dict[str, list[Planned]] = {}
    for one in planned:
        settings.setdefault(one.experiment.settings, []).append(one)
    rows = []
    for name, group in settings.items():
        lacking = [one for one in group if one.record is None]
        times = dict.fromkeys(duration(seconds[one.experiment]) for one in lacking)
        purposes = dict.fromkeys(use for one in group for use in study.purposes(one.experiment))
        there = ", ".join(str(one.experiment.seed) for one in group if one.record is not None)
        rows.append(
            [name, ", ".join(purposes), ", ".join(map(in_words, lacking)) or "-", there or "-", ", ".join(times)]
        )
    print(Table(["run", "for", "seeds to run", "with a record", "time each"], rows, labels=5))


def in_words(planned: Planned) -> str:
    """A seed to run, why it is run again, and where it continues."""
    remarks = [planned.reason, f"continues at step {planned.saved:,}" if planned.saved else ""]
    return f"{planned.experiment.seed}{''.join(f' ({remark})' for remark in remarks if remark)}"


def totals(todo: Sequence[Planned], planned: int, hardware: str, seconds: Sequence[float | None]) -> str:
    """How many runs, and about how long that takes one at a time."""
    known = [time for time in seconds if time is not None]
    parts = [f"{len(todo)} of {planned} runs to do on {hardware}"]
    if known:
        some = f" for {len(known)} of them" if len(known) < len(todo) else ""
        parts.append(f"about {duration(sum(known))}{some}, one at a time")
    if len(known) < len(todo):
        parts.append(f"time unknown for {len(todo) - len(known)}, of which there is no record from this hardware")
    return "; ".join(parts)
