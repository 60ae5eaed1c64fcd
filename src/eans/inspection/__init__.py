"""Looking at a sampler while a model trains: how hard, how wrong, how varied and how dear its negatives are."""

from eans.inspection.looking import Inspector, inspect_run, inspect_sampler, inspect_training
from eans.inspection.records import Inspection, Look, save, to_csv, to_json

__all__ = [
    "Inspection",
    "Inspector",
    "Look",
    "inspect_run",
    "inspect_sampler",
    "inspect_training",
    "save",
    "to_csv",
    "to_json",
]
