"""A graph described before anything is trained on it: structure, leakage, baselines, a recipe, its cost; plans."""

from eans.description.describing import Description, describe
from eans.description.planning import Plan, plan_for

__all__ = ["Description", "Plan", "describe", "plan_for"]
