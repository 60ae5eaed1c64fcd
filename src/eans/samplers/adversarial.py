"""Samplers that learn to draw: a generator proposes negatives, the trained model's scores are its reward.

The generator (here the *policy*) is a small network of its own. It is trained by REINFORCE in `observe`: with R the
reward of a draw, b a running mean of rewards and p the probability that the policy gave the draw,

``L = -mean((R - b) log p)``

over the draws that are not known to be true; those carry no reward. For the first `pretrain_steps` steps draws are
uniform, and the policy learns the graph by softmax cross-entropy instead, because a policy that starts from nothing
and is rewarded by a model that starts from nothing collapses.

A step may be recorded as a CUDA graph. So `sample` has no branch on the step: a flag on the device says which phase it
is. What `observe` must know of the draw travels in `Negatives.notes`, and nothing here waits for the device. Once the
policy plays and the first rewards have been averaged, `observe` is recorded too.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding
from torch.optim.adam import adam

from eans.graph import KnowledgeGraph
from eans.optimizer import Adam
from eans.options import Option
from eans.samplers.base import NO_CONTEXT, Draw, Sampler
from eans.types import Negatives, Side, StepOutcome

# Share of a step's mean reward in the running mean; the first steps count equally.
BASELINE_RATE = 0.01


def draw_places(logits: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Places drawn with replacement from ``softmax(logits)``: ``[B, K]`` -> int64 ``[B, count]``.

    By inverting the cumulative sum, which unlike `torch.multinomial` does not wait for the device.
    """
    cumulative = torch.softmax(logits, 1).cumsum(1)
    points = torch.rand(len(logits), count, generator=generator, device=logits.device) * cumulative[:, -1:]
    # A product that is rounded up to the whole sum would fall behind the last place.
    return torch.searchsorted(cumulative, points, right=True).clamp_(max=logits.shape[1] - 1)


def pick(values: Tensor, places: Tensor) -> Tensor:
    """``values[b, places[b, n]]``: ``[B, K]``, int64 ``[B, N]`` -> ``[B, N]``.

    As `gather`, but its gradient adds up repeated places in a fixed order on a GPU too: the same bits every time.
    """
    starts = torch.arange(len(values), device=values.device)[:, None] * values.shape[1]
    return embedding(starts + places, values.reshape(-1, 1)).squeeze(2)


class BufferedAdam(nn.Module):
    """Adam whose moments and step counts are buffers, and so part of a sampler's state.

    Args:
        parameters: what will be trained; only their shapes are kept.
        rate: learning rate.
        weight_decay: times each parameter, added to its gradient.
    """

    def __init__(self, parameters: list[nn.Parameter], rate: float, weight_decay: float) -> None:
        super().__init__()
        self.rate = rate
        self.weight_decay = weight_decay
        for index, parameter in enumerate(parameters):
            self.register_buffer(f"step_{index}", torch.zeros(()))
            self.register_buffer(f"average_{index}", torch.zeros_like(parameter))
            self.register_buffer(f"square_{index}", torch.zeros_like(parameter))

    @torch.no_grad()
    def step(self, parameters: list[nn.Parameter], gradients: list[Tensor]) -> None:
        """Change the parameters in place."""

        def buffers(name: str) -> list[Tensor]:
            return [self.get_buffer(f"{name}_{index}") for index in range(len(parameters))]

        adam(
            [parameter.data for parameter in parameters],
            gradients,
            buffers("average"),
            buffers("square"),
            [],
            buffers("step"),
            fused=True,
            amsgrad=False,
            beta1=Adam.betas[0],
            beta2=Adam.betas[1],
            lr=self.rate,
            weight_decay=self.weight_decay,
            eps=Adam.epsilon,
            maximize=False,
        )


