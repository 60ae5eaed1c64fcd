"""The cells of the table ``choices``: runs that differ in one thing that the paper leaves open (``choices.toml``).

Nothing was published for them. Each is compared with the base of its question, most often a run of the paper's cells.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paper.cells import Cell


def choice_cells() -> list[Cell]:
    """The cells of all questions: each base, then its alternatives.

    Fields ``question`` and ``setting`` are for people, ``question_id`` is for typing; ``base`` has the settings of the
    run that an alternative is compared with, and is absent from the base itself.
    """
    return [cell for question in _questions() for base in question["base"] for cell in _compared(question, base)]


def question_texts() -> dict[str, str]:
    """What each question is about, in a sentence or two, by its title."""
    return {question["title"]: question["text"] for question in _questions()}


def _questions() -> list[dict[str, Any]]:
    text = Path(__file__).with_name("choices.toml").read_text("utf-8")
    return list(tomllib.loads(text)["question"])


def _compared(question: dict[str, Any], base: dict[str, Any]) -> Iterator[Cell]:
    """A base and its alternatives, which have further overrides."""
    fields = {name: base[name] for name in ("dataset", "model", "method")}
    overrides = base.get("overrides", [])
    first = Cell(
        {
            "table": "choices",
            "question": question["title"],
            "question_id": question["id"],
            **fields,
            "setting": base["setting"],
            "overrides": overrides,
        }
    )
    yield first
    for other in base["alternative"]:
        changes = {"setting": other["setting"], "overrides": [*overrides, *other["overrides"]]}
        yield first.with_fields(**changes, base=first.run().settings)
