"""Measures a sampler while a model trains and how scores are distributed, and reports on a whole run."""

from eans.inspection.analysis import Analyst, analyse_run
from eans.inspection.measuring import Inspector, inspect_run, inspect_sampler, inspect_training
from eans.inspection.records import Inspection, Measurement, save, to_csv, to_json
from eans.inspection.reporting import report

__all__ = [
    "Analyst",
    "Inspection",
    "Inspector",
    "Measurement",
    "analyse_run",
    "inspect_run",
    "inspect_sampler",
    "inspect_training",
    "report",
    "save",
    "to_csv",
    "to_json",
]
