"""What each kernel must move and compute, counted from its sizes: the floor that measured times are held against.

Bytes are counted twice. *Distinct* bytes are those of every array touched, once: what has to pass through the memory
of the device if the caches are perfect. *Gathered* bytes count a row each time a pair of (positive, candidate) needs
it: what the L2 cache or memory serves. Instructions are float32 issue slots; a multiply-add is one, and a square root
is eight, as there are an eighth as many units for it. Where both kinds are needed they overlap, so the larger counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from eans.kernels import Comparison

FLOAT, INDEX = 4, 8


class Cost(NamedTuple):
    """Distinct bytes, gathered bytes, float32 instructions."""

    distinct: int
    gathered: int
    instructions: int

    def floor_seconds(self, bandwidth: float, rate: float) -> float:
        """The least time at `bandwidth` bytes and `rate` instructions per second."""
        return max(self.distinct / bandwidth, self.instructions / rate)


@dataclass(frozen=True)
class Sizes:
    """One training step's comparison.

    Attributes:
        label: which recipe it comes from.
        kind: the comparison.
        count, batch, negatives: Q, B, N.
        dim: numbers of a row that are compared, D.
        stride: numbers of a row of the entity table.
        entities: rows of the table, E.
        sigma: standard deviation of the draw.
        shifted: candidates move (TransD).
        distinct: different entities that were drawn; 0 when it is not known, and then all count.
        answers: known answers of all queries of the batch.
    """

    label: str
    kind: Comparison
    count: int
    batch: int
    negatives: int
    dim: int
    stride: int
    entities: int
    sigma: float
    shifted: bool = False
    distinct: int = 0
    answers: int = 0

    @property
    def pairs(self) -> int:
        """B * N."""
        return self.batch * self.negatives

    @property
    def rows(self) -> int:
        """Rows of the table that a draw touches."""
        return self.distinct or self.entities

    @property
    def numbers(self) -> int:
        """Coordinates of a row: complex ones count once."""
        return self.dim // 2 if self.kind == "modulus" else self.dim

    @property
    def query_bytes(self) -> int:
        """Queries of the batch, and their shifts."""
        return self.count * self.batch * self.dim * FLOAT * (2 if self.shifted else 1)

    @property
    def uses(self) -> int:
        """Uses of rows of the table: by pairs, and by both ends of each positive."""
        return self.pairs + 2 * self.batch

    @property
    def pair_bytes(self) -> int:
        """Scores or their gradients (one of the query, one of all other queries), and the candidates."""
        return self.pairs * (min(self.count, 2) * FLOAT + INDEX)

    @property
    def scalar_bytes(self) -> int:
        """One number per entity drawn."""
        return self.rows * FLOAT if self.shifted else 0


# Per coordinate of a (query, candidate) pair. l1 forward: subtract, add the absolute value. Gradients: subtract, make a
# sign, multiply-add. modulus: the (reciprocal) square root outweighs the rest. dot: one multiply-add.
FORWARD: dict[Comparison, int] = {"dot": 1, "l1": 2, "modulus": 8}
GRADIENT: dict[Comparison, int] = {"dot": 1, "l1": 3, "modulus": 8}


def _instructions(sizes: Sizes, each: dict[Comparison, int], extra: int) -> int:
    """`extra` multiply-adds per coordinate where candidates move."""
    per_number = each[sizes.kind] + (extra if sizes.shifted else 0)
    return sizes.count * sizes.pairs * sizes.numbers * per_number


def forward(sizes: Sizes) -> Cost:
    """Scores of the query and mean scores of the others: each candidate's row is read once for all queries."""
    shared = sizes.query_bytes + sizes.pair_bytes + sizes.scalar_bytes
    row = sizes.dim * FLOAT
    return Cost(sizes.rows * row + shared, sizes.pairs * row + shared, _instructions(sizes, FORWARD, 1))


def query_gradient(sizes: Sizes) -> Cost:
    """Each candidate's row is read again; queries are read and their gradients written."""
    shared = 2 * sizes.query_bytes + sizes.pair_bytes + sizes.scalar_bytes
    row = sizes.dim * FLOAT
    return Cost(sizes.rows * row + shared, sizes.pairs * row + shared, _instructions(sizes, GRADIENT, 2))


def entity_gradient(sizes: Sizes) -> Cost:
    """The table is read and its gradient written; each pair reads its positive's queries (and shifts)."""
    table = 2 * sizes.entities * (sizes.dim + (1 if sizes.shifted else 0)) * FLOAT
    shared = table + sizes.pair_bytes + sizes.entities * INDEX
    per_pair = sizes.query_bytes // sizes.batch
    return Cost(shared + sizes.query_bytes, shared + sizes.pairs * per_pair, _instructions(sizes, GRADIENT, 2))


