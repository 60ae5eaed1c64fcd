"""Mistakes that a user can mend. Each carries one line that names the place and the fix; the command line prints
that line instead of a traceback.
"""

import difflib
from collections.abc import Iterable

__all__ = ["DataError", "EansError", "EansWarning", "Interrupted", "RunError", "UsageError", "did_you_mean"]


class EansError(Exception):
    """Base of everything that is the input's fault rather than the program's."""

    def __str__(self) -> str:
        return printable(super().__str__())


class UsageError(EansError):
    """A wrong option, key or name: the command line exits with status 2."""


class DataError(EansError):
    """A graph that cannot be read: wrong columns, missing file, failed download."""


class RunError(EansError):
    """A run that cannot go on: diverged, disk full, folder locked, checkpoint damaged."""


class Interrupted(RunError):
    """Somebody asked a run to stop; its state is saved. The command line exits with status 130, as shells expect."""


class EansWarning(UserWarning):
    """Something that the user should know and that does not stop the work."""

    def __str__(self) -> str:
        return printable(super().__str__())


def printable(text: str) -> str:
    """`text` on one line: line breaks and other control characters, which a name may have, as Python escapes them."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest known word, or ``""`` when nothing is near."""
    if not isinstance(word, str):
        return ""
    options = list(known)
    lowered = {option.lower(): option for option in options}  # names that differ in case only are the commonest slip
    near = [lowered[word.lower()]] if word.lower() in lowered else []
    near = near or difflib.get_close_matches(word, options, n=1, cutoff=0.6)
    near = near or [lowered[match] for match in difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)]
    return f"; did you mean '{near[0]}'?" if near else ""
