"""Draw ``docs/explanation/figures/eans``: what EANS draws beside uniform negatives, on the bundled graph.

TransE is trained on ``wordnet-core`` by its recipe with EANS; the ordering is that of the end of training. Needs the
extra ``figures``, and a minute or two.

Usage::

    python -m scripts.eans_figure
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import torch

import eans
from eans.figures import COLOURS, figure, require_matplotlib
from eans.samplers.uniform import Uniform

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "explanation" / "figures"
TRIPLE = ("alps.n.01", "part_holonym", "france.n.01")
SHOWN = 8  # draws of each kind


class Found(NamedTuple):
    """What is drawn.

    Attributes:
        entities: how many there are.
        sigma: of the Gaussian, in entities.
        position: of the positive in the ordering.
        drawn: by name of the sampler, position and label of each draw, in the order of the positions.
    """

    entities: int
    sigma: float
    position: int
    drawn: dict[str, list[tuple[int, str]]]


def train() -> Found:
    """Train, and draw negatives for the tail of `TRIPLE`."""
    graph = eans.load("wordnet-core")
    trainers: list[eans.Trainer] = []
    listener = eans.Listener(start=lambda _recipe, _graph, trainer: trainers.append(trainer))
    recipe = "wordnet-core/transe/eans"
    eans.train(graph, recipe=recipe, device="cpu", listener=listener, test=False, progress=False, valid_every=0)
    sampler: Any = trainers[0].sampler
    positions = sampler.line()[1]
    drawn = {}
    for name, source in (("uniform", Uniform(graph, SHOWN)), ("EANS", sampler)):
        entities = source.draw(graph.ids([TRIPLE]), "tail", torch.Generator().manual_seed(0))[0, :SHOWN].tolist()
        labels = [graph.entities[entity].split(".")[0].replace("_", " ") for entity in entities]
        drawn[name] = sorted(zip(positions[entities].tolist(), labels, strict=True))
    positive = int(positions[graph.entities.id(TRIPLE[2])])
    return Found(graph.num_entities, float(sampler.sigma), positive, drawn)


def draw(found: Found, folder: Path = FOLDER) -> None:
    """Write the figure as SVG and PNG."""
    require_matplotlib()
    colours = {"uniform": COLOURS[1], "EANS": COLOURS[0]}
    with figure(8.0, 3.6, folder, "eans", "what EANS draws") as drawing:
        axis, names = drawing.subplots(2, 1, height_ratios=(4, 1))
        places = range(found.entities)
        peak = 1 / (found.sigma * math.sqrt(2 * math.pi))
        bell = [peak * math.exp(-0.5 * ((place - found.position) / found.sigma) ** 2) for place in places]
        axis.fill_between(places, bell, color=colours["EANS"], alpha=0.25, linewidth=0)
        axis.plot(places, bell, color=colours["EANS"])
        axis.axhline(1 / found.entities, color=colours["uniform"])
        for height, (name, draws) in zip((-0.05, -0.12), found.drawn.items(), strict=True):
            axis.plot([place for place, _ in draws], [height * peak] * SHOWN, "|", color=colours[name], ms=7, mew=1.6)
        axis.axvline(found.position, ymin=0.18, color="black", linewidth=0.8, linestyle=":")
        axis.annotate(
            "France, the positive\nof (Alps, part of, ?)", (found.position, 1.03 * peak), (-8, 0), ha="right", va="top",
            textcoords="offset points",
        )  # fmt: skip
        axis.text(found.position + 1.6 * found.sigma, 0.6 * peak, "EANS", color=colours["EANS"], weight="bold")
        axis.text(0, 0.06 * peak, "uniform", color=colours["uniform"], weight="bold")
        axis.set(xlim=(-60, found.entities + 60), ylim=(-0.19 * peak, 1.08 * peak))
        axis.set_yticks([])
        axis.set_ylabel("probability of a draw")
        axis.set_xlabel(f"all {found.entities:,} entities, ordered so that neighbours have similar embeddings")
        names.axis("off")
        for height, (name, draws) in zip((0.75, 0.1), found.drawn.items(), strict=True):
            style: Any = {"transform": names.transAxes, "in_layout": False}
            names.text(0.0, height, name, color=colours[name], weight="bold", **style)
            names.text(0.1, height, ", ".join(label for _, label in draws), **style)


if __name__ == "__main__":
    draw(train())
