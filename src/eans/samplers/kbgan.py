"""KBGAN (Cai & Wang, NAACL 2018): a small model chooses the hardest of a few uniform candidates."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from eans.graph import KnowledgeGraph, Side, column
from eans.models import MODELS, Model
from eans.options import Option
from eans.samplers.adversarial import Adversarial, draw_places, pick

GeneratorModel = Literal["distmult", "complex"]


class KBGAN(Adversarial):
    """Negatives from ``softmax`` of a generator's scores over a pool of uniform candidates.

    For each positive C candidates are drawn uniformly from all entities; with G the generator's score, N of them are
    drawn with replacement, ``p(e) = exp G(e) / sum_{e' in pool} exp G(e')``. The reward of a draw is the score that the
    trained model gives it. In pre-training the generator tells the true entity from the pool.

    Args:
        graph, negatives, options: see `Adversarial`.
        pool: C.
        generator, width: the generator, a model of this library.
        seed: fixes its initial tables.
    """

    policy: Model

    def __init__(
        self,
        graph: KnowledgeGraph,
        negatives: int,
        pool: Annotated[int, Option("uniform candidates per positive that the generator chooses from", ge=1)] = 20,
        generator: Annotated[GeneratorModel, Option("the generator's model")] = "distmult",
        width: Annotated[int, Option("width of the generator", ge=1)] = 50,
        seed: int = 0,
        **options: Any,
    ) -> None:
        seeded = torch.Generator().manual_seed(seed)
        policy = MODELS[generator](graph.num_entities, graph.num_relations, width, generator=seeded)
        super().__init__(graph, negatives, policy, **options)
        self.pool = pool

    def choose(self, triples: Tensor, side: Side, generator: torch.Generator) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Draws ``[B, N]``; notes: the pool ``[B, C]`` and the places in it ``[B, N]``."""
        shape = len(triples), self.pool
        pool = torch.randint(self.num_entities, shape, generator=generator, device=triples.device)
        places = draw_places(self.policy.scores_of_candidates(triples, side, pool), self.negatives, generator)
        return pool.gather(1, places), (pool, places)

    def log_choice(self, triples: Tensor, side: Side, chosen: Tensor, notes: tuple[Tensor, ...]) -> Tensor:
        del chosen  # an entity may stand in the pool twice; the place says which of them it was
        pool, places = notes
        return pick(torch.log_softmax(self.policy.scores_of_candidates(triples, side, pool), 1), places)

    def log_true(self, triples: Tensor, side: Side, notes: tuple[Tensor, ...]) -> Tensor:
        """Against the pool: the true entity is one candidate more."""
        candidates = torch.cat([triples[:, column(side), None], notes[0]], 1)
        return torch.log_softmax(self.policy.scores_of_candidates(triples, side, candidates), 1)[:, 0]
