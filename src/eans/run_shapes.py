"""What the files of a run hold at least, so that nothing is missing where it is read; see `eans.shapes`."""

from __future__ import annotations

from types import NoneType
from typing import Any

from eans.evaluation import HITS
from eans.graph import SIDES, SPLITS
from eans.shapes import NUMBER

SCORES = dict.fromkeys(("mr", "mrr", *(f"hits@{k}" for k in HITS)), NUMBER)
SUMMARY = dict.fromkeys(("both", *SIDES), SCORES)
LOSSES = {"step": int, "loss": NUMBER, "seconds": NUMBER}
VALIDATION = {"step": int, "valid": SUMMARY, "seconds": NUMBER}
STEP = (int, NoneType)  # earlier versions do not say it
TRAINING = {"steps": int, "seconds": NUMBER, "device": str, "best_valid_step": STEP, "kept_step": STEP}
PROTOCOL = {"task": str, "filtered_against": [str], "candidates": str, "ties": str, "unseen_entities": str}
DEGREE = {"least": int, "most": (int, NoneType), "mrr": NUMBER}


def of_record(found: object) -> dict[str, Any]:
    """The shape of a record of the log: of a validation, or of losses."""
    return VALIDATION if isinstance(found, dict) and "valid" in found else LOSSES


def of_metrics(found: object) -> dict[str, Any]:
    """The shape of metrics, with what they have of all that they may have."""
    given = found if isinstance(found, dict) else {}
    return {"training": TRAINING, "protocol": PROTOCOL} | {
        split: _of_split(given[split]) for split in SPLITS if split in given
    }


def _of_split(found: object) -> dict[str, Any]:
    given = found if isinstance(found, dict) else {}
    names = given.get("baselines", {})
    baselines = {name: {"both": SCORES} for name in names} if isinstance(names, dict) else dict
    more = {"baselines": baselines, "by_degree": [DEGREE]}
    return SUMMARY | {key: shape for key, shape in more.items() if key in given}
