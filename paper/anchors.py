"""The cells of the table ``best``: for each model and dataset, the best MRR published under any training.

That is the best of the paper's own cells, or one from elsewhere that is better (``anchors.toml``). The recipe
``{dataset}/{model}/best`` is measured against it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from paper.cells import Cell
from paper.labels import method
from paper.published import read_published


def anchor_cells() -> list[Cell]:
    """One cell per dataset and model, dataset by dataset.

    Field ``source`` says who trained the anchor and how; ``paper_mrr`` is the paper's own best MRR where the anchor is
    somebody else's.
    """
    own = best_of_the_paper()
    text = Path(__file__).with_name("anchors.toml").read_text("utf-8")
    elsewhere = {(entry["dataset"], entry["model"]): entry for entry in tomllib.loads(text)["anchor"]}
    datasets = list(dict.fromkeys(dataset for dataset, _ in own))
    return [
        _anchor(own[place], elsewhere.get(place)) for place in sorted(own, key=lambda place: datasets.index(place[0]))
    ]


def best_of_the_paper() -> dict[tuple[str, str], Cell]:
    """The cell of the main table with the highest MRR that the paper measured itself, by dataset and model."""
    best: dict[tuple[str, str], Cell] = {}
    for cell in read_published():
        place = (cell["dataset"], cell["model"])
        if cell.table == "main" and cell["own"] and (place not in best or cell["mrr"] > best[place]["mrr"]):
            best[place] = cell
    return best


def _anchor(own: Cell, other: dict[str, Any] | None) -> Cell:
    """The better of two."""
    fields: dict[str, Any] = {"table": "best", "dataset": own["dataset"], "model": own["model"], "method": "best"}
    if other is None or other["mrr"] <= own["mrr"]:
        source = f"{method(own)} (Je 2022)"
        return Cell({**fields, "mrr": own["mrr"], "hits10": own["hits10"], "source": source})
    fields |= {name: other[name] for name in ("mrr", "hits10", "source") if name in other}
    return Cell({**fields, "paper_mrr": own["mrr"]})
