"""A description as tables of words, for the text and for the page alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from eans.graph import SPLITS
from eans.progress import duration
from eans.recipes.library import toml_value

Facts = Mapping[str, Any]
METRICS = (("mr", "MR"), ("mrr", "MRR"), ("hits@1", "Hits@1"), ("hits@3", "Hits@3"), ("hits@10", "Hits@10"))
QUANTILES = {"0": "min", "0.25": "25 %", "0.5": "median", "0.75": "75 %", "0.9": "90 %", "0.99": "99 %", "1": "max"}
LEAKS = {
    "in_train": "the same triple is in train",
    "in_other": "the same triple is in the other of the two",
    "repeated": "repeats an earlier one",
    "copied": "a copy is in train",
    "symmetric": "- by a symmetric relation",
    "inverse": "- by an inverse relation",
    "duplicate": "- by a near-duplicate relation",
    "linked": "train connects the two entities",
    "unseen_entity": "an entity never occurs in train",
    "unseen_relation": "the relation never occurs in train",
}
PARTS = {"model": "parameters", "optimizer": "optimizer", "sampler": "sampler", "graph": "triples and their indices"}


class Section(NamedTuple):
    """A table: the first `names` columns hold names, the others numbers, flush right."""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]
    names: int = 1
    notes: tuple[str, ...] = ()


def sections(facts: Facts) -> Iterator[Section]:
    """All tables, in the order in which they are shown."""
    yield _sizes(facts)
    yield _degrees(facts["degrees"])
    yield _hubs(facts)
    yield _relations(facts["relations"])
    yield _leakage(facts["leakage"])
    yield _baselines(facts)
    yield _recipe(facts)
    if facts["costs"] is not None:
        yield _costs(facts)


def _sizes(facts: Facts) -> Section:
    graph, parts = facts["graph"], facts["components"]
    triples = [f"{graph['triples'][split]:,}" for split in SPLITS]
    repeated = [f"{graph['repeated'][split]:,}" for split in SPLITS]
    largest = f"the largest has {percent(parts['largest_share'])} of the entities of train"
    notes = [
        f"{graph['entities']:,} entities, {graph['unseen_entities']:,} of which never occur in train;"
        f" {graph['relations']:,} relations, {graph['unseen_relations']:,} of which never do",
        f"connected components of train: {parts['count']:,}; {largest}"
        + (f" (sizes: {', '.join(f'{size:,}' for size in parts['sizes'])}{_more(parts)})" if parts["count"] > 1 else ""),
    ]
    if graph["also_known"]:
        notes.append(f"{graph['also_known']:,} further triples are known, and are filtered when ranking")
    rows = [("triples", *triples), ("repeat an earlier one", *repeated)]
    return Section("sizes", graph["name"], ("", *SPLITS), rows, notes=tuple(notes))


def _more(parts: Facts) -> str:
    return ", ..." if parts["count"] > len(parts["sizes"]) else ""


def _degrees(degrees: Facts) -> Section:
    rows = []
    for key, name in (("degree", "degree"), ("as_head", "as head"), ("as_tail", "as tail")):
        found = degrees[key]
        rows.append((name, f"{found['mean']:,.1f}", *(f"{found['quantiles'][share]:,}" for share in QUANTILES)))
    note = f"the 1 % of the entities with the highest degrees takes {percent(degrees['top_percent'])} of all places"
    return Section("degrees", "Triples of train by entity", ("", "mean", *QUANTILES.values()), rows, notes=(note,))


def _hubs(facts: Facts) -> Section:
    train = facts["graph"]["triples"]["train"]
    rows = [
        (hub["entity"], *(f"{hub[key]:,}" for key in ("degree", "as_head", "as_tail")), percent(hub["degree"] / train))
        for hub in facts["degrees"]["hubs"]
    ]
    return Section("hubs", "Hubs", ("entity", "degree", "as head", "as tail", "of all triples"), rows)


def _relations(relations: list[dict[str, Any]]) -> Section:
    rows = [
        (
            entry["relation"],
            entry["category"],
            patterns(entry),
            *(f"{entry[split]:,}" for split in SPLITS),
            f"{entry['tails_per_head']:,.1f}",
            f"{entry['heads_per_tail']:,.1f}",
        )
        for entry in relations
    ]
    columns = ("relation", "kind", "pattern", *SPLITS, "tails per head", "heads per tail")
    return Section("relations", "Relations", columns, rows, names=3)


def patterns(entry: Facts) -> str:
    """``symmetric; inverse of r1; near-duplicate of r2 and 3 more``; empty for none."""
    found = ["symmetric"] if entry["symmetric"] is not None else []
    for key, words in (("inverse_of", "inverse of"), ("duplicate_of", "near-duplicate of")):
        if others := entry[key]:
            more = f" and {len(others) - 1:,} more" if len(others) > 1 else ""
            found.append(f"{words} {others[0]['relation']}{more}")
    return "; ".join(found)


def _leakage(leakage: Facts) -> Section:
    splits = {split: found for split, found in leakage.items() if found["triples"]}
    rows = [
        (words, *(f"{found[key]:,} ({percent(found[key] / found['triples'])})" for found in splits.values()))
        for key, words in LEAKS.items()
    ]
    title = "Leakage: triples of valid and test, what train says about them"
    if not splits:
        return Section("leakage", title, ("",), [], notes=("the graph has neither valid nor test triples",))
    return Section("leakage", title, ("", *splits), rows)


def _baselines(facts: Facts) -> Section:
    rows, notes = [], []
    for split, found in facts["baselines"].items():
        for name, metrics in found["metrics"].items():
            numbers = (f"{metrics['both'][key]:,.1f}" if key == "mr" else f"{metrics['both'][key]:.4f}" for key, _ in METRICS)
            rows.append((split, name, *numbers))
        if found["triples"] < facts["graph"]["triples"][split]:
            notes.append(f"{split}: of {found['triples']:,} triples, spread evenly over the split")
    columns = ("split", "baseline", *(title for _, title in METRICS))
    title = "Baselines, which need no model: filtered, all entities as candidates, realistic ties, both sides"
    if not rows:
        notes.append("nothing to rank: the graph has neither valid nor test triples")
    return Section("baselines", title, columns, rows, names=2, notes=tuple(notes))


def _recipe(facts: Facts) -> Section:
    recipe = facts["recipe"]
    why = "the graph has recipes of its own, and this is their default"
    if not recipe["own"]:
        why = "the default for graphs without recipes of their own"
    rows = [(choice["key"], toml_value(choice["value"]), choice["rule"]) for choice in recipe["choices"]]
    notes = (f"{recipe['name']}: {why}", *([] if rows else ["it leaves nothing to the graph"]))
    return Section("recipe", "What eans train takes by default", ("key", "value", "rule"), rows, 3, notes)


def _costs(facts: Facts) -> Section:
    costs = facts["costs"]
    seconds, held = costs["seconds"], costs["bytes"]
    rows = [("preparing, now that it was measured", duration(seconds["preparing"]))]
    rows += [
        (f"{costs['steps']:,} steps of {milliseconds(seconds['per_step'])}", duration(seconds["training"])),
        ("validating on the way", duration(seconds["validating"])),
        (f"ranking valid and test, {milliseconds(seconds['per_ranked_triple'])} a triple", duration(seconds["ranking"])),
        ("all of it, unless it stops early", duration(seconds["all"])),
    ]
    rows += [(f"memory: {words}", size(held[key])) for key, words in PARTS.items()]
    rows += [("memory: all of it", size(held["all"])), ("memory: besides while ranking, at most", size(held["ranking"]))]
    note = f"estimated from a few steps and ranked triples on {costs['device']} ({costs['hardware']})"
    return Section("costs", "What that takes on this machine, about", ("", "estimate"), rows, notes=(note,))


def percent(share: float) -> str:
    """``12.3 %``; what is neither nothing nor all is not shown as such."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    return f"{100 * share:.1f} %"


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.{1 if seconds < 0.1 else 0}f} ms"


def size(count: int) -> str:
    """Bytes as ``340 kB``, ``12.5 MB`` or ``1.2 GB``."""
    for unit, least in (("GB", 1e9), ("MB", 1e6)):
        if count >= least:
            return f"{count / least:,.1f} {unit}"
    return f"{count / 1e3:,.0f} kB"
