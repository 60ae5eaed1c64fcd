"""What the functions of the package are called with, checked: the error says which argument is wrong, and why.

Nothing is imported that takes long: tensors are known by what they have.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from eans.errors import UsageError, did_you_mean

Choice = TypeVar("Choice", bound=str)
Callback = TypeVar("Callback")
LONGEST = 60  # characters of a value in a message


def choice(what: str, value: object, allowed: Sequence[Choice]) -> Choice:
    """`value` as one of the allowed texts."""
    for known in allowed:
        if isinstance(value, str) and value == known:
            return known
    raise UsageError(f"unknown {what} {shown(value)}{did_you_mean(value, allowed)} (one of {', '.join(allowed)})")


def whole(what: str, value: object, least: int = 0) -> int:
    """`value`, which may be a number of NumPy's or PyTorch's, as an int that is not less than `least`."""
    number = None
    if not isinstance(value, bool) and getattr(value, "shape", ()) == ():
        try:
            number = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            number = None
    if number is None:
        raise UsageError(f"{what} must be a whole number, got {shown(value)}")
    if number < least:
        raise UsageError(f"{what} must be at least {least}, got {shown(value)}")
    return number


def flag(what: str, value: object) -> bool:
    """`value`, which may be one of NumPy's or PyTorch's, as True or False."""
    scalar = getattr(value, "shape", None) == ()
    if isinstance(value, bool) or (scalar and str(getattr(value, "dtype", "")) in ("bool", "torch.bool")):
        return bool(value)
    raise UsageError(f"{what} must be True or False, got {shown(value)}")


def optional_text(what: str, value: object) -> str | None:
    """`value` as a text, or None."""
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{what} must be a text, got {shown(value)}")
    return value


def called(what: str, value: Callback | None) -> Callback | None:
    """`value`, which is a function that is told of something, or None."""
    if value is not None and not callable(value):
        raise UsageError(f"{what} must be a function or None, got {shown(value)}")
    return value


def several(what: str, value: object, of: str) -> list[Any]:
    """The things in `value`, of which a single text is none."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise UsageError(f"{what} must be a list of {of}, got {shown(value)}")
    try:
        return list(value)
    except TypeError as error:  # of a tensor or array without dimensions
        raise UsageError(f"{what} must be a list of {of}, got {shown(value)}") from error


def texts(what: str, value: object, of: str) -> list[str]:
    """The texts in `value`, of which a single one is none."""
    found = several(what, value, of)
    for text in found:
        if not isinstance(text, str):
            raise UsageError(f"{what} must be a list of {of}; {shown(text)} is not a text")
    return found


def shown(value: object) -> str:
    """A value for a message, in few characters: data type and shape of tensors and arrays, anything else as it is."""
    if getattr(value, "shape", ()) != ():
        return described(value)
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def described(value: object) -> str:
    """What a value is: data type and shape of tensors and arrays, the type of anything else."""
    shape = getattr(value, "shape", None)
    if shape is None or not hasattr(value, "dtype"):
        return type(value).__name__
    return f"{value.dtype} {list(shape)}"
