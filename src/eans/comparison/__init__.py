"""Compare methods on a graph: equal budgets, several seeds, differences with confidence intervals."""

from eans.comparison.comparing import compare
from eans.comparison.result import Comparison, Outcome, Pair
from eans.comparison.statistics import Estimate

__all__ = ["Comparison", "Estimate", "Outcome", "Pair", "compare"]
