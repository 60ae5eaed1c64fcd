"""Names of what takes long inside a step or before the first one: whoever does such work says so, for a display.

>>> with phase("clustering"):
...     labels, centroids = kmeans(...)

Nothing happens unless `told_to` has named a listener; then a phase costs two calls, and otherwise next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

COMPILING = "compiling kernels"

_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)
_name: ContextVar[str] = ContextVar("name", default="")


@contextmanager
def told_to(listener: Callable[[str], None]) -> Iterator[None]:
    """Call `listener` with the name of each phase that begins inside, and with that of the outer one, or ``""``, when
    it ends.
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Say that what happens inside is `name`."""
    listener = _listener.get()
    if listener is None:
        yield
        return
    outer = _name.get()
    token = _name.set(name)
    listener(name)
    try:
        yield
    finally:
        _name.reset(token)
        listener(outer)
