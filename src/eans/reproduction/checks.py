"""Are the fields of a record, or of a published cell, what they should be? Asked once, when a file is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Kind(NamedTuple):
    """What a field may hold: in words, and as a test."""

    words: str
    holds: Callable[[Any], bool]


Kinds = Mapping[str, Kind]


def is_number(value: object) -> bool:
    """A finite number; true and false are none."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an integer that is larger than any float
        return False


def is_whole(value: object, least: int = 0) -> bool:
    """A whole number that is not too small."""
    return isinstance(value, int) and is_number(value) and value >= least


def list_of(kind: Kind, length: int | None = None, least: int = 0) -> Kind:
    """A list of things of one kind, of this length, or at least so long."""
    size = f" of {length}" if length else f" of {least} or more" if least else ""
    return Kind(
        f"a list{size}, each {kind.words}",
        lambda value: (
            isinstance(value, list)
            and all(map(kind.holds, value))
            and length in (None, len(value))
            and len(value) >= least
        ),
    )


TEXT = Kind("text", lambda value: isinstance(value, str))
TEXTS = Kind(
    "a table of texts", lambda value: isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
)
TRUTH = Kind("true or false", lambda value: isinstance(value, bool))
NUMBER = Kind("a number", is_number)
SHARE = Kind("a number from 0 to 1", lambda value: is_number(value) and 0 <= value <= 1)
FROM_ONE = Kind("a number from 1 on", lambda value: is_number(value) and value >= 1)
NUMBER_OR_NONE = Kind("a number or null", lambda value: value is None or is_number(value))
NUMBERS = list_of(NUMBER)
COUNT = Kind("a whole number", is_whole)
POSITIVE = Kind("a whole number from 1 on", lambda value: is_whole(value, 1))
SQUARE = Kind(
    "a square of numbers",
    lambda value: (
        isinstance(value, list)
        and len(value) > 0
        and all(NUMBERS.holds(row) and len(row) == len(value) for row in value)
    ),
)
OVERRIDES = list_of(Kind("key=value", lambda value: isinstance(value, str) and "=" in value))

# --- records ----------------------------------------------------------------------------------------------------------

RECORD: Kinds = {
    "recipe": TEXT,
    "overrides": OVERRIDES,
    "seed": COUNT,
    "hardware": TEXT,
    "seconds": NUMBER,
    **{f"test.both.{name}": kind for name, kind in (("mr", FROM_ONE), ("mrr", SHARE), ("hits@10", SHARE))},
    "protocol.ties": TEXT,
    "protocol.candidates": TEXT,
}
# What older records do not have, and not all runs need.
RECORD_MAY: Kinds = {
    "recipe_hash": TEXT,
    "commit": TEXT,
    "versions": TEXTS,
    "total_seconds": NUMBER,
    "runs_at_a_time": FROM_ONE,
    "valid.both.mrr": SHARE,
    "analysis": Kind("a list of tables", lambda value: isinstance(value, list)),
}
LOOK: Kinds = {"step": COUNT}
LOOK_MAY: Kinds = {
    "positive_score": NUMBER_OR_NONE,
    "negative_score": NUMBER_OR_NONE,
    "valid_score": NUMBER_OR_NONE,
    "cdf": Kind("a list of numbers or null", lambda value: value is None or NUMBERS.holds(value)),
}
LOGGED: Kinds = {"positive_score": NUMBER, "negative_score": NUMBER}
EDGES: Kinds = {"edges": list_of(NUMBER, least=2)}
GROUPS = ("true", "train", "held_out")  # of negatives in the histogram of substitution scores
ORDER: Kinds = {
    "entities": POSITIVE,
    "points": list_of(list_of(NUMBER, 3), least=1),
    "explained": list_of(NUMBER, 2),
    "similarity": SQUARE,
}
RUN_AS: Kinds = {"recipe": TEXT, "overrides": OVERRIDES}


def record_problem(content: object) -> str:
    """What keeps a JSON value from being a run record, in words; nothing if it is one."""
    found = problem(content, RECORD, RECORD_MAY)
    if found or not isinstance(content, dict):
        return found
    for place, look in enumerate(content.get("analysis", ())):
        found = found or look_problem(look, f"analysis.{place}")
    for name, kinds in (("order", ORDER), ("run_as", RUN_AS)):
        if not found and name in content:
            found = problem(content[name], kinds, {}, name)
    return found


def look_problem(look: object, where: str) -> str:
    """What is wrong with one look of an analysis."""
    found = problem(look, LOOK, LOOK_MAY, where)
    if found or not isinstance(look, dict):
        return found
    if look.get("logged") is not None:
        found = problem(look["logged"], LOGGED, {}, f"{where}.logged")
    if not found and "substitution" in look:
        histogram, where = look["substitution"], f"{where}.substitution"
        found = problem(histogram, EDGES, {}, where)
        found = found or problem(
            histogram, dict.fromkeys(GROUPS, list_of(NUMBER, len(histogram["edges"]) - 1)), {}, where
        )
    return found


# --- any table of fields ----------------------------------------------------------------------------------------------


def problem(content: object, must: Kinds, may: Kinds, where: str = "") -> str:
    """The first field that is missing or of another kind, in words; nothing if all are right.

    Args:
        content: should be a table; ``a.b`` is field b of its table a.
        must: fields that have to be there.
        may: fields that need not.
        where: the table's own place in the file.
    """
    if not isinstance(content, dict):
        return f"{f'field {where!r}' if where else 'it'} is {shown(content)}, not a table of fields"
    prefix = f"{where}." if where else ""
    for path, kind in {**must, **may}.items():
        value: Any = content
        for part in path.split("."):
            if not isinstance(value, dict):
                above = path.partition(f".{part}")[0]
                return f"field '{prefix}{above}' is {shown(value)}, not a table of fields"
            if part not in value:
                if path in must:
                    return f"field '{prefix}{path}' is missing"
                break
            value = value[part]
        else:
            if not kind.holds(value):
                return f"field '{prefix}{path}' is {shown(value)}, not {kind.words}"
    return ""


def shown(value: object) -> str:
    """A value, not too long."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
