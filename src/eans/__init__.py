"""Knowledge-graph embeddings with entity-aware negative sampling.

>>> import eans
>>> kg = eans.load("wordnet-core")       # bundled; or a folder, or "fb15k-237"
>>> run = eans.train(kg, model="rotate", sampler="eans+adv", steps=2000)
>>> run.metrics["test"]["both"]["mrr"]
>>> run.predict(head="...", relation="...", k=10)
"""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from eans._version import __version__

if TYPE_CHECKING:
    from eans.api import resume, train
    from eans.batch_prediction import ManyPredictions
    from eans.comparison import Comparison, compare
    from eans.data import datasets, load
    from eans.description import Description, describe
    from eans.errors import DataError, EansError, EansWarning, RunError, UsageError
    from eans.evaluation import Metrics, Ranks, evaluate, rank
    from eans.graph import KnowledgeGraph, TripleIndex, Vocabulary
    from eans.inspection import Inspection, Measurement, inspect_run, inspect_sampler
    from eans.inspection.reporting import report
    from eans.listener import Listener
    from eans.losses import LOSSES, Loss
    from eans.models import MODELS, Model
    from eans.objective import Objective
    from eans.penalties import PENALTIES, Term
    from eans.prediction import Prediction, Predictions, predict
    from eans.recipes import Recipe
    from eans.run import Run
    from eans.samplers import SAMPLERS, Sampler
    from eans.similarity import Similar
    from eans.splitting import split
    from eans.training import Trainer
    from eans.tuning import tune

# A thread of PyTorch's that waits for another one should sleep, not spin: where other programs use the cores too, the
# one it waits for may not get to run. Operations that are not worth waking threads for use one, see
# `eans.kernels.small_operations`. The variable is read when PyTorch is loaded.
if "torch" not in sys.modules:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Names are imported when first used, so that `import eans` and the command line start without loading PyTorch.
_HOMES = {
    "eans.api": ("resume", "train"),
    "eans.batch_prediction": ("ManyPredictions",),
    "eans.comparison": ("Comparison", "compare"),
    "eans.data": ("datasets", "load"),
    "eans.description": ("Description", "describe"),
    "eans.errors": ("DataError", "EansError", "EansWarning", "RunError", "UsageError"),
    "eans.evaluation": ("Metrics", "Ranks", "evaluate", "rank"),
    "eans.graph": ("KnowledgeGraph", "TripleIndex", "Vocabulary"),
    "eans.inspection": ("Inspection", "Measurement", "inspect_run", "inspect_sampler"),
    "eans.inspection.reporting": ("report",),
    "eans.listener": ("Listener",),
    "eans.losses": ("LOSSES", "Loss"),
    "eans.models": ("MODELS", "Model"),
    "eans.objective": ("Objective",),
    "eans.penalties": ("PENALTIES", "Term"),
    "eans.prediction": ("Prediction", "Predictions", "predict"),
    "eans.recipes": ("Recipe",),
    "eans.run": ("Run",),
    "eans.samplers": ("SAMPLERS", "Sampler"),
    "eans.similarity": ("Similar",),
    "eans.splitting": ("split",),
    "eans.training": ("Trainer",),
    "eans.tuning": ("tune",),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "LOSSES",
    "MODELS",
    "PENALTIES",
    "SAMPLERS",
    "Comparison",
    "DataError",
    "Description",
    "EansError",
    "EansWarning",
    "Inspection",
    "KnowledgeGraph",
    "Listener",
    "Loss",
    "ManyPredictions",
    "Measurement",
    "Metrics",
    "Model",
    "Objective",
    "Prediction",
    "Predictions",
    "Ranks",
    "Recipe",
    "Run",
    "RunError",
    "Sampler",
    "Similar",
    "Term",
    "Trainer",
    "TripleIndex",
    "UsageError",
    "Vocabulary",
    "__version__",
    "compare",
    "datasets",
    "describe",
    "evaluate",
    "inspect_run",
    "inspect_sampler",
    "load",
    "predict",
    "rank",
    "report",
    "resume",
    "split",
    "train",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'eans' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
