"""Filtered link-prediction ranking over all entities and all triples of a split, and the metrics made from it.

Protocol: for each triple and each side, every entity is a candidate; other candidates that form a known triple (train,
valid or test) are left out; entities that train never saw stay in. How they are counted: `eans.ranking`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from eans import kernels
from eans._version import __version__
from eans.arguments import choice, described, several, whole
from eans.baselines import BASELINES
from eans.baselines import PER_ENTITY as PER_BASELINE
from eans.distributed import ShardedTable
from eans.errors import RunError, UsageError
from eans.graph import HEAD, RELATION, SIDES, SPLITS, TAIL, KnowledgeGraph, Side, Split, TripleIndex, column
from eans.models import Model
from eans.models.arguments import require_graph
from eans.models.base import Scorer
from eans.progress import Told, of_one, one_of, shown
from eans.ranking import DEFAULT_MEMORY, Asked, Cost, Tiling, count
from eans.sharded_ranking import PartRanking

Ties = Literal["realistic", "optimistic", "pessimistic"]
TIES: tuple[Ties, ...] = ("realistic", "optimistic", "pessimistic")
HITS = (1, 3, 10)
# Of triples ``[B, 3]`` on the CPU and a side: the candidates that beat or tie the truth.
Counter = Callable[[Tensor, Side], kernels.Counts]
CATEGORIES = ("1-1", "1-N", "N-1", "N-N", "unseen")
# By how many training triples an answer has: from each of these numbers up to the next.
DEGREES = (0, 1, 4, 16, 64, 256, 1024, 4096)


@dataclass(frozen=True)
class Metrics:
    """Averages over ranks: mean rank, mean reciprocal rank, share of ranks at most k."""

    count: int
    mr: float
    mrr: float
    hits: Mapping[int, float]

    @classmethod
    def of(cls, ranks: Tensor) -> Metrics:
        """Metrics of ranks ``[n]``; all zero for n = 0."""
        if not isinstance(ranks, Tensor) or ranks.dim() != 1:
            raise UsageError(f"ranks must be a tensor of shape [n], got {described(ranks)}")
        ranks = ranks.double()
        if not len(ranks):
            return cls(0, 0.0, 0.0, dict.fromkeys(HITS, 0.0))
        hits = {k: (ranks <= k).double().mean().item() for k in HITS}
        return cls(len(ranks), ranks.mean().item(), ranks.reciprocal().mean().item(), hits)

    def to_dict(self) -> dict[str, float]:
        """``{"mr", "mrr", "hits@1", "hits@3", "hits@10"}``."""
        return {"mr": self.mr, "mrr": self.mrr, **{f"hits@{k}": value for k, value in self.hits.items()}}


@dataclass(frozen=True)
class Ranks:
    """How many candidates beat or tie the truth, for each triple and side.

    Attributes:
        graph, split: what was ranked.
        triples: int64 ``[n, 3]``.
        greater, equal: per side, int64 ``[n]``: candidates scored higher than, and exactly like, the true entity.
    """

    graph: KnowledgeGraph
    split: Split
    triples: Tensor
    greater: Mapping[Side, Tensor]
    equal: Mapping[Side, Tensor]

    def ranks(self, side: Side, ties: Ties = "realistic") -> Tensor:
        """Ranks from 1, float64 ``[n]``. Ties: best place, worst place, or the mean of both (realistic)."""
        column(side)  # says so if it is no side
        share = {"optimistic": 0.0, "realistic": 0.5, "pessimistic": 1.0}[choice("ties", ties, TIES)]
        return 1.0 + self.greater[side].double() + share * self.equal[side].double()

    def summary(self, ties: Ties = "realistic", rows: Tensor | None = None) -> dict[str, dict[str, float]]:
        """Metrics of both sides together and of each, over all triples or those that the mask ``[n]`` selects."""
        if rows is not None and (not isinstance(rows, Tensor) or rows.shape != self.triples.shape[:1]):
            raise UsageError(f"rows must be a mask of shape [{len(self.triples)}], got {described(rows)}")
        return _summary({side: self.ranks(side, ties) for side in SIDES}, rows)

    def metrics(self, ties: Ties = "realistic") -> dict[str, Any]:
        """Everything that is reported: both sides, each side, by relation, by its category, by degree of the answer."""
        sides = {side: self.ranks(side, ties) for side in SIDES}
        relations = self.triples[:, RELATION]
        result: dict[str, Any] = {"triples": len(self.triples), **_summary(sides)}
        result["by_relation"] = {
            self.graph.relations[relation]: {"triples": len(rows)}
            | Metrics.of(torch.cat([sides[side][rows] for side in SIDES])).to_dict()
            for relation, rows in _by_value(relations)
        }
        result["by_category"] = {
            CATEGORIES[index]: {"triples": len(rows), **_summary(sides, rows)}
            for index, rows in _by_value(relation_categories(self.graph)[relations])
        }
        result["by_degree"] = self._by_degree(sides)
        return result

    def _by_degree(self, sides: Mapping[Side, Tensor]) -> list[dict[str, Any]]:
        """Metrics of the queries whose answers have from `least` to `most` training triples, by degree ascending."""
        degree = torch.bincount(self.graph.train[:, [HEAD, TAIL]].flatten(), minlength=self.graph.num_entities)
        ranks = torch.cat([sides[side] for side in SIDES])
        answers = torch.cat([self.triples[:, column(side)] for side in SIDES])
        groups = torch.searchsorted(torch.tensor(DEGREES), degree[answers], right=True) - 1
        ends = [*(start - 1 for start in DEGREES[1:]), None]
        return [
            {"least": DEGREES[group], "most": ends[group], "queries": len(rows)} | Metrics.of(ranks[rows]).to_dict()
            for group, rows in _by_value(groups)
        ]


def _summary(sides: Mapping[Side, Tensor], rows: Tensor | None = None) -> dict[str, dict[str, float]]:
    """Metrics of both sides' ranks ``[n]`` together and of each; `rows` is a mask or a list of rows."""
    if rows is not None:
        sides = {side: ranks[rows] for side, ranks in sides.items()}
    return {
        "both": Metrics.of(torch.cat(list(sides.values()))).to_dict(),
        **{side: Metrics.of(values).to_dict() for side, values in sides.items()},
    }


