"""Many runs: plan them, run several at a time, survive an interruption, keep one record each, make a table of records.

>>> from eans.experiments import Experiment, RecordStore, run, table
>>> store = RecordStore("my-records")
>>> methods, seeds = ("uniform", "adv", "eans"), (0, 1)
>>> experiments = [Experiment(f"wordnet-core/transe/{m}", ("train.steps=2000",), s) for m in methods for s in seeds]
>>> records = run(experiments, store, workers=2)  # what has a record already is not run again
>>> print(table(records.values(), rows=("method",), columns=("valid.mrr", "test.mrr")))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from eans.experiments.checks import Fields, problem
from eans.experiments.extras import Extra, Watch
from eans.experiments.records import Experiment, Record, RecordStore, current_commit
from eans.experiments.tables import Mean, Table, table

if TYPE_CHECKING:
    from eans.experiments.display import run_with_display
    from eans.experiments.planning import Planned, RecipeHashes, estimate, hardware_of, outdated, plan
    from eans.experiments.pool import run
    from eans.experiments.ranks import KeepRanks, ranks_of
    from eans.experiments.running import describe, prepare, recipe_hash, run_experiment, to_the_end
    from eans.experiments.worker import Event

# What makes runs is imported when first used: records and tables load no PyTorch.
_HOMES = {
    "display": ("run_with_display",),
    "planning": ("Planned", "RecipeHashes", "estimate", "hardware_of", "outdated", "plan"),
    "pool": ("run",),
    "ranks": ("KeepRanks", "ranks_of"),
    "running": ("describe", "prepare", "recipe_hash", "run_experiment", "to_the_end"),
    "worker": ("Event",),
}
_MODULES = {name: f"eans.experiments.{home}" for home, names in _HOMES.items() for name in names}

__all__ = [
    "Event", "Experiment", "Extra", "Fields", "KeepRanks", "Mean", "Planned", "RecipeHashes", "Record",
    "RecordStore", "Table", "Watch", "current_commit", "describe", "estimate", "hardware_of", "outdated", "plan",
    "prepare", "problem", "ranks_of", "recipe_hash", "run", "run_experiment", "run_with_display", "table",
    "to_the_end",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'eans.experiments' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)
