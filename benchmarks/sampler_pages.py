"""Writes the tables of docs/explanation/samplers from the records: `python -m benchmarks.sampler_pages`.

Between ``<!-- begin generated: NAME -->`` and ``<!-- end generated: NAME -->`` a page holds what NAME makes of the
records; all else is written by hand. Quality is from the runs of `compare_all_samplers`, measurements are from
`sampler_measurements`, and times from `compare_all_samplers --costs`.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import compare_all_samplers, sampler_costs, sampler_measurements
from benchmarks.cells import RECORDS, read_records, spread
from benchmarks.compare_all_samplers import BUDGET, MODELS, SELECTED, Entry, negatives_for, pairs, runs_of, scored
from benchmarks.performance_page import markdown
from benchmarks.plots import TITLES
from eans.cli.inspect import written as number
from eans.files import atomic_write

FOLDER = RECORDS.parent / "docs" / "explanation" / "samplers"
INDEX = "README"
SEEDS = 3
BASELINE = "uniform"
# The rows of each page, after the baseline's.
PAGES: dict[str, tuple[str, ...]] = {
    "uniform": (),
    "self-adversarial": ("self-adversarial",),
    "softmax": ("softmax",),
    "all": ("all entities", "all entities, N3"),
    "bernoulli": ("Bernoulli",),
    "frequency": ("frequency", "frequency, by place", "pseudo-typed"),
    "nscaching": ("NSCaching",),
    "kbgan": ("KBGAN",),
    "igan": ("IGAN",),
    "sans": ("SANS", "SANS + self-adversarial"),
    "stay-positive": ("Stay Positive",),
    "eans": ("Gaussian", "EANS", "EANS, block", "EANS, Student", "EANS, 4 orders", "EANS + self-adversarial"),
}
# Columns of measurements: the number, its heading, and how it is written.
COLUMNS = (
    ("gap", "score gap", "score"),
    ("above", "above positive", "share"),
    ("idle", "idle", "share"),
    ("known", "false: train", "share"),
    ("held_out", "false: held out", "share"),
    ("entities", "entities drawn", "share"),
    ("effective", "entities effective", "share"),
    ("repeats", "repeats in row", "share"),
)
RUN = "python -m benchmarks.compare_all_samplers"
NOT_YET = "Not measured yet: `{}`."
CLEAR = 2.0  # standard deviations that a difference must exceed


@dataclass(frozen=True)
class Found:
    """What the records hold.

    Attributes:
        runs: whole trainings.
        inspections: by title.
        costs: a part for each hardware.
    """

    runs: list[dict[str, Any]]
    inspections: dict[str, dict[str, Any]]
    costs: list[dict[str, Any]]

    @classmethod
    def read(cls, folder: Path = RECORDS) -> Found:
        """The three files of a folder, as far as they are there."""
        return cls(
            read_records(folder / compare_all_samplers.FILE.name),
            sampler_measurements.read(folder / sampler_measurements.FILE.name),
            sampler_costs.read(folder / sampler_costs.FILE.name),
        )

    def values(self, model: str, entry: Entry, metric: str) -> list[float]:
        """A test metric of the seeds of a row."""
        return [run["test"]["both"][metric] for run in runs_of(self.runs, entry, model, BUDGET, SEEDS)]


def shown(titles: tuple[str, ...] | None, models: tuple[str, ...] | None = None) -> list[tuple[str, Entry]]:
    """The rows with these titles and models; None for all."""
    return [
        (model, entry)
        for model, entry in pairs()
        if (titles is None or entry.title in titles) and (models is None or model in models)
    ]


def by_title(rows: list[tuple[str, Entry]]) -> dict[str, dict[str, Entry]]:
    """``{title: {model: entry}}`` in the order of the rows."""
    found: dict[str, dict[str, Entry]] = {}
    for model, entry in rows:
        found.setdefault(entry.title, {})[model] = entry
    return found


def difference(values: list[float], baseline: list[float]) -> str:
    """``+0.012`` over the baseline, bold if it is more than twice the larger standard deviation of the two."""
    if len(values) < 2 or len(baseline) < 2:
        return "-"
    gain = statistics.mean(values) - statistics.mean(baseline)
    clear = abs(gain) > CLEAR * max(statistics.stdev(values), statistics.stdev(baseline))
    return f"**{gain:+.3f}**" if clear else f"{gain:+.3f}"


def mean(values: list[float]) -> str:
    """With its standard deviation, if there is one."""
    return spread(values) if len(values) > 1 else f"{values[0]:.3f}"


def quality(found: Found, rows: list[tuple[str, Entry]]) -> str:
    """A row per method; for each model MRR, what it is over uniform negatives, and Hits@10."""
    models = list(dict.fromkeys(model for model, _ in rows))
    if not any(found.values(model, entry, "mrr") for model, entry in rows):
        return NOT_YET.format(RUN)
    header = ["negatives", "n", "scored"]
    for model in models:
        name = TITLES.get(model, model)
        header += [f"{name} MRR", "over uniform", "Hits@10"]
    lines, seeds = [], set()
    for title, entries in by_title(rows).items():
        model, entry = next(iter(entries.items()))
        n = negatives_for(entry, model, BUDGET)
        line = [title, f"{n}", f"{scored(entry, model, n):.0f}"]
        for name in models:
            if name not in entries or not (mrr := found.values(name, entries[name], "mrr")):
                line += ["-", "-", "-"]
                continue
            baseline = found.values(name, by_title(rows)[BASELINE][name], "mrr")
            over = "" if title == BASELINE else difference(mrr, baseline)
            seeds.add(len(mrr))
            line += [mean(mrr), over, mean(found.values(name, entries[name], "hits@10"))]
        lines.append(line)
    few = f"{min(seeds)} to {max(seeds)}" if min(seeds) < max(seeds) else f"{min(seeds)}"
    short = f"\n\nSo far with {few} of {SEEDS} seeds." if min(seeds) < SEEDS else ""
    return markdown(header, lines) + short


def measurements(found: Found, titles: tuple[str, ...] | None) -> str:
    """The last measurement of each method."""
    chosen = {title: part for title, part in found.inspections.items() if titles is None or title in titles}
    if not chosen:
        return NOT_YET.format("python -m benchmarks.sampler_measurements")
    order = [entry.title for entry in sampler_measurements.rows() if entry.title in chosen]
    lines = [
        [title, f"{chosen[title]['negatives']}"]
        + [number(chosen[title]["measurements"][-1][name], kind) for name, _, kind in COLUMNS]
        for title in order
    ]
    return markdown(["negatives", "n", *(heading for _, heading, _ in COLUMNS)], lines)


def costs(found: Found, rows: list[tuple[str, Entry]]) -> str:
    """For each hardware, a row per method: a step of each model, and drawing alone."""
    if not found.costs:
        return NOT_YET.format(f"{RUN} --costs")
    models = list(dict.fromkeys(model for model, _ in rows))
    tables = []
    for part in found.costs:
        lines = []
        for title in by_title(rows):
            drawn = [part["cells"][f"{model}/{title}"] for model in models if f"{model}/{title}" in part["cells"]]
            if drawn:
                draw, memory = f"{drawn[0]['sampling_ms']:.2f}", number(drawn[0]["sampler_bytes"], "bytes")
                lines.append([title, *(sampler_costs.cost(part, model, title) for model in models), draw, memory])
        header = ["time per step", *(TITLES.get(model, model) for model in models), "ms to draw", "MB of state"]
        tables.append(f"{sampler_costs.origin(part)}\n\n{markdown(header, lines)}")
    return "\n\n".join(tables)


def page_block(page: str, found: Found) -> str:
    """All that was measured of a sampler: its negatives, its results and its costs, beside uniform ones."""
    titles = (BASELINE, *PAGES[page])
    own = {entry.title for entry in sampler_measurements.rows()} & set(PAGES[page])
    parts = []
    if own or page == BASELINE:
        parts.append(
            "What the negatives are like after the last step, TransE ([the numbers](../../how-to/inspect.md)):"
        )
        parts.append(measurements(found, titles))
    # The few rows of a model that is compared in few are shown together.
    models = [model for model in MODELS if page == BASELINE or shown(PAGES[page], (model,))]
    selected = [model for model in SELECTED if any(entry.title in PAGES[page] for _, entry in shown(titles, (model,)))]
    rows = shown(titles, tuple(models)) if models else []
    few = shown(None, tuple(selected)) if selected else []
    parts.append("Filtered ranks of the test triples, three seeds ([how it was compared](README.md)):")
    parts += [quality(found, part) for part in (rows, few) if part]
    parts.append("Time per step, as a multiple of that with uniform negatives:")
    parts += [costs(found, part) for part in (rows, few) if part][:1]
    return "\n\n".join(parts)


def index_blocks() -> dict[str, Callable[[Found], str]]:
    """The blocks of the index."""
    return {
        "quality": lambda found: quality(found, shown(None, MODELS)),
        "selected": lambda found: quality(found, shown(None, tuple(SELECTED))),
        "measurements": lambda found: measurements(found, None),
        "costs": lambda found: costs(found, shown(None)),
    }


def blocks(page: str) -> dict[str, Callable[[Found], str]]:
    """What is generated on a page, by the names in its marks."""
    return index_blocks() if page == INDEX else {"measured": lambda found: page_block(page, found)}


def between(text: str, page: str, name: str) -> str:
    """What a page has between the marks of a block."""
    found = re.findall(rf"<!-- begin generated: {name} -->\n\n(.*?)\n\n<!-- end generated: {name} -->", text, re.DOTALL)
    if len(found) != 1:
        raise SystemExit(f"{page}.md has {len(found)} blocks '{name}', not one")
    return str(found[0])


def updated(text: str, page: str, found: Found) -> str:
    """A page with every block made anew."""
    for name, render in blocks(page).items():
        begin, end = f"<!-- begin generated: {name} -->\n\n", f"\n\n<!-- end generated: {name} -->"
        text = text.replace(begin + between(text, page, name) + end, begin + render(found) + end)
    return text


def main() -> None:
    """Rewrite the pages."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    found = Found.read()
    for page in (INDEX, *PAGES):
        file = FOLDER / f"{page}.md"
        before = file.read_text("utf-8")
        after = updated(before, page, found)
        atomic_write(file, after.encode())
        print(f"{file.name}: {'as it was' if before == after else 'written anew'}")


if __name__ == "__main__":
    main()
