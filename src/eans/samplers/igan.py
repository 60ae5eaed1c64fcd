"""IGAN (Wang, Li & Pan, AAAI 2018): a perceptron gives every entity a probability to be the negative."""

from __future__ import annotations

import math
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from eans import kernels
from eans.errors import UsageError
from eans.graph import RELATION, KnowledgeGraph, column, opposite
from eans.options import Option
from eans.samplers.adversarial import Adversarial, draw_places, pick
from eans.types import Side, StepOutcome

# Tensors of the size [B, E] that exist at one time, drawing or learning.
COPIES = 4
MEGABYTE = 2**20


class Perceptron(nn.Module):
    """``logits = V relu(U [e | r] + a) + b`` over all entities.

    ``e`` is the generator's own row of the kept entity, ``r`` its row of the relation; a relation has one row for
    missing tails and one for missing heads. Rows start uniform in ``+-1``, weights in ``+-1 / sqrt(inputs)``.

    Args:
        num_entities, num_relations: E and R.
        width: w, of rows and hidden layer.
        generator: source of the initial values.
    """

    def __init__(self, num_entities: int, num_relations: int, width: int, generator: torch.Generator) -> None:
        super().__init__()
        self.num_relations = num_relations

        def uniform(bound: float, *shape: int) -> nn.Parameter:
            return nn.Parameter(nn.init.uniform_(torch.empty(*shape), -bound, bound, generator=generator))

        self.entity = uniform(1.0, num_entities, width)
        self.relation = uniform(1.0, 2 * num_relations, width)
        self.inner = uniform(1.0 / math.sqrt(2 * width), width, 2 * width)
        self.inner_bias = nn.Parameter(torch.zeros(width))
        self.outer = uniform(1.0 / math.sqrt(width), num_entities, width)
        self.outer_bias = nn.Parameter(torch.zeros(num_entities))

    def forward(self, triples: Tensor, side: Side) -> Tensor:
        """Logits of every entity in the `side` of triples ``[B, 3]``: ``[B, E]``."""
        relations = triples[:, RELATION] + (self.num_relations if side == "head" else 0)
        anchor = kernels.gather(self.entity, triples[:, column(opposite(side))])
        rows = torch.cat([anchor, kernels.gather(self.relation, relations)], 1)
        return linear(torch.relu(linear(rows, self.inner, self.inner_bias)), self.outer, self.outer_bias)


class IGAN(Adversarial):
    """Negatives from a softmax over all entities, given the kept entity and the relation.

    The reward of a draw is ``tanh(s_negative - s_positive)`` of the trained model's scores: bounded, whatever the
    model, and high where the negative is taken for the truth. In pre-training the generator learns to name the true
    entity.

    Working memory is ``16 B E`` bytes, four tensors of the size ``[B, E]``; batches that need more than
    `memory_limit_mb` are an error.

    Args:
        graph, negatives, options: see `Adversarial`.
        width: of the perceptron.
        memory_limit_mb: bound on the working memory.
        seed: fixes its initial weights.
    """

    policy: Perceptron
    knows_proposal = True

    def __init__(
        self,
        graph: KnowledgeGraph,
        negatives: int,
        width: Annotated[int, Option("width of the generator", ge=1)] = 50,
        memory_limit_mb: Annotated[
            int, Option("batches that would need more working memory are an error", ge=1)
        ] = 1024,
        seed: int = 0,
        **options: Any,
    ) -> None:
        seeded = torch.Generator().manual_seed(seed)
        policy = Perceptron(graph.num_entities, graph.num_relations, width, seeded)
        super().__init__(graph, negatives, policy, **options)
        self.memory_limit_mb = memory_limit_mb

    @property
    def row_numbers(self) -> int:
        return self.num_entities

    def working_memory_mb(self, batch_size: int) -> float:
        return COPIES * batch_size * self.num_entities * torch.float32.itemsize / MEGABYTE

    def choose(self, triples: Tensor, side: Side, generator: torch.Generator) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Draws ``[B, N]``, and no notes: the draws say all."""
        need = self.working_memory_mb(len(triples))
        if need > self.memory_limit_mb:
            raise UsageError(
                f"sampler 'igan' needs {math.ceil(need)} MB for {len(triples)} positives "
                f"and {self.num_entities} entities, but its memory_limit_mb is {self.memory_limit_mb:g}; raise it"
            )
        return draw_places(self.policy(triples, side), self.negatives, generator), ()

    def reward(self, outcome: StepOutcome) -> Tensor:
        return torch.tanh(outcome.scores.negative - outcome.scores.positive[:, None])

    def log_choice(self, triples: Tensor, side: Side, chosen: Tensor, notes: tuple[Tensor, ...]) -> Tensor:
        del notes
        return pick(torch.log_softmax(self.policy(triples, side), 1), chosen)

    def log_true(self, triples: Tensor, side: Side, notes: tuple[Tensor, ...]) -> Tensor:
        """Against all entities."""
        return self.log_choice(triples, side, triples[:, column(side), None], notes)[:, 0]

    @torch.no_grad()
    def log_density(self, triples: Tensor, side: Side, entities: Tensor) -> Tensor:
        uniform = torch.full(entities.shape, -math.log(self.num_entities), device=entities.device)
        return torch.where(self.playing, self.log_choice(triples, side, entities, ()), uniform)
