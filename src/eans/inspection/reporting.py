"""All that a report on a run folder says, as plain numbers and words; `eans.inspection.page` makes HTML of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from eans.devices import choose_device
from eans.evaluation import CATEGORIES, Metrics, Ranks, baselines, protocol, rank, relation_categories
from eans.files import as_path, path_text
from eans.graph import HEAD, RELATION, SIDES, TAIL, KnowledgeGraph, Side, Split
from eans.inspection.analysis import BATCHES, Analyst
from eans.models import Model
from eans.phases import phase
from eans.prediction import predict
from eans.progress import Report, one_of, shown
from eans.recipes import Recipe, all_keys, load, names, to_toml
from eans.recipes.build import build_trainer, resolve
from eans.runs import RunFolder

MEGABYTE = 2**20
HELD_OUT: tuple[Split, Split] = ("valid", "test")
MOST_DRAWS = 2_000_000  # that a CPU scores for the distributions
EXAMPLES = 10
PER_RELATION = 2  # examples at most, so that one hopeless relation does not fill the list
BETTER = 5  # predictions shown with each example
NO_CHANGES = {"data.name", "train.seed"}  # of a recipe: what a report says elsewhere


def report(
    path: str | Path, *, split: Split = "test", device: str = "auto", progress: bool | Report = True
) -> dict[str, Any]:
    """All numbers of a report on a run folder, which is only read; JSON can hold them.

    A run that is not complete is taken as its last checkpoint has it, and ``complete`` is False.

    Args:
        path: a run folder.
        split: what the relations and the examples are about; the metrics are of valid and test besides.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        progress: True: a bar on a terminal or in a notebook, otherwise a line now and then on standard error; False:
            nothing; or what to call with (split, queries done, queries in all).
    """
    with shown(progress, "ranking ") as told:
        return _report(as_path(path, "path"), split, device, told)


def _report(path: Path, split: Split, device: str, told: Report | None) -> dict[str, Any]:
    folder = RunFolder.open(path)
    recipe, graph, chosen = folder.recipe(), folder.graph(), choose_device(device)
    graph.split(split)  # an unknown one is an error before any work
    model = folder.model(graph, chosen)
    saved = folder.metrics()
    ties = recipe.evaluation.ties
    metrics: dict[Split, Any] = {name: _sides(saved[name]) for name in HELD_OUT if name in saved}
    ranks: Ranks | None = None
    for name in dict.fromkeys((*(HELD_OUT if not saved else ()), split)):
        if not len(graph.split(name)):
            continue
        found = _rank(model, graph, name, recipe, told)
        metrics.setdefault(name, found.summary(ties))
        ranks = found if name == split else ranks
    relations = _relations(ranks, recipe) if ranks is not None else []
    examples = _examples(ranks, model, recipe) if ranks is not None else []
    return {
        "run": path_text(path.resolve().name),
        "complete": folder.is_complete,
        "split": split,
        "recipe": recipe.name,
        "changes": changes(recipe, graph),
        "graph": _graph_facts(graph),
        "model": {"name": recipe.model.name, "parameters": sum(part.numel() for part in model.parameters())},
        "training": _training(folder, recipe),
        "protocol": saved.get("protocol") or protocol(graph, ties),
        "metrics": metrics,
        "baselines": {name: baselines(graph, name, ties=ties, device=chosen) for name in metrics},
        "history": folder.log(),
        "analysis": _analysis(folder, recipe, graph, chosen),
        "relations": relations,
        "examples": examples,
        "names": _names(graph, relations, examples),
        "toml": to_toml(recipe),
    }


def _names(graph: KnowledgeGraph, relations: list[dict[str, Any]], examples: list[dict[str, Any]]) -> dict[str, str]:
    """Label to readable name, for those labels of a report that have one."""
    better = {one["entity"] for row in examples for one in row["better"]}
    entities = {row[side] for row in examples for side in SIDES} | better
    return graph.names_of(entities, {row["relation"] for row in (*relations, *examples)})


def changes(recipe: Recipe, graph: KnowledgeGraph) -> dict[str, Any]:
    """Keys ``section.key`` and values that the shipped recipe of the same name does not have.

    What it leaves open (``auto``) is compared once the other changes are made, from which it may follow.
    """
    if recipe.name not in names():
        return {}
    plain = load(recipe.name)
    written = {key: value for key, value in _differences(recipe, plain).items() if _value(plain, key) != "auto"}
    return written | _differences(recipe, resolve(load(recipe.name, written), graph))


def _differences(recipe: Recipe, other: Recipe) -> dict[str, Any]:
    return {
        key: _value(recipe, key)
        for key in all_keys()
        if key not in NO_CHANGES and _value(recipe, key) not in (None, _value(other, key))
    }


def _value(recipe: Recipe, key: str) -> Any:
    """None for a key that what the recipe names does not have."""
    section, _, field = key.partition(".")
    return getattr(getattr(recipe, section), field, None)


def _sides(metrics: dict[str, Any]) -> dict[str, Any]:
    """Of saved metrics, what `Ranks.summary` says: those of both sides and of each."""
    return {side: metrics[side] for side in ("both", *SIDES)}


def _rank(model: Model, graph: KnowledgeGraph, split: Split, recipe: Recipe, told: Report | None) -> Ranks:
    memory = recipe.evaluation.memory_mb * MEGABYTE
    return rank(model, graph, split, memory=memory, progress=one_of(told, split) or False)


def _graph_facts(graph: KnowledgeGraph) -> dict[str, Any]:
    sizes = {"train": len(graph.train), "valid": len(graph.valid), "test": len(graph.test)}
    return {"name": graph.name, "entities": graph.num_entities, "relations": graph.num_relations, **sizes}


def _training(folder: RunFolder, recipe: Recipe) -> dict[str, Any]:
    """What the run's metrics say about its training; of one that is not complete, what the checkpoint says."""
    section = recipe.train
    facts: dict[str, Any] = {"seed": section.seed, "steps_planned": section.steps, "keep": section.keep}
    facts |= {"steps": None, "seconds": None}
    if folder.is_complete:
        return facts | dict(folder.metrics().get("training", {}))
    step, seconds = folder.saved_position()
    return facts | ({"steps": step, "seconds": seconds} if step else {})


