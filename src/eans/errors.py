"""Mistakes that a user can mend. Each carries one line that names the place and the fix; the command line prints
that line instead of a traceback.
"""

import difflib
from collections.abc import Iterable


class EansError(Exception):
    """Base of everything that is the input's fault rather than the program's."""


class UsageError(EansError):
    """A wrong option, key or name: the command line exits with status 2."""


class DataError(EansError):
    """A graph that cannot be read: wrong columns, missing file, failed download."""


class RunError(EansError):
    """A run that cannot go on: diverged, disk full, folder locked, checkpoint damaged."""


class Interrupted(RunError):
    """Somebody asked a run to stop; its state is saved. The command line exits with status 130, as shells expect."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest known word, or ``""`` when nothing is near."""
    options = list(known)
    near = difflib.get_close_matches(word, options, n=1, cutoff=0.6)
    if not near:  # difflib is case-sensitive; names that differ in case only are the commonest slip
        lowered = {option.lower(): option for option in options}
        near = [lowered[match] for match in difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.6)]
    return f"; did you mean '{near[0]}'?" if near else ""
