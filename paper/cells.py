"""A cell: one number, or one row of numbers, of a table, and the run that measures it.

Several cells may need the same run: the main table, the variances and the ablation share theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eans.experiments import Experiment

# Methods of the recipes by (sampler, self-adversarial weights).
METHODS = {
    ("uniform", False): "uniform",
    ("uniform", True): "adv",
    ("kbgan", False): "kbgan",
    ("nscaching", False): "nscaching",
    ("sans", False): "sans",
    ("sans", True): "sans+adv",
    ("eans", False): "eans",
    ("eans", True): "eans+adv",
}
# Methods by (Gaussian draws, substitution score): the halves of EANS.
HALVES = {(False, False): "uniform", (True, False): "gaussian", (False, True): "substitution", (True, True): "eans"}
# What a cell says was published, and how sure that is; all else says what was run.
VALUES = ("mr", "mrr", "hits10", "positive_score", "negative_score")
BEHIND = ("mrr_stderr", "hits10_stderr", "runs")


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        fields: what is known about it before any run, by name.
    """

    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def get(self, name: str, default: Any = None) -> Any:
        """A field, or the default where the cell has none of that name."""
        return self.fields.get(name, default)

    @property
    def table(self) -> str:
        """The table it stands in."""
        return str(self["table"])

    @property
    def method(self) -> str:
        """The method of the recipes that trains it; nothing if there is none, which no cell that was read has."""
        if "method" in self.fields:
            return str(self["method"])
        if "sampler" in self.fields:
            return METHODS.get((self["sampler"], self.get("self_adversarial", False)), "")
        return HALVES.get((self.get("gaussian"), self.get("substitution")), "")

    @property
    def values(self) -> dict[str, float]:
        """The published numbers."""
        return {name: float(self[name]) for name in VALUES if name in self.fields}

    def run(self, seed: int = 0) -> Experiment:
        """The run that measures it."""
        overrides = [str(override) for override in self.get("overrides", ())]
        if "negatives" in self.fields:
            overrides.append(f"sampler.negatives={self['negatives']}")
        return Experiment(f"{self['dataset']}/{self['model']}/{self.method}", tuple(overrides), seed)

    def with_fields(self, **changes: Any) -> Cell:
        """The same cell but for some fields."""
        return Cell({**self.fields, **changes})
