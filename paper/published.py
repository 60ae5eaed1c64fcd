"""The cells that the paper prints, or those of another file in the same format."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from eans.errors import UsageError, did_you_mean
from eans.experiments import problem
from paper.cells import BEHIND, METHODS, VALUES, Cell
from paper.schema import CellFields
from paper.tables import PAPER_TABLES, TABLES

PAPER = Path(__file__).with_name("published.toml")
NEEDS = {"small-n": ("sampler", "negatives"), "score-gap": ("sampler", "step", "positive_score", "negative_score")}
# What may name a method, each by itself; `self_adversarial` goes with the latter two.
WAYS = (("method",), ("sampler",), ("gaussian", "substitution"))


def read_published(file: Path = PAPER) -> list[Cell]:
    """The paper's cells, or those of another file in the same format: ``[[cell]]`` sections of TOML."""
    try:
        entries = tomllib.loads(file.read_text("utf-8")).get("cell")
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
    if found := problem(entry, CellFields):
        return found
    table = entry["table"]
    if table not in PAPER_TABLES:
        return f"unknown table '{table}'{did_you_mean(table, PAPER_TABLES)}"
    used = [next(name for name in way if name in entry) for way in WAYS if any(name in entry for name in way)]
    used += ["self_adversarial"] if "method" in entry and "self_adversarial" in entry else []
    if len(used) > 1:
        return f"fields '{used[0]}' and '{used[1]}' both say what was run; leave one out"
    if table in NEEDS and used == ["method"]:
        return f"table {table} goes by the field 'sampler', not by 'method'"
    if not Cell(entry).method:
        return _no_method(entry)
    if "train.seed" in [override.partition("=")[0].strip() for override in entry.get("overrides", ())]:
        return "overrides have train.seed; seeds are chosen by --seeds"
    numbers, rule = TABLES[table].measure.names, TABLES[table].rule
    judged = rule.judged if rule is not None else ()
    published = judged if any(name in entry for name in (*numbers, *BEHIND)) else ()
    for name in (*NEEDS.get(table, ()), *published):
        if name not in entry:
            return f"field '{name}' is missing"
    return next(
        (f"field '{name}' is none of table {table}" for name in VALUES if name in entry and name not in numbers), ""
    )


def _no_method(entry: Any) -> str:
    """What is wrong with a cell whose fields name no method."""
    if "sampler" in entry:
        samplers = dict.fromkeys(sampler for sampler, _ in METHODS)
        weights = " with self_adversarial" if entry.get("self_adversarial") else ""
        known = f"one of {', '.join(samplers)}; other methods of recipes go by the field 'method'"
        return f"sampler '{entry['sampler']}'{weights} is not known ({known})"
    return "it does not say what was run: give 'sampler', or 'method', or in the table ablation its two halves"
