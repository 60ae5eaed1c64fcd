"""A description as tables of words, for the text and for the page alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    "linked": "train connects the two entities by any relation",
    "unseen_entity": "an entity never occurs in train",
    "unseen_relation": "the relation never occurs in train",
}
MEMORY = {
    "model": "parameters",
    "optimizer": "optimizer",
    "sampler": "sampler",
    "graph": "triples and their indices",
    "batches": "order and weights of positives",
    "labels": "labels",
    "all": "all of these",
    "ranking": "besides, while ranking",
}


class Section(NamedTuple):
    """A table, and what it is about: the first `names` columns hold names, the others numbers, flush right."""

    key: str
    title: str
    about: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
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
    sizes = ", ".join(f"{size:,}" for size in parts["sizes"])
    more = ", ..." if parts["count"] > len(parts["sizes"]) else ""
    share = percent(parts["largest_share"])
    largest = f"; the largest has {share} of the entities of train (sizes: {sizes}{more})"
    notes = [
        f"{graph['entities']:,} entities ({graph['unseen_entities']:,} never occur in train),"
        f" {graph['relations']:,} relations ({graph['unseen_relations']:,} never occur in train)",
        f"Connected components of train: {parts['count']:,}{largest if parts['count'] > 1 else ''}",
    ]
    if graph["also_known"]:
        notes.append(f"{graph['also_known']:,} further triples are known, and are filtered when ranking")
    rows = [("triples", *triples), ("repeat an earlier one", *repeated)]
    return Section("sizes", graph["name"], "", ("", *SPLITS), rows, notes=tuple(notes))


def _degrees(degrees: Facts) -> Section:
    found = [degrees[key] for key in ("degree", "as_head", "as_tail")]
    rows = [("mean", *(f"{each['mean']:,.1f}" for each in found))]
    rows += [(words, *(f"{each['quantiles'][share]:,}" for each in found)) for share, words in QUANTILES.items()]
    top = percent(degrees["top_percent"])
    notes = (f"The 1 % of the entities with the highest degrees are {top} of all heads and tails.",)
    columns = ("", "degree", "as head", "as tail")
    return Section("degrees", "Degrees", "triples of train by entity", columns, rows, notes=notes)


def _hubs(facts: Facts) -> Section:
    train = facts["graph"]["triples"]["train"]
    rows = [
        (hub["entity"], *(f"{hub[key]:,}" for key in ("degree", "as_head", "as_tail")), percent(hub["degree"] / train))
        for hub in facts["degrees"]["hubs"]
    ]
    columns = ("entity", "degree", "as head", "as tail", "of train")
    return Section("hubs", "Hubs", "the entities with the highest degrees", columns, rows)


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
    return Section("relations", "Relations", "kinds and patterns are those of train", columns, rows, names=3)


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
    about = "triples of valid and test that repeat or copy others, and those that train cannot prepare for"
    if not splits:
        return Section("leakage", "Leakage", about, ("",), [], notes=("The graph has neither valid nor test triples",))
    return Section("leakage", "Leakage", about, ("", *splits), rows)


def _baselines(facts: Facts) -> Section:
    rows, notes = [], []
    for split, found in facts["baselines"].items():
        for name, metrics in found["metrics"].items():
            both = metrics["both"]
            numbers = (f"{both[key]:,.1f}" if key == "mr" else f"{both[key]:.4f}" for key, _ in METRICS)
            rows.append((f"{split}: {name}", *numbers))
        if found["triples"] < facts["graph"]["triples"][split]:
            notes.append(f"{split}: of {found['triples']:,} triples, spread evenly over the split")
    columns = ("", *(title for _, title in METRICS))
    about = "ranks without a model: filtered, all entities as candidates, realistic ties, both sides"
    if not rows:
        notes.append("Nothing to rank: the graph has neither valid nor test triples")
    return Section("baselines", "Baselines", about, columns, rows, notes=tuple(notes))


def _recipe(facts: Facts) -> Section:
    recipe = facts["recipe"]
    why = "the graph has recipes of its own, and this is their default"
    if not recipe["own"]:
        why = "the default for graphs without recipes of their own"
    rows = [(choice["key"], _value(choice["value"]), choice["rule"]) for choice in recipe["choices"]]
    notes = (f"{recipe['name']}: {why}", *recipe["plan"])
    columns = ("set by the graph", "value", "rule")
    return Section("recipe", "Recipe", "what eans train takes by default", columns, rows, 3, notes)


def _costs(facts: Facts) -> Section:
    costs = facts["costs"]
    seconds, held = costs["seconds"], costs["bytes"]
    step, ranked = milliseconds(seconds["per_step"]), milliseconds(seconds["per_ranked_triple"])
    times = {
        "preparing": "preparing",
        "training": f"{costs['steps']:,} steps of {step}",
        "validating": "validating on the way",
        "ranking": f"ranking valid and test, {ranked} a triple",
        "all": "all of it, unless it stops early",
    }
    rows = [(words, duration(seconds[key])) for key, words in times.items()]
    rows += [(f"memory: {words}", size(held[key])) for key, words in MEMORY.items()]
    note = (
        f"Estimated from a few steps and ranked triples on {costs['device']} ({costs['hardware']}); memory without that"
        " of Python and PyTorch themselves."
    )
    about = "what this recipe takes on this machine, about"
    return Section("costs", "Costs", about, ("", "estimate"), rows, notes=(note,))


def _value(value: Any) -> str:
    """A value of a recipe as it is written there, but for digits that say nothing."""
    return f"{value:.6g}" if isinstance(value, float) else toml_value(value)


def percent(share: float) -> str:
    """``12.3 %``; what is neither nothing nor all is not shown as such."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    return f"{100 * share:.1f} %"


def milliseconds(seconds: float) -> str:
    """``0.0312 ms``, ``25.7 ms``, ``1.5 s``."""
    return f"{1000 * seconds:.3g} ms" if seconds < 0.9995 else duration(seconds)


def size(count: int) -> str:
    """Bytes as ``340 kB``, ``12.5 MB`` or ``1.2 GB``."""
    for unit, least in (("GB", 1e9), ("MB", 1e6)):
        if count >= least:
            return f"{count / least:,.1f} {unit}"
    return f"{count / 1e3:,.0f} kB"
