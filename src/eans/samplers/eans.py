"""Entity-aware negatives (Je, EMNLP 2022): entities that resemble the positive one.

All entities stand in a line in which neighbours have similar embeddings (K-means clusters, chained greedily). A
negative is the entity a Gaussian step away from the positive one along that line. The line is made anew every
`reorder_every` steps from the embeddings as they are then.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor

from eans import kernels
from eans.errors import UsageError
from eans.graph import KnowledgeGraph, Side, column
from eans.ordering import chain, kmeans, order
from eans.samplers.base import Sampler, StepOutcome

Boundary = Literal["wrap", "reflect"]
PAPER_CLUSTERS = 100


def default_clusters(num_entities: int) -> int:
    """The paper's 100 clusters; fewer, ``sqrt(E)``, on graphs with less than 10,000 entities."""
    return max(1, min(PAPER_CLUSTERS, math.isqrt(num_entities)))


def default_sigma(num_entities: int, clusters: int) -> float:
    """The paper's ``2 |E| / k``: two clusters' worth of entities."""
    return 2.0 * num_entities / clusters


class EANS(Sampler):
    """A Gaussian over the cluster-ordered entity line.

    With v the virtual index of the positive entity, a candidate has the virtual index ``v + round(sigma z)``,
    ``z ~ N(0, 1)``, folded into ``0..E-1`` at the ends. The real entity is looked up in the table.

    Args:
        graph, negatives, options: see `Sampler`.
        clusters: k of K-means; None for `default_clusters`.
        sigma: standard deviation in entities; None for `default_sigma`.
        reorder_every: steps between two orderings. The first follows the first step.
        boundary: ``"wrap"`` joins the two ends of the line, ``"reflect"`` mirrors at them.
        warm_start: start K-means from the previous centroids; otherwise from fresh seeds each time.
    """

    virtual_to_real: Tensor
    real_to_virtual: Tensor
    centroids: Tensor

    def __init__(
        self,
        graph: KnowledgeGraph,
        negatives: int,
        clusters: int | None = None,
        sigma: float | None = None,
        reorder_every: int = 1000,
        boundary: Boundary = "wrap",
        warm_start: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(graph, negatives, **options)
        self.clusters = clusters if clusters is not None else default_clusters(graph.num_entities)
        if self.clusters > graph.num_entities:
            raise UsageError(
                f"sampler.clusters is {self.clusters}, but the graph has {graph.num_entities} entities; choose fewer"
            )
        self.sigma = sigma if sigma is not None else default_sigma(graph.num_entities, self.clusters)
        self.reorder_every = reorder_every
        self.boundary: Boundary = boundary
        self.warm_start = warm_start
        identity = torch.arange(graph.num_entities)
        self.register_buffer("virtual_to_real", identity)
        self.register_buffer("real_to_virtual", identity.clone())
        # Empty until the first ordering; later orderings start K-means from the previous centroids.
        self.register_buffer("centroids", torch.empty(0, 0))

    def line(self) -> tuple[Tensor, Tensor]:
        return self.virtual_to_real, self.real_to_virtual

    def draw(self, triples: Tensor, side: Side, generator: torch.Generator) -> Tensor:
        positive = self.real_to_virtual[triples[:, column(side)]]
        noise = torch.randn(len(triples), self.negatives, generator=generator, device=triples.device)
        return kernels.step_along(self.virtual_to_real, positive, noise, self.sigma, self.boundary == "reflect")

    def reorder(self, features: Tensor, generator: torch.Generator) -> None:
        """Make the line anew from entity features ``[E, F]``.

        Where training has diverged there is nothing to order; the old line stays, and the trainer's guard ends the run.
        """
        if not bool(torch.isfinite(features.square().sum())):
            return
        usable = self.warm_start and self.centroids.shape == (self.clusters, features.shape[1])
        warm = self.centroids if usable else None
        labels, self.centroids = kmeans(features, self.clusters, generator, warm)
        # In place: a recorded step reads these very tensors.
        self.virtual_to_real.copy_(order(labels, chain(self.centroids)))
        self.real_to_virtual[self.virtual_to_real] = torch.arange(self.num_entities, device=features.device)

    def observe(self, outcome: StepOutcome) -> None:
        if (outcome.step - 1) % self.reorder_every == 0:
            self.reorder(outcome.model.entity_features(), outcome.generator)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # The centroids' shape depends on whether an ordering has happened.
        self.centroids = state_dict[prefix + "centroids"].to(self.virtual_to_real.device)
        super()._load_from_state_dict(state_dict, prefix, *args)
