"""Looking at a sampler while a model trains, at how scores are distributed, and at a whole run: a report."""

from eans.inspection.analysis import Analyst, analyse_run
from eans.inspection.looking import Inspector, inspect_run, inspect_sampler, inspect_training
from eans.inspection.records import Inspection, Look, save, to_csv, to_json
from eans.inspection.report import report_run

__all__ = [
    "Analyst",
    "Inspection",
    "Inspector",
    "Look",
    "analyse_run",
    "inspect_run",
    "inspect_sampler",
    "inspect_training",
    "report_run",
    "save",
    "to_csv",
    "to_json",
]
