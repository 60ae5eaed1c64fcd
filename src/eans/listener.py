"""`Listener`: the callbacks of a run, for its display and for programs of one's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from eans.arguments import shown
from eans.errors import UsageError
from eans.graph import KnowledgeGraph
from eans.recipes import Recipe
from eans.training import Trainer


@dataclass
class Listener:
    """Callbacks for whoever watches a run; every part is optional.

    Attributes:
        start: called once with the resolved recipe, the graph and the trainer (a resumed one is not at step 0).
        log: receives each log record.
        tick: called with the number of completed steps after each step.
        ranking: called with (split, queries done, queries in all) while a split is ranked, also for a validation.
        stop: asked after each step; True saves the state and ends the run with `Interrupted`.
        phase: called with a name when something begins that takes long, such as ``"clustering"``, and with ``""``, or
            the name of what it was part of, when it ends.
    """

    start: Callable[[Recipe, KnowledgeGraph, Trainer], None] = field(default=lambda *_: None)
    log: Callable[[dict[str, Any]], None] = field(default=lambda _: None)
    tick: Callable[[int], None] = field(default=lambda _: None)
    ranking: Callable[[str, int, int], None] = field(default=lambda *_: None)
    stop: Callable[[], bool] = field(default=lambda: False)
    phase: Callable[[str], None] = field(default=lambda _: None)

    @classmethod
    def of(cls, listener: Listener | None) -> Listener:
        """`listener`, or one without callbacks for None.

        Raises:
            UsageError: for anything else.
        """
        if listener is not None and not isinstance(listener, cls):
            raise UsageError(f"listener must be an eans.Listener, got {shown(listener)}")
        return listener or cls()
