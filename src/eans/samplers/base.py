"""What a sampler is: it draws candidate entities and says which of them are known to be true.

Samplers live on the device beside the model. State that shapes training sits in buffers, and so in the checkpoint;
random numbers come from the generator that is handed in, keyed by seed and step, so a resumed run draws the same.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from eans import kernels
from eans.distributed import ALONE, World
from eans.errors import UsageError
from eans.graph import KnowledgeGraph
from eans.options import Option
from eans.types import Capability, Negatives, Side, StepOutcome

KnownTrue = Literal["exact", "repeats", "repeats-everywhere"]
FalseNegatives = Literal["mask", "resample", "keep"]
NO_CONTEXT: AbstractContextManager[Any] = nullcontext()
Draw = Callable[[Tensor], Tensor]  # candidates int64 [B, N] for triples [B, 3]


class Sampler(nn.Module, ABC):
    """Base of all samplers. A new one writes `draw`, and `observe` if it learns from the model.

    Args:
        graph: its training triples say what is known to be true.
        negatives: how many candidates per positive, N.
        known_true: how false negatives are labelled. ``"exact"``: the training graph holds the triple. ``"repeats"``:
            also, in rows with at least ``10 N**0.145`` known answers, every draw that occurs again later in its row;
            this is what the code behind the paper did, and its WN18RR results need it.
            ``"repeats-everywhere"``: the same in all rows.
        false_negatives: ``"mask"`` labels them, for the loss to leave out; ``"resample"`` draws again (a few rounds,
            the rest is labelled); ``"keep"`` labels nothing, so they train as negatives.
        uniform_share: probability that a draw is replaced by one uniform over all entities.

    Attributes:
        sorts: put the candidates of each positive in the order of their numbers, which some kernels gain by. They are
            the same, but for those that are drawn again.
    """

    resample_rounds: ClassVar[int] = 8  # of drawing known answers again
    draws: ClassVar[bool] = True  # are there negatives, of a number that the recipe says?
    all_entities: ClassVar[bool] = False  # are the negatives of every row all entities, in their order?
    knows_proposal: bool = False  # is the probability of each draw known: `log_density`?
    needs: ClassVar[tuple[Capability, ...]] = ()  # what the model must be able to do
    can_sort: ClassVar[bool] = True  # may `sample` put candidates in another order?
    # From now on `observe` does the same after every step, on the device alone, whatever its number: it is recorded
    # as part of the step.
    steady: bool = False
    # Is drawing independent of the model's rows, so that a process that has a part of them can draw for all?
    rows_free: ClassVar[bool] = False
    world: World = ALONE  # the processes that train together, each with a part of the rows
    orderings: int = 0  # how many `ordering` there have been besides the first
    memory_limit_mb: float = math.inf  # of `working_memory_mb`
    period: int = 0  # `observe` takes much longer once in so many steps, after the first of them; 0: never

    def __init__(
        self,
        graph: KnowledgeGraph,
        negatives: Annotated[
            int, Option("negatives per positive, n; 0 for the samplers none and all", ge=0, default=64)
        ],
        known_true: Annotated[
            KnownTrue,
            Option("which negatives are labelled false negatives; 'repeats' is what the paper's results used"),
        ] = "exact",
        false_negatives: Annotated[
            FalseNegatives, Option("mask them in the loss, draw again, or train on them as negatives")
        ] = "mask",
        uniform_share: Annotated[float, Option("share of uniform negatives mixed in", ge=0.0, le=1.0)] = 0.0,
    ) -> None:
        super().__init__()
        if negatives < 1 and self.draws:
            raise UsageError(
                f"sampler.negatives is {negatives}; set at least 1, or sampler.name 'none' to train without"
            )
        if false_negatives != "mask" and known_true != "exact":
            raise UsageError(f"sampler.known_true '{known_true}' needs sampler.false_negatives 'mask'")
        self.num_entities = graph.num_entities
        self.negatives = negatives
        self.known_true: KnownTrue = known_true
        self.false_negatives: FalseNegatives = false_negatives
        self.uniform_share = uniform_share
        if uniform_share == 1.0:
            self.knows_proposal = True
        self.known = graph.known_train
        self.sorts = False
        self.repeats_from = {"exact": None, "repeats": 10.0 * negatives**0.145, "repeats-everywhere": 0.0}[known_true]

    @classmethod
    def automatic(cls, options: Mapping[str, Any], graph: KnowledgeGraph) -> dict[str, Any]:
        """What the options of this class that may be ``"auto"`` then are on a graph."""
        del options, graph
        return {}

    @property
    def row_numbers(self) -> int:
        """Of each positive, how many numbers PyTorch works on at a time to draw its negatives."""
        return self.negatives

    def place(self, device: torch.device | str) -> None:
        """Move buffers and the index of known triples to `device`."""
        self.to(device)
        self.known = self.known.to(device)

    def ordering(self) -> tuple[Tensor, Tensor] | None:
        """An order of the entities in which those that are drawn together stand close, if the sampler has one.

        Kernels work along it, so that neighbours share what is in the cache. Returns the entity at each place and the
        place of each entity: int64 ``[E]`` each, which stay where they are.
        """
        return None

    def memory(self) -> int:
        """Bytes of the sampler's own state on the device."""
        return sum(value.nbytes for value in self.state_dict().values())

    def log_density(self, triples: Tensor, side: Side, entities: Tensor) -> Tensor:
        """Log-probability with which `draw` proposes each of the candidates ``[B, N]``: ``[B, N]``.

        Losses that correct for the proposal need it. For samplers that declare `knows_proposal`.
        """
        del triples, side, entities
        raise UsageError(f"sampler '{type(self).__name__.lower()}' does not know the probability of its draws")

    def log_proposal(self, triples: Tensor, side: Side, entities: Tensor) -> Tensor:
        """`log_density` with the share of uniform draws mixed in: ``[B, N]``."""
        share, level = self.uniform_share, -math.log(self.num_entities)
        if share == 1.0:
            return torch.full(entities.shape, level, device=entities.device)
        density = self.log_density(triples, side, entities)
        if share == 0.0:
            return density
        return torch.logaddexp(density + math.log1p(-share), torch.full_like(density, level + math.log(share)))

    def working_memory_mb(self, batch_size: int) -> float:
        """What drawing for a batch takes besides the negatives, where that is worth a limit (`memory_limit_mb`)."""
        del batch_size
        return 0.0

    @abstractmethod
    def draw(self, triples: Tensor, side: Side, generator: torch.Generator) -> Tensor:
        """Candidates for the `side` of each triple ``[B, 3]``: int64 ``[B, N]``."""

    def observe(self, outcome: StepOutcome) -> None:
        """Learn from a finished step. Called after every step; the sampler keeps its own cadence."""
        del outcome

    def require_ranks(self, size: int) -> None:
        """Raise `UsageError` for options with which so many processes cannot draw."""
        del size

    def uniform(self, triples: Tensor, generator: torch.Generator) -> Tensor:
        """Uniform candidates: int64 ``[B, N]``."""
        shape = (len(triples), self.negatives)
        return torch.randint(self.num_entities, shape, generator=generator, device=triples.device)

    def propose(self, triples: Tensor, side: Side, generator: torch.Generator) -> Tensor:
        """`draw`, with its share of uniform candidates mixed in: int64 ``[B, N]``."""
        return self.mix(self.draw(triples, side, generator), triples, generator)

    def mix(self, entities: Tensor, triples: Tensor, generator: torch.Generator) -> Tensor:
        """Replace a share of the candidates ``[B, N]`` by uniform ones."""
        if self.uniform_share > 0.0:
            swap = torch.rand(entities.shape, generator=generator, device=entities.device) < self.uniform_share
            entities = torch.where(swap, self.uniform(triples, generator), entities)
        return entities

    def sample(
        self, triples: Tensor, side: Side, generator: torch.Generator, stream: AbstractContextManager[Any] = NO_CONTEXT
    ) -> Negatives:
        """Draw candidates for the `side` of each triple ``[B, 3]`` and label the false negatives among them.

        The labels may be found on a side `stream` (`eans.kernels.side_stream`), while the caller goes on.
        """
        entities = self.propose(triples, side, generator)
        if self.sorts:
            entities = entities.sort(dim=1).values
        return self.settle(entities, triples, side, generator, stream)

    def settle(
        self,
        entities: Tensor,
        triples: Tensor,
        side: Side,
        generator: torch.Generator,
        stream: AbstractContextManager[Any] = NO_CONTEXT,
    ) -> Negatives:
        """The rest of `sample`: label the false negatives among proposed candidates ``[B, N]``, or draw them again."""
        if self.false_negatives == "keep":
            return Negatives(entities, torch.zeros_like(entities, dtype=torch.bool))
        if self.false_negatives == "resample":
            return Negatives(*self.draw_again(entities, triples, side, self.redraws(side, generator)))
        with stream:
            return Negatives(entities, self.label(triples, side, entities))

    def redraws(self, side: Side, generator: torch.Generator) -> list[tuple[int, Draw]]:
        """How known answers are drawn again: so many rounds by each of these, one after the other."""
        return [(self.resample_rounds, lambda triples: self.propose(triples, side, generator))]

    def draw_again(
        self, entities: Tensor, triples: Tensor, side: Side, draws: list[tuple[int, Draw]]
    ) -> tuple[Tensor, Tensor]:
        """Replace candidates ``[B, N]`` that are known answers by what `draws` give for their triples (see `redraws`).

        Returns the candidates, and which of them are known answers all the same. On a CPU only what has to be replaced
        is drawn. A GPU, which would have to be waited for to know, draws for all rows and rounds at once: 64 bytes per
        candidate for eight rounds.
        """
        keys, prefix = self.known.keys[side], self.known.prefix(triples, side)
        if not can_branch_on(entities):
            others = [draw(triples.repeat(count, 1)) for count, draw in draws]
            stacked = torch.cat(others) if len(others) > 1 else others[0]
            rounds = stacked.view(sum(count for count, _ in draws), *entities.shape)
            return kernels.redraw(keys, prefix, entities, rounds, self.num_entities)
        known = kernels.label(keys, prefix, entities, self.num_entities, None)
        row, place = known.nonzero(as_tuple=True)
        if not len(row):
            return entities, known
        entities = entities.clone()
        for draw in (draw for count, draw in draws for _ in range(count)):
            rows, among = torch.unique_consecutive(row, return_inverse=True)
            changed = draw(triples[rows])[among, place]
            again = kernels.label(keys, prefix[row], changed[:, None], self.num_entities, None)[:, 0]
            entities[row, place], known[row, place] = changed, again
            row, place = row[again], place[again]
            if not len(row):
                break
        return entities, known

    def label(self, triples: Tensor, side: Side, entities: Tensor) -> Tensor:
        """Which candidates ``[B, N]`` the rule `known_true` calls false negatives: bool ``[B, N]``."""
        known, prefix = self.known.keys[side], self.known.prefix(triples, side)
        return kernels.label(known, prefix, entities, self.num_entities, self.repeats_from)


def can_branch_on(tensor: Tensor) -> bool:
    """May the values of a tensor decide what to do next? A GPU would have to be waited for."""
    return tensor.device.type == "cpu"