class Adversarial(Sampler):
    """Base of samplers with a policy. A new one writes `choose`, `log_choice` and `log_true`.

    Args:
        graph, negatives, options: see `Sampler`.
        policy: the generator, with its initial tables.
        learning_rate, weight_decay: of the policy's Adam.
        pretrain_steps: so many steps draw uniformly and teach the policy the graph.
    """

    can_sort = False  # the policy must know its own draws again
    playing: Tensor
    baseline: Tensor

    def __init__(
        self,
        graph: KnowledgeGraph,
        negatives: int,
        policy: nn.Module,
        learning_rate: Annotated[float, Option("the generator's learning rate", gt=0)] = 1e-3,
        weight_decay: Annotated[float, Option("times each weight of the generator, added to its gradient", ge=0)] = 0.0,
        pretrain_steps: Annotated[
            int, Option("first steps with uniform negatives, in which the generator learns the graph", ge=0)
        ] = 1000,
        **options: Any,
    ) -> None:
        super().__init__(graph, negatives, **options)
        self.policy = policy
        self.pretrain_steps = pretrain_steps
        self.settled = max(pretrain_steps, math.ceil(1.0 / BASELINE_RATE))
        self.adam = BufferedAdam(list(policy.parameters()), learning_rate, weight_decay)
        self.register_buffer("playing", torch.tensor(pretrain_steps == 0))
        self.register_buffer("baseline", torch.zeros(()))

    @abstractmethod
    def choose(self, triples: Tensor, side: Side, generator: torch.Generator) -> tuple[Tensor, tuple[Tensor, ...]]:
        """What the policy draws, int64 ``[B, N]``, and what `log_choice` and `log_true` want to know about it."""

    @abstractmethod
    def log_choice(self, triples: Tensor, side: Side, chosen: Tensor, notes: tuple[Tensor, ...]) -> Tensor:
        """Log-probability of each draw of `choose`, with its history: ``[B, N]``."""

    @abstractmethod
    def log_true(self, triples: Tensor, side: Side, notes: tuple[Tensor, ...]) -> Tensor:
        """Log-probability of the true entity, with its history: ``[B]``."""

    def reward(self, outcome: StepOutcome) -> Tensor:
        """How good each negative was, ``[B, N]``: the score that the trained model gave it before its update."""
        return outcome.scores.negative

    def _in_phase(self, chosen: Tensor, triples: Tensor, generator: torch.Generator) -> Tensor:
        """The policy's draws ``[B, N]``, or uniform ones while it is pre-trained."""
        return torch.where(self.playing, chosen, self.uniform(triples, generator))

    @torch.no_grad()
    def draw(self, triples: Tensor, side: Side, generator: torch.Generator) -> Tensor:
        return self._in_phase(self.choose(triples, side, generator)[0], triples, generator)

    @torch.no_grad()
    def sample(
        self, triples: Tensor, side: Side, generator: torch.Generator, stream: AbstractContextManager[Any] = NO_CONTEXT
    ) -> Negatives:
        chosen, notes = self.choose(triples, side, generator)
        entities = self.mix(self._in_phase(chosen, triples, generator), triples, generator)
        return self.settle(entities, triples, side, generator, stream)._replace(notes=(chosen, *notes))

    def redraws(self, side: Side, generator: torch.Generator) -> list[tuple[int, Draw]]:
        # All rounds at once would take so many times the memory of the policy's scores.
        return [(1, draw) for rounds, draw in super().redraws(side, generator) for _ in range(rounds)]

    def observe(self, outcome: StepOutcome) -> None:
        """One step of the policy: cross-entropy while it is pre-trained, REINFORCE after that."""
        chosen, notes = outcome.negatives.notes[0], outcome.negatives.notes[1:]
        reward = self.reward(outcome)
        counted = ~outcome.negatives.known_true & torch.isfinite(reward)
        parameters = list(self.policy.parameters())
        with torch.enable_grad():
            if outcome.step <= self.pretrain_steps:
                loss = -self.log_true(outcome.triples, outcome.side, notes).mean()
            else:
                # Uniform draws that were mixed in, or drawn again for a false negative, were not the policy's choice.
                counted &= outcome.negatives.entities == chosen
                advantage = torch.where(counted, reward - self.baseline, 0.0)
                log_choice = self.log_choice(outcome.triples, outcome.side, chosen, notes)
                loss = -(advantage * log_choice).sum() / counted.sum().clamp(min=1)
            gradients = torch.autograd.grad(loss, parameters)
        self.adam.step(parameters, list(gradients))
        self._follow(reward, counted, outcome.step)
        self.playing.fill_(outcome.step >= self.pretrain_steps)
        self.steady = outcome.step >= self.settled

    def _follow(self, reward: Tensor, counted: Tensor, step: int) -> None:
        """Move the baseline towards the mean of the rewards ``[B, N]`` that count; in place, as is all state."""
        number = counted.sum()
        mean = torch.where(counted, reward, 0.0).sum() / number.clamp(min=1)
        moved = torch.lerp(self.baseline, mean, max(BASELINE_RATE, 1.0 / step))
        self.baseline.copy_(torch.where(number > 0, moved, self.baseline))
