"""Graphs with planted structure and hubs, of any size: `python -m benchmarks.synthetic ring --out DIR`.

Two families. In both, entities are as popular as Zipf's law says, relations too, and entity ids are in no order.

``ring``: entities stand on a ring; a relation leads from an entity to those some way further round, more or less
exactly. Translations and rotations can learn it.

``types``: entities have attributes; a relation maps the value of one attribute of the head to a value of an attribute
of the tail, and leads to any entity that has it. Dot products can learn it.

`planted_mrr` ranks by the structure itself: no model is expected to do better, so it says what an MRR is worth.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from eans.data import save_folder
from eans.graph import SIDES, KnowledgeGraph, Vocabulary

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Plausibility = Callable[[Ints, str], Floats]  # of every entity in the place of a side, for triples [n, 3]: [n, E]
ZIPF = 0.8  # popularity of the k-th entity: k ** -ZIPF
DRAWS = 4  # places of which the most popular entities are likelier: ring
WIDTHS = (0.5, 8.0)  # of relations, in places on the ring
ATTRIBUTES = 4
HELD_OUT = 0.05  # of the triples, for valid and for test each


@dataclass(frozen=True)
class Planted:
    """A graph, and how plausible its structure makes each entity as an answer."""

    graph: KnowledgeGraph
    plausibility: Plausibility


def popularity(count: int, generator: np.random.Generator) -> Floats:
    """Weights ``[count]`` in random order, with sum 1."""
    weights = np.arange(1, count + 1, dtype=np.float64) ** -ZIPF
    generator.shuffle(weights)
    shares: Floats = weights / weights.sum()
    return shares


def draw(weights: Floats, count: int, generator: np.random.Generator) -> Ints:
    """Ids drawn with these probabilities, ``[count]``."""
    found = np.searchsorted(np.cumsum(weights), generator.random(count), side="right")
    return found.clip(max=len(weights) - 1)


def ring(entities: int, relations: int, triples: int, seed: int = 0) -> Planted:
    """See the module; `triples` are drawn, of which those that repeat count once."""
    generator = np.random.default_rng(seed)
    weights, place = popularity(entities, generator), generator.permutation(entities)
    at = np.argsort(place)  # the entity at each place
    shift = generator.integers(entities, size=relations)
    width = np.exp(generator.uniform(np.log(WIDTHS[0]), np.log(WIDTHS[1]), size=relations))
    head = draw(weights, triples, generator)
    relation = draw(popularity(relations, generator), triples, generator)
    off = np.rint(generator.normal(size=(DRAWS, triples)) * width[relation]).astype(np.int64)
    candidates = at[(place[head] + shift[relation] + off) % entities]
    tail = _one_of(candidates, weights, generator)

    def plausibility(asked: Ints, side: str) -> Floats:
        sign, known = (1, asked[:, 0]) if side == "tail" else (-1, asked[:, 2])
        target = place[known] + sign * shift[asked[:, 1]]
        distance = (place[None, :] - target[:, None]) % entities
        distance = np.minimum(distance, entities - distance)
        spread = np.exp(-0.5 * (distance / np.maximum(width[asked[:, 1]], 0.5)[:, None]) ** 2)
        found: Floats = spread * weights[None, :]
        return found

    return Planted(_graph("ring", entities, relations, head, relation, tail, generator), plausibility)


def _one_of(candidates: Ints, weights: Floats, generator: np.random.Generator) -> Ints:
    """One of the candidates ``[D, n]`` of each column, by their weights."""
    sums = np.cumsum(weights[candidates], axis=0)
    chosen = (generator.random(candidates.shape[1]) * sums[-1] >= sums).sum(axis=0).clip(max=len(candidates) - 1)
    found: Ints = np.take_along_axis(candidates, chosen[None], axis=0)[0]
    return found


def types(entities: int, relations: int, triples: int, seed: int = 0) -> Planted:
    """See the module."""
    generator = np.random.default_rng(seed)
    weights = popularity(entities, generator)
    values = max(2, round(entities**0.5))
    attributes = generator.integers(values, size=(ATTRIBUTES, entities))
    asked_of, told_of = generator.integers(ATTRIBUTES, size=(2, relations))
    maps = np.stack([generator.permutation(values) for _ in range(relations)])
    head = draw(weights, triples, generator)
    relation = draw(popularity(relations, generator), triples, generator)
    wanted = maps[relation, attributes[asked_of[relation], head]]
    tail = np.empty_like(head)
    for attribute in range(ATTRIBUTES):
        rows = told_of[relation] == attribute
        tail[rows] = _with_value(attributes[attribute], values, wanted[rows], weights, generator)

    def plausibility(asked: Ints, side: str) -> Floats:
        kind = asked[:, 1]
        if side == "tail":
            need = maps[kind, attributes[asked_of[kind], asked[:, 0]]]
            fits = attributes[told_of[kind]] == need[:, None]
        else:
            found = attributes[told_of[kind], asked[:, 2]]
            fits = np.take_along_axis(maps[kind], attributes[asked_of[kind]], axis=1) == found[:, None]
        likely: Floats = fits * weights[None, :]
        return likely

    return Planted(_graph("types", entities, relations, head, relation, tail, generator), plausibility)


def _with_value(values: Ints, count: int, wanted: Ints, weights: Floats, generator: np.random.Generator) -> Ints:
    """Entities that have the wanted values ``[n]`` of an attribute ``[E]``, by weight; any where none has one."""
    order = np.argsort(values, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(weights[order])])
    bounds = np.searchsorted(values[order], np.arange(count + 1))
    low, high = sums[bounds[wanted]], sums[bounds[wanted + 1]]
    low, high = np.where(high > low, low, 0.0), np.where(high > low, high, sums[-1])
    drawn = low + generator.random(len(wanted)) * (high - low)
    found: Ints = order[(np.searchsorted(sums, drawn, side="right") - 1).clip(max=len(values) - 1)]
    return found


def _graph(
    name: str, entities: int, relations: int, head: Ints, relation: Ints, tail: Ints, generator: np.random.Generator
) -> KnowledgeGraph:
    """Different triples in random order; what is held out has no entity and no relation that train lacks."""
    keys = np.unique(np.stack([head, relation, tail], axis=1), axis=0)
    rows = keys[generator.permutation(len(keys))]
    first = np.zeros(len(rows), dtype=bool)
    for column in (rows[:, 1], np.concatenate([rows[:, 0], rows[:, 2]])):
        first[np.unique(column, return_index=True)[1] % len(rows)] = True
    free, count = np.flatnonzero(~first), round(HELD_OUT * len(rows))
    valid, test = free[:count], free[count : 2 * count]
    train = np.setdiff1d(np.arange(len(rows)), free[: 2 * count])
    parts = (torch.from_numpy(rows[part]) for part in (train, valid, test))
    names = [f"e{index}" for index in range(entities)], [f"r{index}" for index in range(relations)]
    return KnowledgeGraph(name, Vocabulary(names[0]), Vocabulary(names[1], "relation"), *parts)


def planted_mrr(planted: Planted, limit: int = 500) -> float:
    """The filtered MRR on test, realistic ties, of ranking by plausibility; of `limit` triples."""
    graph, found = planted.graph, []
    triples = graph.test[:limit]
    for side in SIDES:
        column = 0 if side == "head" else 2
        scores = planted.plausibility(triples.numpy(), side)
        rows, answers = (part.numpy() for part in graph.known.answers(triples, side))
        true = scores[np.arange(len(triples)), triples[:, column].numpy()]
        scores[rows, answers] = -1.0
        greater, equal = (scores > true[:, None]).sum(axis=1), (scores == true[:, None]).sum(axis=1)
        found.append(1 / (1 + greater + equal / 2))
    return float(np.concatenate(found).mean())


FAMILIES = {"ring": ring, "types": types}


def main() -> None:
    """Write a graph as a folder of text files, and print its sizes and the MRR of its structure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=FAMILIES)
    parser.add_argument("--entities", type=int, default=5_000)
    parser.add_argument("--relations", type=int, default=20)
    parser.add_argument("--triples", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    planted = FAMILIES[given.family](given.entities, given.relations, given.triples, given.seed)
    save_folder(planted.graph, given.out)
    print(f"{planted.graph}: {given.out}; its structure has MRR {planted_mrr(planted):.4f}")


if __name__ == "__main__":
    main()
