"""Entity-aware negatives (Je, EMNLP 2022): entities that resemble the positive one.

All entities stand in an ordering in which neighbours have similar embeddings (K-means clusters, chained greedily). A
negative is the entity a Gaussian step away from the positive one along that ordering (or at another place close by:
`eans.samplers.proposals`). The ordering is made anew every `reorder_every` steps from the embeddings as they are then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from eans.errors import UsageError
from eans.graph import KnowledgeGraph, column
from eans.options import Option
from eans.ordering import can_be_ordered, chain, kmeans, order
from eans.phases import phase
from eans.samplers.base import Sampler
from eans.samplers.proposals import Block, Gaussian, Proposal, ProposalName, Student
from eans.types import Side, StepOutcome

Inside = Literal["id", "inherited"]
PAPER_CLUSTERS = 100


def default_clusters(num_entities: int) -> int:
    """The paper's 100 clusters; fewer, ``sqrt(E)``, on graphs with less than 10,000 entities."""
    return max(1, min(PAPER_CLUSTERS, math.isqrt(num_entities)))


def default_sigma(num_entities: int, clusters: int) -> float:
    """The paper's ``2 |E| / k``: two clusters' worth of entities."""
    return 2.0 * num_entities / clusters


class EANS(Sampler):
    """A Gaussian over the ordering of entities.

    With v the virtual index of the positive entity, a candidate has the virtual index ``v + round(sigma z)``,
    ``z ~ N(0, 1)``, modulo E. The real entity is looked up in the table. Other proposals
    draw the virtual index in other ways.

    One ordering tears some neighbours apart. With several `orders`, each from a K-means with seeds of its own, every
    row of a batch draws along one of them, chosen at random.

    Args:
        graph, negatives, options: see `Sampler`.
        clusters: k of K-means; None for `default_clusters`.
        sigma: standard deviation in entities; None for `default_sigma`.
        reorder_every: steps between two orderings. The first follows the first step.
        order_epoch: a new ordering waits until a multiple of so many steps is done; 0: it takes effect at once. The
            paper's code behaves as with twice the batches of an epoch: its processes that draw receive an ordering when
            they begin their next one.
        warm_start: start K-means from the previous centroids; otherwise from fresh seeds each time.
        fit_points: of how many entities at most K-means finds the centroids, before it gives every entity its nearest
            one: a sample, where there are more, so that its passes cost the same at any number; 0: of all.
        inside: how entities stand inside a cluster: by ``"id"``, or ``"inherited"`` from the ordering before, as in the
            paper's code (if its sort is stable, which PyTorch does not promise). Clusters that are larger than sigma
            are then ordered by those of earlier clusterings.
        proposal: ``"gaussian"``; ``"block"``: uniform inside the block of the ordering that holds the positive entity;
            ``"student"``: Student's t instead of the Gaussian, with sigma as its scale.
        blocks: into how many equal blocks the ordering is cut; fewer where they would hold less than two entities.
        freedom: whole degrees of freedom of Student's t.
        orders: how many orderings there are, K. The tables are ``[E]`` for one and ``[K, E]`` for several.
    """

    knows_proposal = True
    virtual_to_real: Tensor
    real_to_virtual: Tensor
    next_line: Tensor
    centroids: Tensor
    places: Tensor

    def __init__(
        self,
        graph: KnowledgeGraph,
        negatives: int,
        clusters: Annotated[int | None, Option("k of K-means; auto: min(100, sqrt(|E|))", ge=1, auto=True)] = None,
        sigma: Annotated[
            float | None, Option("standard deviation in entities; auto: 2 |E| / k", gt=0, auto=True)
        ] = None,
        reorder_every: Annotated[int, Option("steps between two orderings", ge=1)] = 1000,
        order_epoch: Annotated[
            int, Option("a new order waits for a multiple of so many steps; 0: it takes effect at once", ge=0)
        ] = 0,
        warm_start: Annotated[bool, Option("start K-means from the previous centroids")] = True,
        fit_points: Annotated[
            int, Option("entities that K-means is fitted on at most, a sample if there are more; 0: all", ge=0)
        ] = 131_072,
        inside: Annotated[
            Inside, Option("how entities stand inside a cluster: by id, or as in the ordering before")
        ] = "id",
        proposal: Annotated[
            ProposalName,
            Option("how a place is drawn: around the positive, inside its block, or with heavy tails"),
        ] = "gaussian",
        blocks: Annotated[int, Option("block: equal blocks of the ordering, each of two entities or more", ge=1)] = 8,
        freedom: Annotated[int, Option("student: degrees of freedom", ge=1, le=100)] = 2,
        orders: Annotated[int, Option("orderings at once; each row draws along one", ge=1, le=64)] = 1,
        **options: Any,
    ) -> None:
        super().__init__(graph, negatives, **options)
        self.clusters = clusters if clusters is not None else default_clusters(graph.num_entities)
        if self.clusters > graph.num_entities:
            raise UsageError(
                f"sampler.clusters is {self.clusters}, but the graph has {graph.num_entities} entities; choose fewer"
            )
        self.sigma = sigma if sigma is not None else default_sigma(graph.num_entities, self.clusters)
        self.reorder_every = self.period = reorder_every
        self.order_epoch = order_epoch
        self.warm_start = warm_start
        self.fit_points = fit_points
        self.inside: Inside = inside
        # Alone in its block, a positive entity would have no negative.
        self.blocks = max(1, min(blocks, graph.num_entities // 2))
        self.freedom = freedom
        self.orders = orders
        self.proposal = self._proposal(proposal)
        identity = torch.arange(graph.num_entities)
        orderings = identity if orders == 1 else identity.repeat(orders, 1)
        self.register_buffer("virtual_to_real", orderings.clone())
        self.register_buffer("real_to_virtual", orderings.clone())
        if order_epoch:
            self.register_buffer("next_line", orderings.clone())
        if orders > 1:  # what a proposal looks up where its places are wanted, not their entities
            self.register_buffer("places", identity, persistent=False)
        # Empty until the first ordering; later orderings start K-means from the previous centroids.
        self.register_buffer("centroids", torch.empty(0, 0))

    @classmethod
    def automatic(cls, options: Mapping[str, Any], graph: KnowledgeGraph) -> dict[str, Any]:
        given, size = options["clusters"], graph.num_entities
        clusters = given if isinstance(given, int) else default_clusters(size)
        return {"clusters": clusters, "sigma": default_sigma(size, clusters)}

    def _proposal(self, name: ProposalName) -> Proposal:
        if name == "block":
            return Block(self.num_entities, self.blocks)
        if name == "student":
            return Student(self.num_entities, self.sigma, self.freedom)
        return Gaussian(self.num_entities, self.sigma)

    def memory(self) -> int:
        return sum(buffer.nbytes for buffer in self.buffers())

    def ordering(self) -> tuple[Tensor, Tensor]:
        if self.orders > 1:
            return self.virtual_to_real[0], self.real_to_virtual[0]
        return self.virtual_to_real, self.real_to_virtual

    def draw(self, triples: Tensor, side: Side, generator: torch.Generator) -> Tensor:
        positive = triples[:, column(side)]
        if self.orders == 1:
            start = self.real_to_virtual[positive]
            return self.proposal.draw(self.virtual_to_real, start, self.negatives, generator)
        which = torch.randint(self.orders, (len(triples),), generator=generator, device=triples.device)
        start = self.real_to_virtual[which, positive]
        places = self.proposal.draw(self.places, start, self.negatives, generator)
        return self.virtual_to_real[which[:, None], places]

    def log_density(self, triples: Tensor, side: Side, entities: Tensor) -> Tensor:
        """The mean over the orders of the probability of the candidates' places, as a logarithm: ``[B, N]``."""
        positive = triples[:, column(side)]
        tables = self.real_to_virtual.view(self.orders, -1)
        masses = [self.proposal.log_mass(table[positive], table[entities]) for table in tables]
        return torch.stack(masses).logsumexp(0) - math.log(self.orders) if self.orders > 1 else masses[0]

    def reorder(self, features: Tensor, generator: torch.Generator) -> None:
        """Make the orderings anew from entity features ``[E, F]``, to take effect at once or when `adopt` is called.

        Where training has diverged there is nothing to order: the old ones stay, and the trainer's guard ends the run.
        """
        if not can_be_ordered(features):
            return
        shape = (self.clusters, features.shape[1])
        usable = self.warm_start and self.centroids.shape[-2:] == shape
        warm = self.centroids.view(self.orders, *shape) if usable else [None] * self.orders
        latest = self.next_line if self.order_epoch else self.virtual_to_real
        orderings, found = [], []
        for start, ordering in zip(warm, latest.view(self.orders, -1), strict=True):
            labels, centroids = kmeans(features, self.clusters, generator, start, fit_points=self.fit_points)
            orderings.append(order(labels, chain(centroids), ordering if self.inside == "inherited" else None))
            found.append(centroids)
        self.centroids = torch.stack(found) if self.orders > 1 else found[0]
        if self.order_epoch:
            self.next_line.copy_(torch.stack(orderings).view_as(self.next_line))
        else:
            self.adopt(torch.stack(orderings))

    def adopt(self, orderings: Tensor) -> None:
        """Draw along these orderings ``[K, E]`` from now on. In place: a recorded step reads these very tensors."""
        self.virtual_to_real.copy_(orderings.view_as(self.virtual_to_real))
        places = torch.arange(self.num_entities, device=orderings.device).expand_as(orderings)
        self.real_to_virtual.view(self.orders, -1).scatter_(1, orderings, places)

    def observe(self, outcome: StepOutcome) -> None:
        if (outcome.step - 1) % self.reorder_every == 0:
            with phase("clustering"):
                self.reorder(outcome.model.entity_features(), outcome.generator)
        if self.order_epoch and outcome.step % self.order_epoch == 0:
            self.adopt(self.next_line.view(self.orders, -1))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # The centroids' shape depends on whether an ordering has happened.
        self.centroids = self.centroids.new_empty(state_dict[prefix + "centroids"].shape)
        super()._load_from_state_dict(state_dict, prefix, *args)
