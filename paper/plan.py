"""What has to be run: the runs that the chosen tables and figures need, and what their records must have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eans.experiments import Experiment, Extra, Record, Watch
from paper.cells import Cell
from paper.selection import Selection

# What a record must have, besides metrics, for the tables and figures that show it.
NEEDS: dict[str, tuple[str, Callable[[Record], bool]]] = {
    "score-gap": ("analysis", lambda record: any(bool(one.get("logged")) for one in record.get("analysis", ()))),
    "negative-cdf": ("analysis", lambda record: any(one.get("cdf") for one in record.get("analysis", ()))),
    "substitution-histogram": (
        "analysis of substitution scores",
        lambda record: any("substitution" in one for one in record.get("analysis", ())),
    ),
    "order": ("order of entities", lambda record: bool(record.get("order"))),
}
OF_ONE_RUN = ("order",)  # drawn from the first seed alone


@dataclass(frozen=True)
class Study(Extra):
    """The experiments behind a selection.

    Attributes:
        uses: the tables and figures that need each, in the order in which to run them.
        analysed: by settings, the steps at which the scores of negatives are kept, for a table or a figure.
        questions: the ids of those that an experiment answers, of the table ``choices``.
    """

    uses: Mapping[Experiment, tuple[str, ...]]
    analysed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    questions: Mapping[Experiment, tuple[str, ...]] = field(default_factory=dict)

    def lacks(self, experiment: Experiment, record: Record) -> str:
        """Why a record does not serve the tables and figures that need it; nothing if it does."""
        uses = self.uses.get(experiment, ())
        absent = [what for name in uses if name in NEEDS for what, there in (NEEDS[name],) if not there(record)]
        kept = [name for table, name in (("score-gap", "logged"), ("negative-cdf", "cdf")) if table in uses]
        if kept:
            seen = {one["step"] for one in record.get("analysis", ()) if all(one.get(name) for name in kept)}
            # A step that the run does not come to would be missed for ever.
            analysed = self.analysed.get(experiment.settings, ())
            wanted = [step for step in analysed if step <= record.get("steps", step)]
            absent += [f"analysis at step {step:,}" for step in wanted if step not in seen]
        return f"its record has no {absent[0]}" if absent else ""

    def watch(self, experiment: Experiment, folder: Path) -> Watch | None:
        """Keeps scores at some steps."""
        analysed = self.analysed.get(experiment.settings, ())
        if not analysed:
            return None
        from paper.analysis import Watcher  # loads PyTorch

        return Watcher(folder, analysed)

    def purposes(self, experiment: Experiment) -> tuple[str, ...]:
        """The tables and figures that need it, with the questions that it answers: ``"choices (keep)"``."""
        questions = ", ".join(self.questions.get(experiment, ()))
        return tuple(f"{use} ({questions})" if use == "choices" and questions else use for use in self.uses[experiment])


def make_study(selection: Selection, cells: Sequence[Cell], seeds: int) -> Study:
    """Every experiment of the selection, once each, seed by seed.

    Args:
        selection: what was chosen.
        cells: all there are: a run that a table outside of the selection needs analysed is analysed too, and serves it
            later.
        seeds: 0 up to this number.
    """
    uses: dict[Experiment, dict[str, None]] = {}
    questions: dict[Experiment, dict[str, None]] = {}
    analysed: dict[str, set[int]] = {}
    for cell in cells:
        if cell.table == "score-gap":
            analysed.setdefault(cell.run().settings, set()).add(cell["step"])
    needed = [(cell, cell.table) for cell in selection.cells]
    needed += [(cell, figure) for figure in selection.figures for cell in selection.drawn[figure]]
    for seed in range(seeds):
        for cell, name in needed:
            if seed == 0 or name not in OF_ONE_RUN:
                uses.setdefault(cell.run(seed), {})[name] = None
            if cell.table == "choices":
                questions.setdefault(cell.run(seed), {})[cell["question_id"]] = None
    return Study(
        {experiment: tuple(names) for experiment, names in uses.items()},
        {settings: tuple(sorted(steps)) for settings, steps in analysed.items()},
        {experiment: tuple(ids) for experiment, ids in questions.items()},
    )
