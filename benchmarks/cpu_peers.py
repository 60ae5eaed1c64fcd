"""What `benchmarks.cpu` compares with: PyKEEN through its own training loop, and a step as one writes it by hand."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from eans.batches import BatchStream
from eans.graph import HEAD, RELATION, TAIL, KnowledgeGraph

# Regularisers are left out on both sides, so that the same work is timed.
_UNREGULARISED = {"distmult", "complex"}


class Eager:
    """A training step in plain PyTorch with its ``[B, N, D]`` tensors: uniform negatives, self-adversarial weights.

    No false negative is labelled, which leaves less to do than in a step of this library.

    Args:
        graph: supplies batches and sizes.
        model: ``transe``, ``distmult`` or ``rotate``.
        queries: 1, or 3 to compare the negatives with two more translations of the positive entity, as EANS does.
    """

    def __init__(self, graph: KnowledgeGraph, model: str, dim: int, batch: int, negatives: int, queries: int) -> None:
        self.model, self.dim, self.negatives, self.queries = model, dim, negatives, queries
        self.num_entities = graph.num_entities
        self.entity = nn.Embedding(graph.num_entities, 2 * dim if model == "rotate" else dim)
        self.relation = nn.Embedding(graph.num_relations + 1, dim)
        for table in (self.entity, self.relation):
            nn.init.uniform_(table.weight, -0.01, 0.01)
        self.stream = BatchStream(graph, batch, seed=0)
        self.optimizer = torch.optim.Adam([self.entity.weight, self.relation.weight], lr=5e-5)
        self.completed = 0

    def _query(self, anchor: Tensor, relation: Tensor, sign: float) -> Tensor:
        if self.model == "transe":
            return anchor + sign * relation
        if self.model == "distmult":
            return anchor * relation
        real, imaginary = anchor.chunk(2, -1)
        angle = relation * (math.pi / 0.01)
        cos, sin = torch.cos(angle), sign * torch.sin(angle)
        return torch.cat([real * cos - imaginary * sin, real * sin + imaginary * cos], -1)

    def _score(self, query: Tensor, candidate: Tensor) -> Tensor:
        if self.model == "distmult":
            return (query * candidate).sum(-1)
        difference = query - candidate
        if self.model == "transe":
            return -difference.abs().sum(-1)
        real, imaginary = difference.chunk(2, -1)
        return -torch.sqrt(real**2 + imaginary**2 + 1e-12).sum(-1)

    def step(self) -> None:
        """Draw, score, loss, gradients, Adam."""
        triples, side, weight = self.stream[self.completed]
        known, missing, sign = (HEAD, TAIL, 1.0) if side == "tail" else (TAIL, HEAD, -1.0)
        drawn = torch.randint(self.num_entities, (len(triples), self.negatives))
        positive, candidates = self.entity(triples[:, missing]), self.entity(drawn)
        query = self._query(self.entity(triples[:, known]), self.relation(triples[:, RELATION]), sign)
        true_score, score = self._score(query, positive) + 9.0, self._score(query[:, None], candidates) + 9.0
        substitution = torch.zeros(())
        if self.queries == 3:
            extra = self.relation.weight[-1]
            ways = [self._score(self._query(positive, extra, s)[:, None], candidates) for s in (1.0, -1.0)]
            substitute = (ways[0] + ways[1]) / 2 + 9.0
            score = score - 0.1 * substitute
            substitution = 0.1 * substitute.abs().mean()
        weight = weight / weight.sum()
        share = torch.softmax(score.detach(), 1)
        loss = -(weight * (logsigmoid(true_score) + (share * logsigmoid(-score)).sum(1))).sum() / 2 + substitution
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.completed += 1


def _pykeen_model(graph: KnowledgeGraph, model: str, dim: int) -> tuple[Any, Any]:
    from pykeen.losses import NSSALoss
    from pykeen.models import model_resolver
    from pykeen.triples import CoreTriplesFactory

    factory = CoreTriplesFactory(graph.train, graph.num_entities, graph.num_relations)
    options: dict[str, Any] = {"embedding_dim": dim}
    if model == "transd":
        options["relation_dim"] = dim
    if model in _UNREGULARISED:
        options["regularizer"] = None
    loss = NSSALoss(margin=9.0, adversarial_temperature=1.0)
    return model_resolver.make(model, options, triples_factory=factory, loss=loss, random_seed=0), factory


def pykeen_steps(
    graph: KnowledgeGraph, model: str, dim: int, batch: int, negatives: int, warm: int, steps: int
) -> list[float]:
    """Seconds of each of PyKEEN's training steps after the first `warm`, its sampler and its optimizer included."""
    from pykeen.training import SLCWATrainingLoop, TrainingCallback

    class Enough(Exception):
        pass

    class Clock(TrainingCallback):  # type: ignore[misc]
        """Called once in every step, always at the same point of it."""

        def __init__(self) -> None:
            super().__init__()
            self.times: list[float] = []

        def post_batch(self, epoch: int, batch: Any, **kwargs: Any) -> None:
            del epoch, batch, kwargs
            self.times.append(time.perf_counter())
            if len(self.times) == warm + steps:
                raise Enough

    network, factory = _pykeen_model(graph, model, dim)
    loop = SLCWATrainingLoop(
        model=network,
        triples_factory=factory,
        optimizer=torch.optim.Adam(network.get_grad_params(), lr=5e-5),
        negative_sampler="basic",
        negative_sampler_kwargs={"num_negs_per_pos": negatives},
    )
    clock = Clock()
    with suppress(Enough):
        loop.train(factory, num_epochs=1, batch_size=batch, callbacks=clock, use_tqdm=False, pin_memory=False)
    moments = clock.times[warm - 1 :]
    return [after - before for before, after in pairwise(moments)]


def pykeen_ranking(graph: KnowledgeGraph, model: str, dim: int, triples: Tensor) -> float:
    """Seconds in which PyKEEN ranks `triples` ``[n, 3]`` on both sides, filtered."""
    from pykeen.evaluation import RankBasedEvaluator

    network, _ = _pykeen_model(graph, model, dim)
    network.eval()

    def evaluate(chosen: Tensor) -> None:
        RankBasedEvaluator(filtered=True).evaluate(
            network,
            chosen,
            additional_filter_triples=[graph.train, graph.valid, graph.test],
            use_tqdm=False,
        )

    evaluate(triples[:2])
    began = time.perf_counter()
    evaluate(triples)
    return time.perf_counter() - began
