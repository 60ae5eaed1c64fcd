"""How tables and figures name datasets, models, methods and numbers, and how they write numbers."""

from __future__ import annotations

import re
from pathlib import PurePath

from paper.cells import Cell

DATASETS = {"fb15k-237": "FB15k-237", "wn18rr": "WN18RR"}
MODELS = {"transe": "TransE", "transd": "TransD", "distmult": "DistMult", "complex": "ComplEx", "rotate": "RotatE"}
METHOD_NAMES = {
    "adv": "self-adversarial",
    "kbgan": "KBGAN",
    "nscaching": "NSCaching",
    "sans": "SANS",
    "sans+adv": "SANS + self-adv.",
    "eans": "EANS",
    "eans+adv": "EANS + self-adv.",
    "gaussian": "Gaussian",
    "best": "recipe best",
}
GRAPH = "data.name"
COUNTS = {"n": "negatives", "step": "step"}  # the fields of a cell, by what tables call them
NUMBERS = {
    "mr": "MR",
    "mrr": "MRR",
    "hits10": "Hits@10",
    "positive_score": "positive",
    "negative_score": "negative",
    "valid_mrr": "valid MRR",
}


def dataset(cell: Cell) -> str:
    """The dataset as a table names it; a graph in a folder goes by the folder's name."""
    chosen = [
        value for key, _, value in (override.partition("=") for override in cell.get("overrides", ())) if key == GRAPH
    ]
    return PurePath(chosen[-1]).name if chosen else DATASETS.get(cell["dataset"], str(cell["dataset"]))


def model(cell: Cell) -> str:
    """The model as a table names it."""
    return MODELS.get(cell["model"], str(cell["model"]))


def place(cell: Cell) -> str:
    """The model and the dataset in words."""
    return f"{model(cell)} on {dataset(cell)}"


def method(cell: Cell) -> str:
    """The method as a table names it: as the cell says, or by its halves where the cell is about them."""
    if "label" in cell.fields:
        return str(cell["label"])
    if "gaussian" in cell.fields:
        halves = [name for key, name in (("gaussian", "Gaussian"), ("substitution", "substitution")) if cell[key]]
        return " + ".join(halves) or "uniform"
    return METHOD_NAMES.get(cell.method, cell.method)


def counts(cell: Cell) -> dict[str, str]:
    """How many negatives or steps a cell is about, such as ``{"n": "16"}``; empty where it is about neither."""
    return {name: f"{cell[field]:,}" for name, field in COUNTS.items() if field in cell.fields}


def count(cell: Cell) -> str:
    """The same in words, such as ``n = 16``."""
    return ", ".join(f"n = {value}" if name == "n" else f"{name} {value}" for name, value in counts(cell).items())


def number(name: str, value: float | None) -> str:
    """A measured number as people write it; a dash where there is none."""
    if value is None:
        return "-"
    return f"{value:.0f}" if name == "mr" else f"{value:.4f}"


def target(name: str, value: float | None) -> str:
    """A published number, to the places that papers print."""
    if value is None:
        return "-"
    return f"{value:.0f}" if name == "mr" else f"{value:.3f}"


def signed(name: str, value: float | None) -> str:
    """A difference with its sign; that of zero is a plus. One that four places would hide has more."""
    if value is None:
        return "-"
    places = 0 if name == "mr" else 4
    if name != "mr" and 5e-6 <= abs(value) < 5e-5:
        places = 5
    return f"{round(value, places) + 0.0:+.{places}f}"


def without_zeros(text: str) -> str:
    """Numbers as papers print them where room is short: ``.338`` for ``0.338``."""
    return re.sub(r"(?<![\d.,])0\.(?=\d)", ".", text)
