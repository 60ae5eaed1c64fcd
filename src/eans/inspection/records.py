"""Measurements of a sampler: plain numbers, and how they are written to files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from eans.files import atomic_write, make_folder
from eans.recipes import Recipe


@dataclass(frozen=True)
class Measurement:
    """What a sampler did at one point of training. Shares are in 0..1; None where there was nothing to count.

    With ``s_i`` the score of a positive and ``s_ij`` that of its j-th negative, the first three are over negatives that
    the loss does not leave out, all others over all draws.

    Attributes:
        step: how many steps were complete.
        gap: mean of ``s_ij - s_i``; the closer to zero or above, the harder.
        above: share with ``s_ij > s_i``.
        idle: share with a negligible gradient: ``N |dL / ds_ij|`` below 0.01 of the most that a row's gradients can add
            up to (`Loss.gradient_bound`; None where the loss has none). For the log-sigmoid loss with equal shares that
            is ``sigmoid(s_ij + margin) < 0.01``; self-adversarial and softmax weights multiply it by N times the
            weight. With a hinge it is those that keep the margin.
        masked: share that the loss leaves out.
        known: share of false negatives: the training graph holds the triple. The positive itself counts.
        held_out: share of false negatives that only valid or test hold; training never learns which.
        entities: share of all entities that were drawn at least once.
        effective: ``exp(entropy) / E`` of the entities drawn: 1 if all are drawn equally often.
        repeats: share of draws that occur again later in their row.
        sampling_ms: drawing and labelling the negatives of one batch, by itself.
        step_ms: mean over the steps since the last measurement, including what the sampler learns; None at the start.
        memory: bytes of the sampler's state.
    """

    step: int
    gap: float | None
    above: float | None
    idle: float | None
    masked: float | None
    known: float | None
    held_out: float | None
    entities: float | None
    effective: float | None
    repeats: float | None
    sampling_ms: float
    step_ms: float | None
    memory: int


@dataclass(frozen=True, eq=False)
class Inspection:
    """The measurements of one sampler, in order.

    Attributes:
        name: the recipe or the run folder.
        recipe: resolved.
        graph: its name.
        device: where it ran.
        probe: for how many training triples negatives were drawn; twice N times as many draws.
        measurements: at least one.
    """

    name: str
    recipe: Recipe
    graph: str
    device: str
    probe: int
    measurements: tuple[Measurement, ...]

    def to_dict(self) -> dict[str, Any]:
        """Recipe, graph, device and every measurement, as plain values."""
        recipe = self.recipe
        return {
            "name": self.name,
            "graph": self.graph,
            "device": self.device,
            "model": recipe.model.name,
            "sampler": recipe.sampler.name,
            "loss": recipe.loss.name,
            "negatives": recipe.sampler.negatives,
            "batch_size": recipe.train.batch_size,
            "seed": recipe.train.seed,
            "probe": self.probe,
            "measurements": [asdict(measurement) for measurement in self.measurements],
        }


def to_json(inspections: Sequence[Inspection]) -> str:
    """All measurements as a JSON array, one object per inspection."""
    return json.dumps([inspection.to_dict() for inspection in inspections], indent=2)


def to_csv(inspections: Sequence[Inspection]) -> str:
    """One line per measurement, the inspection's name first; empty where there was nothing to count."""
    text = io.StringIO()
    names = [field.name for field in fields(Measurement)]
    writer = csv.DictWriter(text, ["name", *names], lineterminator="\n")
    writer.writeheader()
    for inspection in inspections:
        writer.writerows({"name": inspection.name, **asdict(measurement)} for measurement in inspection.measurements)
    return text.getvalue()


def save(inspections: Sequence[Inspection], folder: Path) -> None:
    """Write ``inspection.json`` and ``inspection.csv`` into a folder, each in one step."""
    make_folder(folder)
    atomic_write(folder / "inspection.json", (to_json(inspections) + "\n").encode())
    atomic_write(folder / "inspection.csv", to_csv(inspections).encode())


def short_names(names: Sequence[str]) -> list[str]:
    """What tells names apart: of ``a/b/c`` and ``a/b/d`` the last parts; all of each where that is not enough."""
    parts = [name.strip("/").split("/") for name in names]
    last = [part[-1] for part in parts]
    if len(names) > 1 and len({len(part) for part in parts}) == 1:
        differ = [place for place, found in enumerate(zip(*parts, strict=True)) if len(set(found)) > 1]
        last = ["/".join(part[place] for place in differ) or part[-1] for part in parts]
    return last if len(set(last)) == len(set(names)) else list(names)
