"""Knowledge-graph embeddings with entity-aware negative sampling.

>>> import eans
>>> kg = eans.load("wordnet-core")       # bundled; or a folder, or "fb15k-237"
>>> run = eans.train(kg, model="rotate", sampler="eans+adv", steps=2000)
>>> run.metrics["test"]["both"]["mrr"]
>>> run.predict(head="...", relation="...", k=10)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from eans._version import __version__

if TYPE_CHECKING:
    from eans.api import Listener, Run, resume, train
    from eans.data import datasets, load
    from eans.errors import DataError, EansError, RunError, UsageError
    from eans.evaluation import Metrics, Ranks, evaluate, rank
    from eans.graph import KnowledgeGraph, TripleIndex, Vocabulary
    from eans.inspection import Inspection, Look, inspect_run, inspect_sampler, report_run
    from eans.losses import LOSSES
    from eans.models import MODELS, Model
    from eans.prediction import Prediction, Predictions, predict
    from eans.recipes import Recipe
    from eans.samplers import SAMPLERS, Sampler
    from eans.training import Trainer

# Names are imported when first used, so that `import eans` and the command line start without loading PyTorch.
_HOMES = {
    "eans.api": ("Listener", "Run", "resume", "train"),
    "eans.data": ("datasets", "load"),
    "eans.errors": ("DataError", "EansError", "RunError", "UsageError"),
    "eans.evaluation": ("Metrics", "Ranks", "evaluate", "rank"),
    "eans.graph": ("KnowledgeGraph", "TripleIndex", "Vocabulary"),
    "eans.inspection": ("Inspection", "Look", "inspect_run", "inspect_sampler", "report_run"),
    "eans.losses": ("LOSSES",),
    "eans.models": ("MODELS", "Model"),
    "eans.prediction": ("Prediction", "Predictions", "predict"),
    "eans.recipes": ("Recipe",),
    "eans.samplers": ("SAMPLERS", "Sampler"),
    "eans.training": ("Trainer",),
}
_MODULES = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "LOSSES",
    "MODELS",
    "SAMPLERS",
    "DataError",
    "EansError",
    "Inspection",
    "KnowledgeGraph",
    "Listener",
    "Look",
    "Metrics",
    "Model",
    "Prediction",
    "Predictions",
    "Ranks",
    "Recipe",
    "Run",
    "RunError",
    "Sampler",
    "Trainer",
    "TripleIndex",
    "UsageError",
    "Vocabulary",
    "__version__",
    "datasets",
    "evaluate",
    "inspect_run",
    "inspect_sampler",
    "load",
    "predict",
    "rank",
    "report_run",
    "resume",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'eans' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
