"""What the suites about the paper share: cells on the bundled graph that train in a moment, and made-up records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from eans.experiments import Experiment, Record, RecordStore
from paper.cells import Cell
from paper.cli import main
from paper.published import read_published

TINY = ("train.steps=20", "train.batch_size=16", "model.dim=4", "sampler.negatives=2", "train.log_every=5")


class Answer(NamedTuple):
    """What a command said, and its exit status."""

    status: object
    out: str
    err: str


def call(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Answer:
    """`python -m paper` inside this process, which has PyTorch loaded already."""
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    return Answer(end.value.code, *capsys.readouterr())


def tiny_cell(**fields: Any) -> Cell:
    """A cell of the main table: TransE on the bundled graph."""
    standard = {
        "table": "main",
        "dataset": "wordnet-core",
        "model": "transe",
        "sampler": "uniform",
        "self_adversarial": False,
        "own": True,
        "overrides": list(TINY),
        "mrr": 0.0001,
        "hits10": 0.0001,
    }
    return Cell({**standard, **fields})


def paper_cell(table: str, **fields: object) -> Cell:
    """The one cell of the paper's table that has these fields."""
    (cell,) = [
        cell
        for cell in read_published()
        if cell.table == table and all(cell.get(key) == value for key, value in fields.items())
    ]
    return cell


def write_cells(file: Path, *cells: Cell) -> Path:
    """Cells as a TOML file."""
    parts = ["[[cell]]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in cell.fields.items()) for cell in cells]
    file.write_text("\n".join(parts), "utf-8")
    return file


def made_up(
    experiment: Experiment, mrr: float = 0.3, hits10: float = 0.5, mr: float = 200.0, **fields: Any
) -> dict[str, Any]:
    """The content of a record with these test metrics."""
    both = {"mr": mr, "mrr": mrr, "hits@1": 0.2, "hits@3": 0.4, "hits@10": hits10}
    return {
        "recipe": experiment.recipe,
        "overrides": list(experiment.overrides),
        "seed": experiment.seed,
        "commit": "0123456789abcdef",
        "versions": {"torch": "2.0"},
        "hardware": "Abacus",
        "seconds": 100.0,
        "total_seconds": 110.0,
        "test": {"both": both},
        "protocol": {"ties": "realistic", "candidates": "all 9 entities"},
        **fields,
    }


def keep(folder: Path, experiment: Experiment, *numbers: float, **fields: Any) -> Record:
    """Write a made-up record."""
    return RecordStore(folder).write(experiment, made_up(experiment, *numbers, **fields))


def valid(mrr: float) -> dict[str, Any]:
    """The field ``valid`` of a record with this MRR."""
    return {"both": {"mrr": mrr}}


def memory(*contents: dict[str, Any]) -> dict[Experiment, Record]:
    """Made-up records as `RecordStore.read` returns them."""
    records = [Record(f"{number}.json", content) for number, content in enumerate(contents)]
    return {record.experiment: record for record in records}
