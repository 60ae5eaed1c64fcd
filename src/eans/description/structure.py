"""The structure of a graph, counted: degrees, connected components, relations and their patterns, leakage.

Memory is a few numbers per triple and entity; no Python loop goes over either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from eans.baselines import LEAST_COUNT
from eans.evaluation import CATEGORIES, answers_per_query, relation_categories
from eans.graph import HEAD, RELATION, SPLITS, TAIL, KnowledgeGraph, Split
from eans.relation_patterns import LEAST, Overlap, overlaps_in_train

QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
HUBS = 10
COMPONENTS = 10  # of which the size is told
BLOCK = 1 << 20  # triples that are looked at together
HELD_OUT: tuple[Split, Split] = ("valid", "test")


def counts(graph: KnowledgeGraph) -> dict[str, Any]:
    """Name and sizes; how many triples of each split repeat an earlier one of the same split."""
    return {
        "name": graph.name,
        "source": graph.source,
        "entities": graph.num_entities,
        "relations": graph.num_relations,
        "triples": {split: len(graph.split(split)) for split in SPLITS},
        "also_known": len(graph.also_known),
        "repeated": {"train": len(graph.train) - len(graph.known_train)}
        | {split: _repeated(graph, graph.split(split)) for split in HELD_OUT},
        "unseen_entities": graph.unseen_entities(),
        "unseen_relations": int((torch.bincount(graph.train[:, RELATION], minlength=graph.num_relations) == 0).sum()),
    }


def degrees(graph: KnowledgeGraph) -> dict[str, Any]:
    """How many training triples entities have: altogether, as head and as tail.

    A loop counts twice. Of the histogram each bar reaches from `least` to `most`. `top_percent` is the share of all
    heads and tails that are among the hundredth of the entities with the highest degrees.
    """
    size = graph.num_entities
    ends = {name: torch.bincount(graph.train[:, column], minlength=size) for name, column in ENDS.items()}
    total = ends["as_head"] + ends["as_tail"]
    ordered, order = torch.sort(total, descending=True, stable=True)
    hubs = [
        {"entity": graph.entities.shown(entity), "degree": int(total[entity])}
        | {name: int(found[entity]) for name, found in ends.items()}
        for entity in order[:HUBS].tolist()
    ]
    top = int(ordered[: -(-size // 100)].sum()) / int(ordered.sum())
    distributions = {name: _distribution(values) for name, values in {"degree": total, **ends}.items()}
    return distributions | {"histogram": _histogram(total), "top_percent": top, "hubs": hubs}


ENDS = {"as_head": HEAD, "as_tail": TAIL}


def _distribution(values: Tensor) -> dict[str, Any]:
    """Mean, and quantiles that are values themselves: the least one that is not below so many of them."""
    ordered = values.sort().values
    places = [max(0, -(-round(100 * share) * len(values) // 100) - 1) for share in QUANTILES]
    quantiles = {f"{share:g}": int(ordered[place]) for share, place in zip(QUANTILES, places, strict=True)}
    return {"mean": float(values.double().mean()), "quantiles": quantiles}


def _histogram(values: Tensor) -> list[dict[str, int]]:
    """How many values are 0, 1, 2 to 3, 4 to 7, ..., up to the largest."""
    bounds = [0] + [1 << power for power in range(int(values.max()).bit_length())]
    found = torch.bincount(torch.searchsorted(torch.tensor(bounds), values, right=True) - 1, minlength=len(bounds))
    ends = [*(bound - 1 for bound in bounds[1:]), 2 * bounds[-1] - 1]
    rows = zip(bounds, ends, found.tolist(), strict=True)
    return [{"least": least, "most": most, "entities": count} for least, most, count in rows]


def components(graph: KnowledgeGraph) -> dict[str, Any]:
    """The connected components of train, of entities that occur there; directions do not count."""
    root = component_of(graph.train[:, HEAD], graph.train[:, TAIL], graph.num_entities)
    seen = torch.zeros(graph.num_entities, dtype=torch.bool)
    seen[graph.train[:, HEAD]] = seen[graph.train[:, TAIL]] = True
    sizes = torch.unique(root[seen], return_counts=True)[1].sort(descending=True).values
    return {"count": len(sizes), "sizes": sizes[:COMPONENTS].tolist(), "largest_share": int(sizes[0]) / int(seen.sum())}


def component_of(first: Tensor, second: Tensor, size: int) -> Tensor:
    """The least node that can be reached from each node by edges ``first[i] - second[i]``: int64 ``[size]``.

    Every root that has an edge to a lower one is hooked to the lowest of them, until no edge leads out of a tree; for
    some edges after the others.
    """
    root, block = torch.arange(size), max(BLOCK, size)
    for start in range(0, len(first), block):
        root = _joined(root, root[first[start : start + block]], root[second[start : start + block]])
    return root


def _joined(root: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """The least nodes once roots are connected by these edges too."""
    while len(first):
        low, high = torch.minimum(first, second), torch.maximum(first, second)
        root.scatter_reduce_(0, high, low, "amin")
        above = root[root]
        while not torch.equal(above, root):
            root, above = above, above[above]
        first, second = root[low], root[high]
        between = first != second
        first, second = first[between], second[between]
    return root


def patterns(graph: KnowledgeGraph) -> list[Overlap]:
    """Relations that are symmetric, inverse to each other or near-duplicates in train, the surest first."""
    found = overlaps_in_train(graph)
    return [overlap for overlap in found if overlap.mutual_share >= LEAST and overlap.count >= LEAST_COUNT]


def relations(graph: KnowledgeGraph, found: Sequence[Overlap]) -> list[dict[str, Any]]:
    """An entry for each relation, the most frequent first; shares of patterns are those of the less similar side."""
    size = graph.num_relations
    frequency = {split: torch.bincount(graph.split(split)[:, RELATION], minlength=size) for split in SPLITS}
    categories, answers = relation_categories(graph).tolist(), answers_per_query(graph)
    entries: list[dict[str, Any]] = [
        {
            "relation": graph.relations.shown(relation),
            **{split: int(frequency[split][relation]) for split in SPLITS},
            "category": CATEGORIES[categories[relation]],
            "tails_per_head": float(answers["tail"][relation]),
            "heads_per_tail": float(answers["head"][relation]),
            "symmetric": None,
            "inverse_of": [],
            "duplicate_of": [],
        }
        for relation in range(size)
    ]
    for overlap in found:
        one, two, share = overlap.first, overlap.second, overlap.mutual_share
        if one == two:
            entries[one]["symmetric"] = share
            continue
        key = "inverse_of" if overlap.reverse else "duplicate_of"
        for mine, other in ((one, two), (two, one)):
            entries[mine][key].append({"relation": graph.relations.shown(other), "share": share})
    order = frequency["train"].argsort(descending=True, stable=True).tolist()
    return [entries[relation] for relation in order]


def leakage(graph: KnowledgeGraph, found: Sequence[Overlap]) -> dict[str, dict[str, int]]:
    """How many triples of valid and test could be read from train, or know what train does not.

    For each split: `triples`; `in_train`, `in_other` (the other held-out split) and `repeated` (an earlier one of the
    split); `symmetric`, `inverse` and `duplicate`: a copy by such a relation is in train; `copied`: any of the three;
    `linked`: train connects the two entities, in any direction, by any relation; `unseen_entity`, `unseen_relation`:
    train lacks one of them.
    """
    train = graph.train
    known, seen = torch.zeros(graph.num_entities, dtype=torch.bool), torch.zeros(graph.num_relations, dtype=torch.bool)
    known[train[:, HEAD]] = known[train[:, TAIL]] = seen[train[:, RELATION]] = True
    result: dict[str, dict[str, int]] = {}
    for split, other in (HELD_OUT, HELD_OUT[::-1]):
        triples = graph.split(split)
        copies = _copies(graph, triples, found)
        masks = {
            "in_train": graph.known_train.contains(triples),
            "in_other": _among(_keys(graph, triples), torch.unique(_keys(graph, graph.split(other)))),
            **copies,
            "copied": torch.stack(list(copies.values())).any(dim=0),
            "linked": _linked(train, triples, graph.num_entities),
            "unseen_entity": ~(known[triples[:, HEAD]] & known[triples[:, TAIL]]),
            "unseen_relation": ~seen[triples[:, RELATION]],
        }
        result[split] = {"triples": len(triples), "repeated": _repeated(graph, triples)}
        result[split] |= {name: int(mask.sum()) for name, mask in masks.items()}
    return result


def _copies(graph: KnowledgeGraph, triples: Tensor, found: Iterable[Overlap]) -> dict[str, Tensor]:
    """Which triples have a copy in train, by the pattern that leads to it: bool ``[n]`` each."""
    partners: dict[str, list[list[int]]] = {
        name: [[] for _ in range(graph.num_relations)] for name in ("symmetric", "inverse", "duplicate")
    }
    for overlap in found:
        name = overlap.pattern.removeprefix("near-")
        for mine, other in {(overlap.first, overlap.second), (overlap.second, overlap.first)}:
            partners[name][mine].append(other)
    return {name: _copied(graph, triples, of_each, name != "duplicate") for name, of_each in partners.items()}


def _copied(graph: KnowledgeGraph, triples: Tensor, partners: list[list[int]], exchanged: bool) -> Tensor:
    """Is the triple in train with one of its relation's `partners` instead, head and tail exchanged if so said?"""
    copied = torch.zeros(len(triples), dtype=torch.bool)
    for place in range(max(map(len, partners), default=0)):
        next_one = torch.tensor([of_one[place] if place < len(of_one) else -1 for of_one in partners])
        other = next_one[triples[:, RELATION]]
        copies = triples[:, [TAIL, RELATION, HEAD]] if exchanged else triples.clone()
        itself = (other == triples[:, RELATION]) & (triples[:, HEAD] == triples[:, TAIL])  # a loop is no copy of itself
        asked = (other >= 0) & ~itself
        copies[:, RELATION] = other.clamp(min=0)
        copied |= asked & graph.known_train.contains(copies)
    return copied