def sort(sizes: Sizes) -> Cost:
    """The id of each use read, an order written, and where each entity starts."""
    moved = 2 * sizes.uses * INDEX + sizes.entities * INDEX
    return Cost(moved, moved, 0)


# Per number of the table.
ADAM = 10


def update(sizes: Sizes) -> Cost:
    """The gradient of the candidates and Adam in one: parameters and moments read and written, the gradient never.

    Beside them the rows that were gathered for the positives, the order of all uses, and the line. Where candidates
    move, their gradient is read as a table instead, with one number for each entity.
    """
    numbers = sizes.entities * sizes.stride
    lines = sizes.entities * 2 * INDEX  # where each row's uses begin, and which row stands there
    shared = 6 * numbers * FLOAT + 2 * sizes.batch * (sizes.stride * FLOAT + INDEX) + lines
    if sizes.shifted:
        moved = shared + sizes.entities * (sizes.dim + 1) * FLOAT
        return Cost(moved, moved, ADAM * numbers)
    instructions = _instructions(sizes, GRADIENT, 0) + ADAM * numbers
    shared += sizes.pair_bytes
    per_pair = sizes.query_bytes // sizes.batch
    return Cost(shared + sizes.query_bytes, shared + sizes.pairs * per_pair, instructions)


def adam(sizes: Sizes) -> Cost:
    """Parameter, gradient and two moments read, all but the gradient written."""
    numbers = sizes.entities * sizes.stride
    return Cost(7 * numbers * FLOAT, 7 * numbers * FLOAT, ADAM * numbers)


def take(sizes: Sizes) -> Cost:
    """Row numbers and places of a batch read; triples and weights read and written."""
    moved = sizes.batch * (2 * INDEX + 2 * (3 * INDEX + FLOAT))
    return Cost(moved, moved, 0)


def step_along(sizes: Sizes) -> Cost:
    """Noise and the line read, candidates written."""
    shared = sizes.pairs * (FLOAT + INDEX) + sizes.batch * INDEX
    return Cost(shared + sizes.rows * INDEX, shared + sizes.pairs * INDEX, 0)


def label(sizes: Sizes) -> Cost:
    """Candidates and the known answers of the batch read, a byte written; each pair looks at one answer at least."""
    shared = sizes.pairs * (INDEX + 1) + sizes.batch * INDEX
    return Cost(shared + sizes.answers * INDEX, shared + sizes.pairs * INDEX, 0)


# Per pair, forwards and backwards: eight exponentials, logarithms and divisions.
LOSS = 8 * 8


def loss_terms(sizes: Sizes) -> Cost:
    """Two scores and a label of each pair read, two gradients written; the backward pass reads the scores again."""
    read, written = sizes.pairs * (2 * FLOAT + 1), sizes.pairs * 2 * FLOAT
    positives = sizes.batch * 3 * FLOAT
    return Cost(read + written + positives, 2 * read + written + positives, sizes.pairs * LOSS)


def rank_all(sizes: Sizes) -> Cost:
    """`compare_all` of `batch` queries with all entities."""
    arrays = sizes.entities * sizes.dim + sizes.batch * sizes.dim * (2 if sizes.shifted else 1)
    moved = (arrays + sizes.batch * sizes.entities + (sizes.entities if sizes.shifted else 0)) * FLOAT
    each = FORWARD[sizes.kind] + (1 if sizes.shifted else 0)
    return Cost(moved, moved, sizes.batch * sizes.entities * sizes.numbers * each)


def nearest(points: int, width: int, clusters: int) -> Cost:
    """Points and centroids read, a label and a distance written; one multiply-add per coordinate and centroid."""
    moved = (points + clusters) * width * FLOAT + points * (INDEX + FLOAT)
    return Cost(moved, moved, points * clusters * width)


def count_better(sizes: Sizes) -> Cost:
    """The scores of all entities read, and those of the known answers once more."""
    keys = sizes.batch * 3 * INDEX + sizes.answers * INDEX
    scores = sizes.batch * sizes.entities
    return Cost(scores * FLOAT + keys, (scores + sizes.answers) * FLOAT + keys, 3 * scores)


def group_means(points: int, width: int, clusters: int) -> Cost:
    """Points and their labels read, means and sizes written; one addition per number."""
    moved = (points + clusters) * width * FLOAT + (points + clusters) * INDEX
    return Cost(moved, moved, points * width)
