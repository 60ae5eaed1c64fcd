"""A plan as tables of words."""

from __future__ import annotations

from collections.abc import Iterator

from eans.description.sections import MEMORY, Facts, Section, milliseconds, size
from eans.progress import duration

PEAKS = {
    "cpu": "on a CPU: main memory",
    "gpu": "on a GPU: its memory",
    "host_of_gpu": "on a GPU: main memory beside it",
}
MOMENTS = {"step": "a step", "ranking": "ranking a block of queries"}


def plan_sections(facts: Facts) -> Iterator[Section]:
    """Memory by part, where that leads, and time."""
    sizes, recipe = facts["sizes"], facts["recipe"]
    triples = sum(sizes[split] for split in ("train", "valid", "test"))
    notes = (
        f"{recipe['name']}: {recipe['model']} d={recipe['dim']}, {recipe['sampler']} negatives"
        f" n={recipe['negatives']}, {recipe['optimizer']}, b={recipe['batch_size']}",
        *recipe["plan"],
    )
    about = f"{sizes['entities']:,} entities, {sizes['relations']:,} relations, {triples:,} triples"
    rows = [
        (
            MEMORY[part],
            *(f"{found[unit]:,.4g}" for unit in ("entity", "relation", "triple")),
            size(found["all"]),
        )
        for part, found in facts["bytes"].items()
    ]
    rows += [(f"for a moment: {words}", "", "", "", size(facts["moments"][key])) for key, words in MOMENTS.items()]
    columns = ("memory", "bytes per entity", "per relation", "per triple", "all")
    yield Section("plan", "Plan", about, columns, rows, notes=notes)
    peaks = [(words, size(facts["peak"][key])) for key, words in PEAKS.items()]
    peaks.append(("a checkpoint on disk", size(facts["checkpoint"])))
    yield Section("peak", "Peak", "all parts, and the largest of what is there for a moment", ("", "about"), peaks)
    if (seconds := facts["seconds"]) is not None:
        yield _time(seconds, recipe["steps"])


def _time(seconds: Facts, steps: int) -> Section:
    rows = [
        ("a step", milliseconds(seconds["per_step"])),
        ("positives a second", f"{seconds['positives_per_second']:,.0f}"),
        (f"{steps:,} steps", duration(seconds["training"])),
    ]
    measured = seconds["measured"]
    note = (
        f"Measured on {seconds['device']} ({seconds['hardware']}) with random triples:"
        f" {milliseconds(measured['per_step'])} a step with {measured['entities']:,} entities,"
        f" {measured['bytes_per_second'] / 1e9:,.1f} GB/s. Validations and rankings are not part of it."
    )
    return Section("time", "Time", "what training takes on this machine, about", ("", "estimate"), rows, notes=(note,))