def _by_value(values: Tensor) -> Iterator[tuple[int, Tensor]]:
    """Each value of ``[n]``, ascending, with the rows that have it, ascending: one sort instead of a pass for each."""
    ordered, rows = torch.sort(values, stable=True)
    distinct, counts = torch.unique_consecutive(ordered, return_counts=True)
    yield from zip(distinct.tolist(), torch.split(rows, counts.tolist()), strict=True)


def relation_categories(graph: KnowledgeGraph) -> Tensor:
    """Index into `CATEGORIES` for each relation, int64 ``[R]``.

    A side counts as "N" when train has on average at least 1.5 different entities there per entity on the other side
    (Bordes et al., 2013).
    """
    answers = answers_per_query(graph)
    category = (answers["tail"] >= 1.5).long() + 2 * (answers["head"] >= 1.5).long()
    return torch.where(answers["tail"] == 0, CATEGORIES.index("unseen"), category)


def answers_per_query(graph: KnowledgeGraph) -> dict[Side, Tensor]:
    """For each side, how many different entities train has there on average per entity on the other side, ``[R]``."""
    size = graph.num_relations
    # Keys of different triples, sorted: without the answer they are (anchor, relation) pairs, equal ones side by side.
    pairs = {side: graph.known_train.pairs(side) for side in SIDES}
    count = torch.bincount(pairs["tail"] % size, minlength=size)
    asked = {side: torch.bincount(torch.unique_consecutive(pairs[side]) % size, minlength=size) for side in SIDES}
    return {side: count / asked[side].clamp(min=1) for side in SIDES}


def rank(
    model: Model,
    graph: KnowledgeGraph,
    split: Split = "test",
    *,
    limit: int = 0,
    memory: int = DEFAULT_MEMORY,
    progress: bool | Told = False,
    table: ShardedTable | None = None,
) -> Ranks:
    """Rank the true entity of each triple among all entities, on both sides.

    Args:
        model: on any device; the work is done there.
        graph: supplies the triples and the filter.
        split: which triples to rank.
        limit: rank only this many triples, spread evenly over the split; 0 for all.
        memory: bound in bytes on the working memory, whatever the number of entities. The scores of one query with
            a few thousand entities are the least it can do.
        progress: what to call with (queries done, queries in all); or True or False, as for `evaluate`.
        table: of this rank, where several have the rows of the model in parts; each calls this, and has the result.
    """
    require_graph(model, graph)
    if not isinstance(table, ShardedTable | None):
        raise UsageError(f"table must be of type ShardedTable or None, got {described(table)}")
    limit, memory, device = whole("limit", limit), whole("memory", memory), model.entity.device
    known = graph.known.to(device)
    with shown(of_one(progress), "ranking ") as report:
        told = one_of(report, choice("split", split, SPLITS))
        if table is not None:
            parts = PartRanking(model, table, known, memory)
            return _rank(parts.count, parts.rows, graph, split, limit, device, told)
        tiling = Tiling.of(memory, Cost.of(model), range(model.num_entities), device)
        return _rank(_counter(model.scorer, known, tiling), tiling.rows, graph, split, limit, device, told)


def _counter(scorer: Callable[[Tensor, Side], Scorer], known: TripleIndex, tiling: Tiling) -> Counter:
    """Counts by anything that makes a scorer of triples ``[B, 3]`` and a side."""

    def counter(triples: Tensor, side: Side) -> kernels.Counts:
        asked = Asked.of(triples, side, known)
        return count(scorer(asked.triples, side), asked, tiling.tiles)

    return counter


