"""A graph with other splits: `split`, what is found on the way, and a folder that keeps the result."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from eans.arguments import called
from eans.data.findings import Finding, be, brief, many
from eans.data.writing import save_folder
from eans.errors import EansWarning, UsageError
from eans.files import atomic_write
from eans.graph import HEAD, RELATION, SPLITS, TAIL, KnowledgeGraph
from eans.labelled import Triples, times_of
from eans.relation_patterns import LEAST, Overlap, overlaps
from eans.splitting.choosing import RATIOS, How, Splitting
from eans.splitting.sides import NONE, TRAIN, Ints, at_random, by_time, parts_of, pattern_groups

Report = Callable[[Finding], None]
ABOUT = "split.json"


def split(
    graph: KnowledgeGraph | Triples,
    ratios: Sequence[float] = RATIOS,
    seed: int = 0,
    how: How = "random",
    cover: bool = True,
    groups: Literal["inverse"] | Sequence[Any] | None = None,
    *,
    times: Sequence[Any] | None = None,
    name: str = "graph",
    report: Report | None = None,
) -> KnowledgeGraph:
    """Split triples into train, valid and test; those that repeat count once.

    Args:
        graph: a graph, whose splits are put together first; or labelled triples as `KnowledgeGraph.from_labels` takes.
        ratios: the shares of train, valid and test; they need not add up to 1.
        seed: of a random split; the same seed splits the same triples alike.
        how: ``"random"``; or ``"temporal"``: all of train is earlier than valid, and valid than test. Triples of one
            time stay together.
        cover: whether every entity and relation of valid and test must occur in train. A random split gives triples
            back to train until that is so, and holds out others instead. A temporal one cannot, since they would be
            later than what is held out: it leaves out what train does not know.
        groups: triples that are on the same side of the split: ``"inverse"`` for those that connect the same two
            entities by inverse, near-duplicate or symmetric relations, so that no test triple is a copy of a training
            triple; or a list with a group for each triple.
        times: for each triple a number, text or date; None for the graph's own.
        name: what to call a graph of labelled triples.
        report: called with each finding (duplicates, copies in train of what is held out, what was left out); without
            it they are warnings, `EansWarning`.
    """
    chosen = Splitting(ratios, seed, how, cover, groups)  # type: ignore[arg-type]
    report = called("report", report)
    if not isinstance(graph, KnowledgeGraph):
        graph = KnowledgeGraph.from_labels(graph, name=name)
    if times is not None:
        graph = replace(graph, times=torch.from_numpy(times_of(times, len(graph.train))))
    found: list[Finding] = []
    result = split_graph(graph, chosen, found.append if report is None else report)
    for finding in found:
        warnings.warn(finding.message, EansWarning, stacklevel=2)
    return result


def split_graph(graph: KnowledgeGraph, chosen: Splitting, report: Report) -> KnowledgeGraph:
    """`split` of a graph as a `Splitting` says."""
    rows = _different(graph, chosen.how, report)
    triples = torch.cat([graph.split(part) for part in SPLITS])[rows]
    patterns = overlaps(triples, graph.num_entities, graph.num_relations)
    patterns = [found for found in patterns if found.mutual_share >= LEAST]
    ids: Ints = triples.numpy()
    copies = pattern_groups(ids, graph.num_entities, graph.num_relations, patterns)
    parts = parts_of(ids, graph.num_entities) if chosen.cover else None
    if chosen.how == "temporal":
        if graph.times is None:
            raise UsageError("a temporal split needs the time of each triple, and this graph has none")
        sides = by_time(graph.times[rows].numpy(), parts, chosen.ratios)
    else:
        groups = _groups(chosen, graph, rows, copies)
        sides = at_random(groups, parts, chosen.ratios, np.random.default_rng(chosen.seed))
    _require_all(sides, chosen)
    _tell_copies(graph, patterns, copies, sides, report)
    return _with_sides(graph, rows, triples, torch.from_numpy(sides), report)


def _different(graph: KnowledgeGraph, how: How, report: Report) -> Tensor:
    """The triples that are no repetition, as rows of train, valid and test together; of equal ones, the earliest."""
    pooled = torch.cat([graph.split(part) for part in SPLITS]).numpy()
    for what, values in (("weights", graph.weights), ("times", graph.times)):
        if values is not None and len(values) != len(pooled):
            raise UsageError(
                f"graph '{graph.name}' has valid or test triples, and {what} for train alone; split it without {what}"
            )
    by_age = np.arange(len(pooled))
    if how == "temporal" and graph.times is not None:
        by_age = np.argsort(graph.times.numpy(), kind="stable")
    alike = by_age[np.lexsort(pooled[by_age].T)]  # equal ones side by side, the earliest first
    new = np.ones(len(alike), dtype=bool)
    new[1:] = (pooled[alike[1:]] != pooled[alike[:-1]]).any(axis=1)
    if repeated := int((~new).sum()):
        triple = _shown(graph, pooled[alike[np.flatnonzero(~new)[0]]].tolist())
        are = "repeats an earlier one and is" if repeated == 1 else "repeat an earlier one and are"
        message = f"split: {many(repeated, 'triple')}, such as {triple}, {are} left out"
        report(Finding("duplicates", repeated, triple, message))
    return torch.from_numpy(np.sort(alike[new]))


def _groups(chosen: Splitting, graph: KnowledgeGraph, rows: Tensor, copies: Ints) -> Ints:
    """The group of each of the rows, numbered from 0 on."""
    if chosen.groups is None:
        return np.arange(len(rows))
    if isinstance(chosen.groups, str):
        return copies
    given = chosen.groups
    total = sum(len(graph.split(part)) for part in SPLITS)
    if len(given) != total:
        raise UsageError(f"groups: expected one for each of {total} triples, got {len(given)}")
    numbers: dict[Any, int] = {}
    try:
        return np.array([numbers.setdefault(given[row], len(numbers)) for row in rows.tolist()], dtype=np.int64)
    except TypeError:
        raise UsageError("groups must be numbers or texts, one for each triple") from None


def _require_all(sides: Ints, chosen: Splitting) -> None:
    """Raise unless each split that has a share has triples."""
    for number, (name, share) in enumerate(zip(SPLITS, chosen.ratios, strict=True)):
        if share and not (sides == number).any():
            few = "too few, or" if chosen.how == "random" else "too few different times, or"
            reason = f"{few} too few without an entity or relation that train would lack; see cover"
            raise UsageError(f"{many(len(sides), 'triple')} cannot be split so that {name} has some: {reason}")


def _tell_copies(graph: KnowledgeGraph, patterns: Sequence[Overlap], copies: Ints, sides: Ints, report: Report) -> None:
    """Say how many held-out triples can be answered by copying a training triple."""
    held = sides > TRAIN
    copied = int(np.isin(copies[held], copies[sides == TRAIN]).sum())
    if not copied:
        return
    found = patterns[0]
    names = f"{brief(graph.relations[found.first])} and {brief(graph.relations[found.second])} are {found.pattern}"
    if found.first == found.second:
        names = f"{brief(graph.relations[found.first])} is symmetric"
    more = f", and {len(patterns) - 1:,} more such patterns" if len(patterns) > 1 else ""
    verb = "is a copy" if copied == 1 else "are copies"
    report(
        Finding(
            "copies",
            copied,
            names,
            f"split: {copied:,} of {int(held.sum()):,} triples of valid and test {verb} of a training triple: {names}"
            f"{more}; split with groups 'inverse' to keep such triples on one side",
        )
    )


def _with_sides(graph: KnowledgeGraph, rows: Tensor, triples: Tensor, sides: Tensor, report: Report) -> KnowledgeGraph:
    """The graph with these splits, each in the order of the source; what is on no side is left out with its names."""
    train, valid, test = (triples[sides == number] for number in range(len(SPLITS)))
    kept = rows[sides == TRAIN]
    result = replace(
        graph,
        train=train,
        valid=valid,
        test=test,
        source="",
        weights=None if graph.weights is None else graph.weights[kept],
        times=None if graph.times is None else graph.times[kept],
    )
    left_out = int((sides == NONE).sum())
    if not left_out:
        return result
    result = _of_train_alone(result)
    lost = graph.num_entities - result.num_entities, graph.num_relations - result.num_relations
    triple = _shown(graph, triples[sides == NONE][0].tolist())
    report(
        Finding(
            "left-out",
            left_out,
            triple,
            f"split: {many(left_out, 'triple')}, such as {triple}, {be(left_out)} left out: {lost[0]:,} entities and"
            f" {lost[1]:,} relations do not occur in train; cover=False ('uncovered') keeps them",
        )
    )
    return result


def _of_train_alone(graph: KnowledgeGraph) -> KnowledgeGraph:
    """The graph without entities and relations that train lacks; no triple of valid or test may have one."""
    entities, relations = torch.unique(graph.train[:, [HEAD, TAIL]]), torch.unique(graph.train[:, RELATION])
    new: list[Tensor] = []
    for known, size in ((entities, graph.num_entities), (relations, graph.num_relations)):
        numbers = torch.full((size,), -1)
        numbers[known] = torch.arange(len(known))
        new.append(numbers)

    def moved(triples: Tensor) -> Tensor:
        found = torch.stack([new[0][triples[:, HEAD]], new[1][triples[:, RELATION]], new[0][triples[:, TAIL]]], dim=1)
        return found[(found >= 0).all(dim=1)]

    return replace(
        graph,
        entities=graph.entities.take(entities),
        relations=graph.relations.take(relations),
        train=moved(graph.train),
        valid=moved(graph.valid),
        test=moved(graph.test),
        also_known=moved(graph.also_known),
    )


def _shown(graph: KnowledgeGraph, triple: Sequence[int]) -> str:
    head, relation, tail = triple
    return f"({brief(graph.entities[head])}, {brief(graph.relations[relation])}, {brief(graph.entities[tail])})"


def save_split(graph: KnowledgeGraph, folder: Path, about: Mapping[str, Any]) -> None:
    """Write a graph as a folder that `eans.load` reads, and how it was split as ``split.json``.

    Weights, times and further known triples are not written: they are in the graph of the run.
    """
    save_folder(replace(graph, weights=None, times=None, also_known=graph.also_known[:0]), folder)
    facts = {
        **about,
        "name": graph.name,
        "triples": {part: len(graph.split(part)) for part in SPLITS},
        "sha256": dict(graph.sha256),
    }
    atomic_write(folder / ABOUT, (json.dumps(facts, indent=2) + "\n").encode())
