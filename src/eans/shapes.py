"""What a value that was read from JSON has to hold before anything is taken from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NUMBER = (int, float)
WHOLE = "object with keys"  # where the value itself is of another kind


def lacking(found: object, shape: Any, place: str = "") -> str:
    """The first place in which a value is not of a shape, such as ``training.steps``; empty if it is.

    A shape is a type, several types, a list with the shape of all members, or a mapping from keys to the shapes of what
    they have: there may be more keys, and those that may be None may be missing.
    """
    if isinstance(shape, list) and isinstance(found, list):
        members = (lacking(member, shape[0], f"{place}[{number}]") for number, member in enumerate(found))
        return next(filter(None, members), "")
    shape = list if isinstance(shape, list) else shape
    if not isinstance(shape, Mapping):
        return "" if isinstance(found, shape) and not isinstance(found, bool) else place or WHOLE
    if not isinstance(found, dict):
        return place or WHOLE
    parts = (lacking(found.get(key), part, f"{place}.{key}" if place else key) for key, part in shape.items())
    return next(filter(None, parts), "")