def _rank(
    counter: Counter,
    rows: int,
    graph: KnowledgeGraph,
    split: Split,
    limit: int,
    device: torch.device,
    progress: Told | None,
) -> Ranks:
    """`rank` by what counts candidates that beat or tie the true ones; so many `rows` at a time."""
    triples = graph.split(split)
    if limit and limit < len(triples):
        triples = triples[torch.linspace(0, len(triples) - 1, limit, dtype=torch.float64).long()]
    # Made before the scores: between those of two blocks, what stays would keep the space of the first from the second.
    counts = {side: kernels.Counts(*torch.empty(3, len(triples), dtype=torch.int64, device=device)) for side in SIDES}
    done = 0
    for side in SIDES:
        for start, batch in enumerate(torch.split(triples, rows)):
            found = counter(batch, side)
            for whole_split, part in zip(counts[side], found, strict=True):
                whole_split[start * rows :][: len(batch)] = part
            done += len(batch)
            # Looking at a result waits for the device. The first block shows early whether a model is of any use.
            if progress is not None or done == len(batch):
                _require_no_nan(found)
            if progress is not None and done:
                progress(done, 2 * len(triples))
        counts[side] = kernels.Counts(*(part.cpu() for part in counts[side]))
        _require_no_nan(counts[side])
    greater = {side: counts[side].greater for side in SIDES}
    return Ranks(graph, split, triples, greater, {side: counts[side].equal for side in SIDES})


_BASELINES: WeakKeyDictionary[KnowledgeGraph, dict[Any, dict[str, Any]]] = WeakKeyDictionary()


def baselines(
    graph: KnowledgeGraph,
    split: Split = "test",
    *,
    ties: Ties = "realistic",
    limit: int = 0,
    memory: int = DEFAULT_MEMORY,
    device: torch.device | str = "cpu",
) -> dict[str, dict[str, dict[str, float]]]:
    """Metrics of what needs no model, ranked like a model: by name of `BASELINES`, of both sides and of each.

    Args:
        graph, split, ties, limit, memory: see `evaluate`.
        device: where it is done; the result is kept with the graph, and does not depend on it.
    """
    kept = _BASELINES.setdefault(graph, {})
    if (split, ties, limit) not in kept:
        place = torch.device(device)
        tiling = Tiling.of(memory, Cost(0, 8 * PER_BASELINE), range(graph.num_entities), place)
        kept[split, ties, limit] = {
            name: _rank(
                _counter(make(graph, place).scorer, graph.known.to(place), tiling),
                tiling.rows,
                graph,
                split,
                limit,
                place,
                None,
            ).summary(ties)
            for name, make in BASELINES.items()
        }
    return kept[split, ties, limit]


def _require_no_nan(counts: kernels.Counts) -> None:
    if bool(counts.nan.any()):
        raise RunError("the model scores NaN, so nothing can be ranked; its training has diverged")


def protocol(graph: KnowledgeGraph, ties: Ties = "realistic", limit: int = 0) -> dict[str, Any]:
    """How the numbers were made: to be printed with them."""
    return {
        "task": "entity ranking, head and tail",
        "candidates": f"all {graph.num_entities} entities",
        "filtered_against": [*SPLITS, *(["other known triples"] if len(graph.also_known) else [])],
        "ties": ties,
        "triples": "all" if not limit else f"at most {limit} per split",
        "unseen_entities": f"kept ({graph.unseen_entities()} never occur in train)",
        "graph": graph.name,
        "split_sha256": dict(graph.sha256),
        "eans_version": __version__,
    }


def evaluate(
    model: Model,
    graph: KnowledgeGraph,
    splits: Split | Sequence[Split] = ("valid", "test"),
    *,
    ties: Ties = "realistic",
    limit: int = 0,
    memory: int = DEFAULT_MEMORY,
    progress: bool | Told = True,
    table: ShardedTable | None = None,
) -> dict[str, Any]:
    """Metrics of several splits with their protocol: the content of a run's ``metrics.json``.

    Args:
        model, graph, limit, memory, table: see `rank`.
        splits: those without triples are left out.
        ties: ``"realistic"``, ``"optimistic"`` or ``"pessimistic"``.
        progress: True: a bar on a terminal or in a notebook, otherwise a line now and then on standard error; False:
            nothing; or what to call with (queries done, queries in all) of each split.
    """
    require_graph(model, graph)
    ties = choice("ties", ties, TIES)  # before the ranking, which takes long
    splits = (splits,) if isinstance(splits, str) else several("splits", splits, "splits")
    result: dict[str, Any] = {}
    with shown(of_one(progress), "ranking ") as report:
        for split in splits:
            if len(graph.split(split)):
                told = one_of(report, split) or False
                result[split] = rank(
                    model, graph, split, limit=limit, memory=memory, progress=told, table=table
                ).metrics(ties)
                options: dict[str, Any] = {"ties": ties, "limit": limit, "memory": memory}
                result[split]["baselines"] = baselines(graph, split, device=model.entity.device, **options)
    result["protocol"] = protocol(graph, ties, limit)
    return result