def _repeated(graph: KnowledgeGraph, triples: Tensor) -> int:
    return len(triples) - len(torch.unique(_keys(graph, triples)))


def _keys(graph: KnowledgeGraph, triples: Tensor) -> Tensor:
    """The place of each triple's query among the known ones, and its answer, in one number: int64 ``[n]``."""
    return graph.known.prefix(triples, "tail") * graph.num_entities + triples[:, TAIL]


def _linked(train: Tensor, triples: Tensor, num_entities: int) -> Tensor:
    """Which triples have entities that train connects: bool ``[n]``. Those few are searched for all of train."""
    asked, which = torch.unique(_ends(triples, num_entities), return_inverse=True)
    found = torch.zeros(len(asked) + 1, dtype=torch.bool)
    for block in torch.split(train, BLOCK) if len(asked) else ():
        ends = _ends(block, num_entities)
        place = torch.searchsorted(asked, ends).clamp_(max=len(asked) - 1)
        found[place[asked[place] == ends]] = True
    return found[which]


def _ends(triples: Tensor, num_entities: int) -> Tensor:
    """The two entities of each triple, whatever their order, in one number: int64 ``[n]``."""
    ends = triples[:, [HEAD, TAIL]]
    return ends.amin(dim=1) * num_entities + ends.amax(dim=1)


def _among(values: Tensor, known: Tensor) -> Tensor:
    """Which values are in the ascending `known`."""
    if not len(known):
        return torch.zeros_like(values, dtype=torch.bool)
    return known[torch.searchsorted(known, values).clamp_(max=len(known) - 1)] == values
