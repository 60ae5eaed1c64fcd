"""The published cells, the run that stands for each, and how to choose among them.

A cell is one number, or one row of numbers, of a table. Several cells may need the same run: the main table, the
variances and the ablation share theirs.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from eans.errors import UsageError, did_you_mean
from eans.reproduction.checks import NUMBER, OVERRIDES, POSITIVE, TEXT, TRUTH, problem
from eans.reproduction.records import RunSpec

TABLES = ("main", "variance", "small-n", "one-negative", "ablation", "score-gap")
FIGURES = ("small-n", "negative-cdf", "substitution-histogram", "order")
# Methods of the recipes by (sampler, self-adversarial weights).
METHODS = {
    ("uniform", False): "uniform",
    ("uniform", True): "adv",
    ("kbgan", False): "kbgan",
    ("nscaching", False): "nscaching",
    ("sans", False): "sans",
    ("sans", True): "sans+adv",
    ("eans", False): "eans",
    ("eans", True): "eans+adv",
}
# Methods by (Gaussian draws, substitution score): the halves of EANS.
HALVES = {(False, False): "uniform", (True, False): "gaussian", (False, True): "substitution", (True, True): "eans"}
# What a cell may be chosen by.
KEYS = ("dataset", "model", "sampler", "self_adversarial", "negatives", "gaussian", "substitution", "own", "step")
# What a cell says was measured; all else says what was run.
VALUES = ("mr", "mrr", "hits10", "positive_score", "negative_score")
DRAWN_MODELS = ("transe", "complex")  # the small-n figure's
# What a file of cells has to say in each cell, what it may say, and what it has to say in some tables.
FIELDS = {"table": TEXT, "dataset": TEXT, "model": TEXT, "own": TRUTH}
MAY = {
    "sampler": TEXT,
    **dict.fromkeys(("self_adversarial", "gaussian", "substitution"), TRUTH),
    "negatives": POSITIVE,
    "step": POSITIVE,
    "overrides": OVERRIDES,
    **dict.fromkeys(VALUES, NUMBER),
}
NEEDS = {
    "small-n": ("sampler", "negatives", "mrr", "hits10"),
    "score-gap": ("sampler", "step", "positive_score", "negative_score"),
}


@dataclass(frozen=True)
class Cell:
    """One published cell.

    Attributes:
        fields: what the file says, by name and in its order.
    """

    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def get(self, name: str, default: Any = None) -> Any:
        """A field, or the default where the cell has none of that name."""
        return self.fields.get(name, default)

    @property
    def table(self) -> str:
        """The table it stands in."""
        return str(self["table"])

    @property
    def method(self) -> str:
        """The method of the recipes that trains it; nothing if there is none, which no cell that was read has."""
        if "sampler" in self.fields:
            return METHODS.get((self["sampler"], self.get("self_adversarial", False)), "")
        return HALVES.get((self.get("gaussian"), self.get("substitution")), "")

    @property
    def values(self) -> dict[str, float]:
        """The published numbers."""
        return {name: float(self[name]) for name in VALUES if name in self.fields}

    def run(self, seed: int = 0) -> RunSpec:
        """The run that measures it."""
        overrides = [str(override) for override in self.get("overrides", ())]
        if "negatives" in self.fields:
            overrides.append(f"sampler.negatives={self['negatives']}")
        return RunSpec(f"{self['dataset']}/{self['model']}/{self.method}", tuple(overrides), seed)

    def with_fields(self, **changes: Any) -> Cell:
        """The same cell but for some fields."""
        return Cell({**self.fields, **changes})


def read_cells(file: Path | None = None) -> list[Cell]:
    """The paper's cells, or those of another file in the same format: ``[[cell]]`` sections of TOML."""
    source = file if file is not None else resources.files("eans.reproduction").joinpath("published.toml")
    try:
        entries = tomllib.loads(source.read_text("utf-8")).get("cell")
    except OSError as error:
        raise UsageError(f"cannot read cells from {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: not a TOML file of cells: {error}") from error
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{file}: no [[cell]] section")
    for number, entry in enumerate(entries, 1):
        if wrong := _problem(entry):
            raise UsageError(f"{file}: cell {number}: {wrong}")
    return [Cell(entry) for entry in entries]


