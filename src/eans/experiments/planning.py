"""Which experiments have to be run: those without a record that serves; and about how long they take."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eans import data
from eans.devices import choose_device, hardware_name
from eans.errors import UsageError
from eans.experiments.extras import Extra
from eans.experiments.records import Experiment, Record, RecordStore
from eans.experiments.running import recipe_hash, saved_step, to_the_end
from eans.graph import KnowledgeGraph
from eans.recipes import load
from eans.recipes.build import resolve


@dataclass(frozen=True)
class Planned:
    """An experiment of a plan.

    Attributes:
        experiment: what to run.
        record: it has one that serves; None if it has to be run.
        reason: why a record that is there does not serve.
        saved: the step from which it continues, if it was begun before.
    """

    experiment: Experiment
    record: Record | None
    reason: str = ""
    saved: int = 0


def plan(
    experiments: Iterable[Experiment], store: RecordStore, *, test: bool = True, extra: Extra | None = None
) -> list[Planned]:
    """Every experiment once, in their order, with its record if that serves.

    Args:
        experiments: what is wanted.
        store: where records are, and go.
        test: a record without test metrics does not serve.
        extra: what else a record must have.

    Raises:
        UsageError: an unknown recipe, key or graph, before anything is run; it names the experiment.
    """
    known = store.read()
    graphs: set[str] = set()
    found = []
    for experiment in dict.fromkeys(experiments):
        try:
            name = graph_name(experiment)
            if name not in graphs:
                data.sizes(name)
                graphs.add(name)
        except UsageError as error:
            raise UsageError(f"{experiment.settings}: {error}") from error
        record = known.get(experiment)
        reason = lacks(record, experiment, test, extra) if record is not None else ""
        if record is None or reason:
            found.append(Planned(experiment, None, reason, saved_step(experiment, store)))
        else:
            found.append(Planned(experiment, record))
    return found


def lacks(record: Record, experiment: Experiment, test: bool, extra: Extra | None) -> str:
    """Why a record does not serve, in words; nothing if it does."""
    if test and record.get("test") is None:
        return "its record has no test metrics"
    return extra.lacks(experiment, record) if extra is not None else ""


def graph_name(experiment: Experiment) -> str:
    """The graph that an experiment is about: a registered name or a folder."""
    return load(experiment.recipe, experiment.overrides, strict=False).data.name or data.bundled_name()


def hardware_of(device: str = "auto") -> str:
    """What records made here on this device will have as ``hardware``."""
    return hardware_name(choose_device(device))


class RecipeHashes:
    """What `recipe_hash` gives for experiments as recipes are now; graphs that are here are read once, on demand."""

    def __init__(self) -> None:
        self._graphs: dict[str, KnowledgeGraph | None] = {}
        self._known: dict[str, str] = {}

    def of(self, experiment: Experiment) -> str:
        """The hash; nothing where the graph is not on this machine."""
        settings = experiment.settings
        if settings not in self._known:
            name = graph_name(experiment)
            if name not in self._graphs:
                self._graphs[name] = data.load(name) if data.is_here(name) else None
            graph, recipe = self._graphs[name], to_the_end(load(experiment.recipe, experiment.overrides, strict=False))
            hashed = "" if graph is None else recipe_hash(resolve(recipe, graph), graph, experiment.overrides)
            self._known[settings] = hashed
        return self._known[settings]


def outdated(records: Iterable[Record]) -> list[Record]:
    """The records of recipes that have changed since, as far as the records and the graphs on this machine tell."""
    hashes = RecipeHashes()
    known = [record for record in records if record.get("recipe_hash")]
    return [record for record in known if hashes.of(record.experiment) not in ("", record["recipe_hash"])]


def estimate(planned: Planned, records: Mapping[Experiment, Record], hardware: str) -> float | None:
    """Seconds that an experiment takes if nothing else uses the device, from records on the same hardware.

    They must be of the same recipe; those with the same overrides count alone, if there are some. The seconds of runs
    that shared the device are divided by how many did. None where no record says anything.
    """
    experiment = planned.experiment
    recipe = to_the_end(load(experiment.recipe, experiment.overrides, strict=False))
    near = [
        record
        for other, record in records.items()
        if other.recipe == experiment.recipe and record["hardware"] == hardware and record.get("steps")
    ]
    same = [record for record in near if record.experiment.settings == experiment.settings]
    speeds = [record["seconds"] / (record.get("runs_at_a_time", 1) * record["steps"]) for record in same or near]
    if not speeds or recipe.train.steps == "auto":
        return None
    return float(statistics.median(speeds)) * max(0, recipe.train.steps - planned.saved)
