"""A graph described before anything is trained on it: its structure, leakage, baselines, a recipe and what it costs."""

from eans.description.describing import Description, describe

__all__ = ["Description", "describe"]