def _analysis(folder: RunFolder, recipe: Recipe, graph: KnowledgeGraph, device: torch.device) -> dict[str, Any] | None:
    """`Analyst.analyse` of the last checkpoint; None where only the final weights are left."""
    if not folder.checkpoint_file.is_file():
        return None
    trainer = build_trainer(recipe, graph, device)
    folder.load_state(trainer)
    draws = trainer.stream.batch_size * max(1, trainer.sampler.negatives)
    batches = BATCHES if device.type == "cuda" else min(BATCHES, max(2, MOST_DRAWS // draws))
    with phase("analysing scores"), trainer.settled():
        return Analyst(trainer, graph, batches).analyse()


def _relations(ranks: Ranks, recipe: Recipe) -> list[dict[str, Any]]:
    """One entry per relation of the split, the most frequent first."""
    graph, ties = ranks.graph, recipe.evaluation.ties
    sides = {side: ranks.ranks(side, ties) for side in SIDES}
    relations = ranks.triples[:, RELATION]
    categories = relation_categories(graph).tolist()
    in_train = torch.bincount(graph.train[:, RELATION], minlength=graph.num_relations).tolist()
    ordered, order = torch.sort(relations, stable=True)
    distinct, counts = torch.unique_consecutive(ordered, return_counts=True)
    entries = []
    for relation, rows in zip(distinct.tolist(), torch.split(order, counts.tolist()), strict=True):
        both = Metrics.of(torch.cat([sides[side][rows] for side in SIDES]))
        entries.append(
            {
                "relation": graph.relations[relation],
                "category": CATEGORIES[categories[relation]],
                "train": in_train[relation],
                "count": len(rows),
                "mrr": both.mrr,
                **{f"mrr_{side}": Metrics.of(sides[side][rows]).mrr for side in SIDES},
                "hits@10": both.hits[10],
            }
        )
    return sorted(entries, key=lambda entry: (-entry["count"], entry["relation"]))


def _examples(ranks: Ranks, model: Model, recipe: Recipe) -> list[dict[str, Any]]:
    """The queries with the worst ranks, no triple twice, with the best predictions that outranked the answer."""
    both = torch.cat([ranks.ranks(side, recipe.evaluation.ties) for side in SIDES])
    triples = ranks.triples
    taken: dict[int, int] = {}
    rows: set[int] = set()
    examples: list[dict[str, Any]] = []
    for place in both.argsort(descending=True, stable=True).tolist():
        row, side = place % len(triples), SIDES[place // len(triples)]
        relation = int(triples[row, RELATION])
        if len(examples) == EXAMPLES or both[place] <= 1.0:
            break
        if row in rows or taken.get(relation, 0) == PER_RELATION:
            continue
        rows.add(row)
        taken[relation] = taken.get(relation, 0) + 1
        examples.append(_example(triples[row], side, float(both[place]), int(ranks.greater[side][row]), model, ranks))
    return examples


def _example(triple: Tensor, side: Side, place: float, greater: int, model: Model, ranks: Ranks) -> dict[str, Any]:
    """A query, its answer, the answer's rank and score, and up to five of the `greater` predictions above it."""
    graph = ranks.graph
    head, tail = graph.entities[int(triple[HEAD])], graph.entities[int(triple[TAIL])]
    relation = graph.relations[int(triple[RELATION])]
    query = triple[None].to(model.entity.device)
    column = int(triple[TAIL if side == "tail" else HEAD])
    score = float(model.score_all(query, side)[0, column])
    better: list[dict[str, Any]] = []
    if greater:
        given: dict[str, Any] = {"head": head} if side == "tail" else {"tail": tail}
        found = predict(model, graph, relation=relation, k=min(BETTER, greater), **given)
        better = [{"entity": getattr(row, side), "score": row.score} for row in found if row.score > score]
    return {
        "head": head,
        "relation": relation,
        "tail": tail,
        "side": side,
        "rank": place,
        "score": score,
        "better": better,
    }
