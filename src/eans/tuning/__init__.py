"""The best model for a graph in a given time: methods are tried in short runs, and the best anew in longer ones."""

from eans.tuning.space import Space
from eans.tuning.tuning import tune

__all__ = ["Space", "tune"]