def _problem(entry: Any) -> str:
    """What is wrong with a cell, in words; nothing if it says what was run and what came out."""
    if found := problem(entry, FIELDS, MAY):
        return found
    table = entry["table"]
    if table not in TABLES:
        return f"unknown table '{table}'{did_you_mean(table, TABLES)}"
    if not Cell(entry).method:
        return "no method for its sampler, self_adversarial, gaussian and substitution"
    for name in NEEDS.get(table, ("mrr", "hits10")):
        if name not in entry:
            return f"field '{name}' is missing"
    strange = VALUES[:3] if table == "score-gap" else VALUES[3:]
    return next((f"field '{name}' is none of table {table}" for name in strange if name in entry), "")


# --- choosing -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Selection:
    """What was asked for.

    Attributes:
        cells: of the tables, in the order of the file.
        figures: names.
        drawn: what the figures are drawn from, by figure; the cells among them that no table has carry no numbers.
    """

    cells: tuple[Cell, ...]
    figures: tuple[str, ...]
    drawn: Mapping[str, tuple[Cell, ...]]

    @property
    def tables(self) -> tuple[str, ...]:
        """Those that have a cell, in the paper's order."""
        found = {cell.table for cell in self.cells}
        return tuple(table for table in TABLES if table in found)


def select(cells: Sequence[Cell], names: Sequence[str] = (), only: str = "") -> Selection:
    """The cells of tables and figures (all without a name) that fulfil ``key=value,key=value``."""
    known = tuple(dict.fromkeys([*TABLES, *FIGURES]))
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise UsageError(f"unknown table or figure '{name}'{hint} (one of {', '.join(known)})")
    wanted = conditions(only, cells)
    figures = tuple(name for name in FIGURES if not names or name in names)
    drawn = {name: tuple(cell for cell in drawn_from(name, cells) if _fulfils(cell, wanted)) for name in figures}
    chosen = tuple(cell for cell in cells if (not names or cell.table in names) and _fulfils(cell, wanted))
    if not chosen and not any(drawn.values()):
        raise UsageError(f"no cell of {', '.join(names) or 'any table'} fulfils --only {only}")
    return Selection(chosen, tuple(name for name in figures if drawn[name]), drawn)


def conditions(text: str, cells: Iterable[Cell]) -> dict[str, set[str]]:
    """``"model=rotate,model=transe,dataset=wn18rr"`` -> the values allowed for each key, checked against the cells."""
    values = {key: {written(cell[key]) for cell in cells if key in cell.fields} for key in KEYS}
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


def written(value: object) -> str:
    """A field as it is typed: ``true``, ``16``, ``rotate``."""
    return str(value).lower()


def _fulfils(cell: Cell, wanted: Mapping[str, set[str]]) -> bool:
    return all(key in cell.fields and written(cell[key]) in values for key, values in wanted.items())


def drawn_from(figure: str, cells: Iterable[Cell]) -> list[Cell]:
    """The cells whose runs a figure needs."""
    if figure != "small-n":
        gaps = [cell for cell in cells if cell.table == "score-gap"]
        return gaps if figure == "negative-cdf" else [cell for cell in gaps if cell["sampler"] == "eans"]
    few = [cell for cell in cells if cell.table == "small-n" and cell["model"] in DRAWN_MODELS]
    beside = [
        Cell({k: v for k, v in cell.fields.items() if k not in VALUES}).with_fields(
            sampler="uniform", self_adversarial=True
        )
        for cell in few
    ]
    return [*few, *beside]
