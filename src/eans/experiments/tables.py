"""A table from records: rows by what was run, columns of metrics, means over seeds with their standard errors."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from eans.errors import UsageError
from eans.experiments.records import Record


class Mean(NamedTuple):
    """A mean over runs, and its standard error, which two runs or more have; None where a run does not know it."""

    value: float | None
    stderr: float | None = None

    def __str__(self) -> str:
        if self.value is None:
            return "-"
        places = 4 if abs(self.value) < 10 else 1
        error = "" if self.stderr is None else f" ± {self.stderr:.{places}f}"
        return f"{self.value:.{places}f}{error}"


class Table(NamedTuple):
    """A header and rows of texts and numbers; the first `labels` columns say what was run, and stand flush left."""

    header: list[str]
    rows: list[list[Any]]
    labels: int

    def markdown(self) -> str:
        """For a page."""
        marks = ["---" if place < self.labels else "---:" for place in range(len(self.header))]
        lines = [f"| {' | '.join(map(str, cells))} |" for cells in (self.header, *self.rows)]
        return "\n".join([lines[0], f"|{'|'.join(marks)}|", *lines[1:]])

    def dicts(self) -> list[dict[str, Any]]:
        """Rows by the names of their columns, numbers in full; a mean has its standard error beside it."""
        found = []
        for row in self.rows:
            named: dict[str, Any] = {}
            for name, cell in zip(self.header, row, strict=True):
                named[name] = cell.value if isinstance(cell, Mean) else cell
                if isinstance(cell, Mean):
                    named[f"{name} stderr"] = cell.stderr
            found.append(named)
        return found

    def csv(self) -> str:
        """For a spreadsheet; empty where there is no number."""
        rows, out = self.dicts(), io.StringIO()
        writer = csv.DictWriter(out, list(rows[0]) if rows else self.header, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()

    def json(self) -> str:
        """For a program."""
        return json.dumps(self.dicts(), indent=2)

    def __str__(self) -> str:
        """For a terminal."""
        lines = [list(map(str, cells)) for cells in (self.header, *self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

        def aligned(cells: list[str]) -> str:
            pairs = enumerate(zip(cells, widths, strict=True))
            return "  ".join(
                cell.ljust(width) if place < self.labels else cell.rjust(width) for place, (cell, width) in pairs
            ).rstrip()

        return "\n".join(map(aligned, lines))


# What rows may be told apart by, besides the key of an override.
LABELS: dict[str, Callable[[Record], str]] = {
    "settings": lambda record: record.experiment.settings,
    "recipe": lambda record: record.experiment.recipe,
    "dataset": lambda record: record.experiment.recipe.split("/")[0],
    "model": lambda record: record.experiment.recipe.split("/")[-2],
    "method": lambda record: record.experiment.recipe.split("/")[-1],
    "seed": lambda record: str(record.experiment.seed),
    "hardware": lambda record: str(record["hardware"]),
}


def table(
    records: Iterable[Record],
    rows: Sequence[str] = ("settings",),
    columns: Sequence[str] = ("valid.mrr", "test.mrr", "test.hits@10"),
) -> Table:
    """Means over the records of a row, in the order in which rows appear; the last column counts the runs.

    Args:
        records: what came out.
        rows: ``"settings"`` (recipe and overrides), ``"recipe"``, ``"dataset"``, ``"model"``, ``"method"``, ``"seed"``,
            ``"hardware"``, or a recipe key such as ``"sampler.negatives"``, by its override.
        columns: ``"split.metric"``, of both sides, or with a side ``"test.head.mrr"``; or a field, such as
            ``"seconds"``.
    """
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(_label(record, name) for name in rows), []).append(record)
    found = [
        [*labels, *(_mean([_number(record, name) for record in group]) for name in columns), len(group)]
        for labels, group in groups.items()
    ]
    return Table([*rows, *columns, "runs"], found, len(rows))


def _label(record: Record, name: str) -> str:
    if name in LABELS:
        return LABELS[name](record)
    if "." not in name:
        raise UsageError(f"rows by '{name}' are unknown (one of {', '.join(LABELS)}, or a recipe key)")
    values = [value for key, _, value in (text.partition("=") for text in record["overrides"]) if key.strip() == name]
    return values[-1].strip() if values else "-"


def _number(record: Record, name: str) -> float | None:
    split, _, metric = name.partition(".")
    value = record.get(name, record.get(f"{split}.both.{metric}"))
    return float(value) if isinstance(value, int | float) else None


def _mean(values: Sequence[float | None]) -> Mean:
    known = [value for value in values if value is not None]
    if len(known) < len(values):  # a mean over some of the runs would mislead
        return Mean(None)
    stderr = statistics.stdev(known) / len(known) ** 0.5 if len(known) > 1 else None
    return Mean(statistics.fmean(known), stderr)
