"""What the numbers of `benchmarks.gpu` are meant to reach on one NVIDIA H200."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from benchmarks.speed_record import table

FB, WN = "fb15k-237/{}/eans+adv", "wn18rr/{}/eans+adv"


class Target(NamedTuple):
    """A number of the record, found by section, cell and key, times `scale`, and its limit."""

    name: str
    section: str
    cell: str
    key: str
    limit: float
    unit: str = "ms"
    scale: float = 1.0


TARGETS = (
    Target("TransE FB step", "steps", FB.format("transe"), "ms", 1.0),
    Target("RotatE FB step", "steps", FB.format("rotate"), "ms", 1.8),
    Target("ComplEx FB step", "steps", FB.format("complex"), "ms", 1.0),
    Target("DistMult FB step", "steps", FB.format("distmult"), "ms", 1.0),
    Target("TransD FB step", "steps", FB.format("transd"), "ms", 1.8),
    Target("RotatE WN step", "steps", WN.format("rotate"), "ms", 1.9),
    Target("ComplEx WN step", "steps", WN.format("complex"), "ms", 1.5),
    Target("TransE FB n=16 step", "steps", FB.format("transe") + " sampler.negatives=16", "ms", 0.35),
    Target("TransE FB re-order", "steps", FB.format("transe"), "reorder_ms", 20.0),
    Target("TransE FB peak memory", "steps", FB.format("transe"), "peak_bytes", 1.0, "GiB", 2.0**-30),
    *(
        Target(f"{model} FB ranking", "ranking", FB.format(model.lower()), "seconds", 500.0, "ms", 1e3)
        for model in ("TransE", "RotatE", "ComplEx", "DistMult", "TransD")
    ),
)


class Verdict(NamedTuple):
    """A target and what was measured."""

    target: Target
    measured: float

    @property
    def passed(self) -> bool:
        return self.measured <= self.target.limit


def judge(sections: Mapping[str, Any]) -> list[Verdict]:
    """Hold the sections of a record against the targets that they have numbers for."""
    found = []
    for target in TARGETS:
        cell = sections.get(target.section, {}).get("cells", {}).get(target.cell)
        if cell is not None:
            found.append(Verdict(target, cell[target.key] * target.scale))
    return found


def text(verdicts: list[Verdict]) -> str:
    """A table: measured, target, pass or miss."""
    rows = [
        [v.target.name, f"{v.measured:.3f}", f"{v.target.limit:g}", v.target.unit, "pass" if v.passed else "MISS"]
        for v in verdicts
    ]
    return table(["", "measured", "target", "unit", ""], rows)
