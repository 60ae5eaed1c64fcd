"""All cells there are, and how to choose among them by table, by figure and by what was run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eans.errors import UsageError, did_you_mean
from paper.anchors import anchor_cells
from paper.cells import VALUES, Cell
from paper.choices import choice_cells
from paper.published import PAPER, read_published
from paper.tables import PAPER_TABLES, TABLES

FIGURES = ("small-n", "negative-cdf", "substitution-histogram", "order")
# What a cell may be chosen by, as it is typed; the questions of the table choices go by their short names.
KEYS = (
    *("dataset", "model", "method", "sampler", "negatives", "self_adversarial", "gaussian", "substitution"),
    *("step", "own", "question"),
)
DRAWN_MODELS = ("transe", "complex")  # the small-n figure's


def read_cells(file: Path = PAPER) -> list[Cell]:
    """The cells of all tables; those of a file stand in for the paper's."""
    return [*read_published(file), *anchor_cells(), *choice_cells()]


@dataclass(frozen=True)
class Selection:
    """What was asked for.

    Attributes:
        cells: of the tables, in the order of their files.
        figures: names.
        drawn: what the figures are drawn from, by figure; the cells among them that no table has carry no numbers.
        empty: the tables and figures that were asked for by name and have none of the cells, with the reason.
    """

    cells: tuple[Cell, ...]
    figures: tuple[str, ...]
    drawn: Mapping[str, tuple[Cell, ...]]
    empty: tuple[str, ...] = ()

    @property
    def tables(self) -> tuple[str, ...]:
        """Those that have a cell, the paper's in its order and then the others."""
        found = {cell.table for cell in self.cells}
        return tuple(table for table in TABLES if table in found)


def select(cells: Sequence[Cell], names: Sequence[str] = (), only: str = "") -> Selection:
    """The cells of tables and figures (all of the paper's without a name) that fulfil ``key=value,key=value``."""
    known = tuple(dict.fromkeys([*TABLES, *FIGURES]))
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise UsageError(f"unknown table or figure '{name}'{hint} (one of {', '.join(known)})")
    wanted = conditions(only, cells)
    asked = names or (*PAPER_TABLES, *FIGURES)
    figures = tuple(name for name in FIGURES if name in asked)
    drawn = {name: tuple(cell for cell in drawn_from(name, cells) if _fulfils(cell, wanted)) for name in figures}
    chosen = tuple(cell for cell in cells if cell.table in asked and _fulfils(cell, wanted))
    condition = f"fulfils --only {only}" if wanted else "is among these cells"
    if not chosen and not any(drawn.values()):
        others = dict.fromkeys(cell.table for cell in cells if wanted and _fulfils(cell, wanted))
        hint = f"; name a table that has one: {', '.join(others)}" if others else ""
        raise UsageError(f"no cell of {', '.join(names) or 'the paper'} {condition}{hint}")
    found = {*(cell.table for cell in chosen), *(name for name in figures if drawn[name])}
    empty = tuple(f"no cell of {name} {condition}" for name in names if name not in found)
    return Selection(chosen, tuple(name for name in figures if drawn[name]), drawn, empty)


def conditions(text: str, cells: Iterable[Cell]) -> dict[str, set[str]]:
    """``"model=rotate,model=transe,dataset=wn18rr"`` -> the values allowed for each key, checked against the cells."""
    values = {key: {written(cell, key) for cell in cells} - {""} for key in KEYS}
    wanted: dict[str, set[str]] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, separator, value = (piece.strip() for piece in part.partition("="))
        if not separator or not value:
            raise UsageError(f"--only '{part}' is not key=value, for example model=rotate")
        if key not in KEYS:
            raise UsageError(f"--only: unknown key '{key}'{did_you_mean(key, KEYS)} (one of {', '.join(KEYS)})")
        # Figures add self-adversarial runs with few negatives, which no table has; their values are known all the same.
        if value.lower() not in values[key]:
            options = sorted(values[key])
            raise UsageError(
                f"--only: no cell has {key}={value}{did_you_mean(value, options)} (one of {', '.join(options)})"
            )
        wanted.setdefault(key, set()).add(value.lower())
    return wanted


def written(cell: Cell, key: str) -> str:
    """What a cell has for a key, as it is typed: ``true``, ``16``, ``rotate``; nothing where it has none."""
    if key == "method":
        return cell.method
    return str(cell.get("question_id" if key == "question" else key, "")).lower()


def _fulfils(cell: Cell, wanted: Mapping[str, set[str]]) -> bool:
    return all(written(cell, key) in values for key, values in wanted.items())


def drawn_from(figure: str, cells: Iterable[Cell]) -> list[Cell]:
    """The cells whose runs a figure needs."""
    if figure != "small-n":
        gaps = [_without_numbers(cell) for cell in cells if cell.table == "score-gap"]
        return gaps if figure == "negative-cdf" else [cell for cell in gaps if cell["sampler"] == "eans"]
    few = [cell for cell in cells if cell.table == "small-n" and cell["model"] in DRAWN_MODELS]
    return [*few, *(_without_numbers(cell, sampler="uniform", self_adversarial=True) for cell in few)]


def _without_numbers(cell: Cell, **changes: Any) -> Cell:
    """A cell of which no number is shown: it has a record as soon as that has what a figure shows."""
    return Cell({name: value for name, value in cell.fields.items() if name not in VALUES}).with_fields(**changes)
