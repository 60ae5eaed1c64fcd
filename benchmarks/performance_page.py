"""Writes the tables of docs/explanation/performance.md from the records: `python -m benchmarks.performance_page`.

Between ``<!-- begin NAME -->`` and ``<!-- end NAME -->`` the page holds what the section NAME makes of its record; all
else is written by hand. A section whose record is missing says how to make it.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import cpu_report, prediction
from benchmarks.cells import RECORDS, negatives_of, published, read_records, recipe_of
from benchmarks.gpu_targets import TARGETS
from benchmarks.plots import FIGURES, TITLES, sweep
from benchmarks.speed_record import with_current_names
from eans.files import atomic_write
from eans.models import MODELS

PAGE = RECORDS.parent / "docs" / "explanation" / "performance.md"
GRAPHS = {"fb15k-237": "FB15k-237", "wn18rr": "WN18RR", "wordnet-core": "wordnet-core"}
GIB = 2.0**-30
NEAR_BEST = 0.99


class Section(NamedTuple):
    """A part of the page.

    Attributes:
        record: the file under ``records/`` it is made from.
        part: the section of that file it needs, if the file has sections.
        render: Markdown from the record, or from its part.
        command: what makes the record.
    """

    record: str
    part: str | None
    render: Callable[[Any], str]
    command: str


def markdown(header: list[str], rows: Iterable[list[str]], flush_left: int = 1) -> str:
    """A table; the first columns flush left, the others flush right."""
    marks = ["---" if index < flush_left else "---:" for index in range(len(header))]
    lines = [" | ".join(cells) for cells in (header, *rows)]
    return "\n".join([f"| {lines[0]} |", f"|{'|'.join(marks)}|", *(f"| {line} |" for line in lines[1:])])


def title(recipe: str) -> str:
    """``"fb15k-237/transe/eans+adv"`` -> ``"FB15k-237, TransE"``."""
    graph, model = recipe.split("/")[:2]
    return f"{GRAPHS.get(graph, graph)}, {TITLES.get(model, model)}"


def target_of(section: str, cell: str, key: str) -> str:
    """The limit that `gpu_targets` sets, in the unit of the record times its scale; ``-`` where there is none."""
    limits = [t.limit for t in TARGETS if (t.section, t.cell, t.key) == (section, cell, key)]
    return f"{limits[0]:g}" if limits else "-"


def stand_ins(cells: Iterable[dict[str, Any]]) -> list[str]:
    """A line under the table where random triples stood in for a graph."""
    made_up = any(str(cell.get("graph", "")).startswith("synthetic") for cell in cells)
    return ["", "Measured on random triples of the graphs' sizes."] if made_up else []


# --- GPU ------------------------------------------------------------------------------------------------------------


def gpu_origin(record: dict[str, Any]) -> str:
    """Hardware, and for each section its date, commit and versions."""
    hardware = record["hardware"]
    caches = f"{hardware['memory_gib']:.0f} GiB of memory, {hardware['l2_mib']:.0f} MiB of L2 cache"
    rows = [
        [name, part["date"][:10], f"`{part['commit'][:12]}`"]
        + [str(part["versions"].get(package) or "-") for package in ("python", "torch", "triton", "cuda")]
        for name, part in record["sections"].items()
    ]
    header = ["section", "date", "commit", "Python", "PyTorch", "Triton", "CUDA"]
    about = f"{hardware['name']}: {hardware['multiprocessors']} multiprocessors, {caches}."
    return f"{about}\n\n{markdown(header, rows, 7)}"


def steps(part: dict[str, Any]) -> str:
    """Whole steps beside their targets."""
    cells = [cell for cell in part["cells"].items() if is_plain(cell[0])]
    rows = [
        [
            f"{title(cell['recipe'])}{', n = ' + str(cell['negatives']) if 'sampler.negatives' in key else ''}",
            f"{cell['dim']}",
            f"{cell['batch']}",
            f"{cell['negatives']}",
            f"{cell['ms']:.3f}",
            target_of("steps", key, "ms"),
            f"{cell['batch'] / cell['ms']:,.0f}",
            f"{cell['reorder_ms']:.1f}",
        ]
        for key, cell in cells
    ]
    header = ["training step", "d", "b", "n", "ms", "target ms", "thousand triples/s", "re-order ms"]
    return "\n".join([markdown(header, rows), *stand_ins(cell for _, cell in cells)])


def is_plain(key: str) -> bool:
    """Is it a cell of its own, and not one of a sweep? Those with targets are."""
    return " " not in key or any(key == target.cell for target in TARGETS)


def sizes(part: dict[str, Any]) -> str:
    """Milliseconds against n and against d."""
    found = []
    for over, sign, fixed in (("negatives", "n", "d = 1000"), ("dim", "d", "n = 256")):
        lines = sweep({"sections": {"steps": part}}, over)
        values = sorted({x for line in lines for x in line.x})
        rows = [
            [line.label, *(f"{dict(zip(line.x, line.y, strict=True)).get(x, float('nan')):.3f}" for x in values)]
            for line in lines
        ]
        header = [f"ms, FB15k-237, b = 1024, {fixed}", *(f"{sign} = {x:g}" for x in values)]
        found.append(markdown(header, rows))
    return "\n\n".join(found)


def rounded(record: dict[str, Any]) -> str:
    """Steps and errors with candidate rows in bfloat16."""
    cells, findings = record["sections"]["steps"]["cells"], record["sections"]["check"]["findings"]
    rows = []
    for key, cell in cells.items():
        if not key.endswith("train.rows=bfloat16"):
            continue
        name = f"{MODELS[cell['model']].comparison} with bfloat16 rows: "
        errors = {f["name"].removeprefix(name): f["error"] for f in findings if f["name"].startswith(name)}
        rows.append(
            [
                title(cell["recipe"]),
                f"{cells[cell['recipe']]['ms']:.3f}",
                f"{cell['ms']:.3f}",
                f"{errors['scores']:.1e}",
                f"{errors['query gradient']:.1e}",
            ]
        )
    header = ["training step", "float32 ms", "bfloat16 ms", "error of scores", "error of the queries' gradient"]
    return markdown(header, rows)


def all_entities(part: dict[str, Any]) -> str:
    """Steps of the softmax over all entities, beside plain PyTorch."""
    rows = [
        [
            title(cell["recipe"]), str(cell["width"]), str(cell["batch"]), f"{cell['ms']:.2f}",
            f"{cell['rounded_ms']:.2f}", f"{cell['plain_ms']:.2f}",
            f"{cell['plain_ms'] / cell['ms']:.1f}x, {cell['plain_ms'] / cell['rounded_ms']:.1f}x",
            f"{cell['floor_ms']:.2f}",
        ]
        for cell in part["cells"].values()
    ]  # fmt: skip
    header = ["training step", "width", "b", "ms", "bfloat16 ms", "PyTorch ms", "ratios", "floor ms"]
    return markdown(header, rows)


def samplers(part: dict[str, Any]) -> str:
    """Steps of samplers beside uniform ones."""
    rows = [
        [
            f"`{name}`",
            f"{cell['negatives']}",
            f"{cell['scored']}",
            f"{cell['ms']:.3f}",
            f"{cell['uniform_ms']:.3f}",
            f"{cell['ratio']:.2f}x" + ("" if cell["recorded"] else " (not recorded)"),
        ]
        for name, cell in part["cells"].items()
    ]
    header = ["sampler, TransE on FB15k-237", "n", "scored", "ms", "uniform ms", "ratio"]
    found = [markdown(header, rows)]
    if "sorting" in part:
        rows = [
            [title(name), f"{cell['unsorted_ms']:.3f}", f"{cell['sorted_ms']:.3f}", "yes" if cell["sorts"] else "no"]
            for name, cell in part["sorting"].items()
        ]
        found.append(markdown(["`adv`, candidates", "as drawn, ms", "sorted, ms", "sorted by default"], rows))
    return "\n\n".join(found)


def kernel_table(cases: dict[str, list[dict[str, Any]]], what: str, cell: Callable[[dict[str, Any]], str]) -> str:
    """A row per kernel, a column per recipe."""
    names = list(dict.fromkeys(row["name"] for rows in cases.values() for row in rows))
    found = {label: {row["name"]: cell(row) for row in rows} for label, rows in cases.items()}
    rows = [[name, *(found[label].get(name, "") for label in cases)] for name in names]
    return markdown([what, *(title(label) for label in cases)], rows)


def kernel_rows(part: dict[str, Any]) -> str:
    """Each kernel alone: milliseconds and share of the floor; and inside a CUDA graph."""

    def alone(row: dict[str, Any]) -> str:
        return f"{row['ms']:.3f} ({row['percent_of_floor']:.0f} %)" if "ms" in row else "failed"

    def replayed(row: dict[str, Any]) -> str:
        return "-" if row.get("replayed_ms") is None else f"{row['replayed_ms']:.3f}"

    speed = (
        f"Memory {part['copy_bytes_per_s'] / 1e12:.2f} TB/s (a large copy, read plus written), "
        f"arithmetic {part['multiply_adds_per_s'] / 1e12:.1f} T float32 instructions/s (a large matrix product)."
    )
    cases = part["cases"]
    return "\n\n".join(
        [
            speed,
            kernel_table(cases, "ms alone (share of floor)", alone),
            kernel_table(cases, "ms in a CUDA graph", replayed),
        ]
    )


def kmeans(part: dict[str, Any]) -> str:
    """Re-orderings by size."""
    rows = [
        [
            f"{cell['entities']:,}",
            f"{cell['width']}",
            f"{cell['clusters']}",
            f"{cell['cold_ms']:.1f}",
            f"{cell['warm_ms']:.1f}",
            f"{cell['feature_bytes'] * GIB:.2f}",
            f"{cell['peak_bytes'] * GIB:.2f}",
        ]
        for cell in part["cells"].values()
    ]
    return markdown(["entities", "width", "k", "first ms", "later ms", "features GiB", "peak GiB"], rows, 0)


def ranking(part: dict[str, Any]) -> str:
    """Whole test sets, both sides."""
    rows = [
        [
            title(key),
            f"{cell['queries']:,}",
            f"{1e3 * cell['seconds']:.0f}",
            target_of("ranking", key, "seconds"),
            f"{cell['queries'] / cell['seconds']:,.0f}",
            f"{cell['peak_bytes'] * GIB:.2f}",
        ]
        for key, cell in part["cells"].items()
    ]
    header = ["filtered ranking of test", "queries", "ms", "target ms", "queries/s", "peak GiB"]
    return "\n".join([markdown(header, rows), *stand_ins(part["cells"].values())])


def memory(part: dict[str, Any]) -> str:
    """Peak memory of training, beside what one tensor of all differences would take."""
    rows = []
    for key, cell in part["cells"].items():
        if " " in key:
            continue
        width = MODELS[cell["model"]].candidate_width * cell["dim"]
        never = 4 * cell["batch"] * cell["negatives"] * width
        numbers = [cell["steady_bytes"], cell["peak_bytes"], never]
        rows.append([title(key), *(f"{number * GIB:.2f}" for number in numbers), target_of("steps", key, "peak_bytes")])
    header = ["GiB", "steps", "peak with re-ordering", "one `[b, n, d]` tensor alone", "target for the peak"]
    return markdown(header, rows)


def quality(runs: list[dict[str, Any]]) -> str:
    """Whole runs: how long they trained and what came out."""
    rows, targets = [], published()
    for run in runs:
        both, curve = run["test"]["both"], run["curve"]
        best = max(point["mrr"] for point in curve)
        near = next(point["seconds"] for point in curve if point["mrr"] >= NEAR_BEST * best)
        target = targets.get(run["recipe"])
        fast = recipe_of(run)
        rows.append(
            [
                f"**`{fast}`**" if fast.endswith("/fast") else f"`{' '.join([run['recipe'], *run['overrides']])}`",
                f"{negatives_of(run)}",
                f"{run['steps']:,}",
                f"{run['seed']}",
                f"{run['seconds']:.1f}",
                f"{near:.1f}",
                f"{both['mrr']:.4f}",
                f"{both['hits@10']:.4f}",
                f"{target[0]:.3f}" if target else "-",
            ]
        )
    header = [
        "run",
        "n",
        "steps",
        "seed",
        "training s",
        "s to 99 % of its best valid MRR",
        "test MRR",
        "Hits@10",
        "paper's MRR",
    ]
    about = f"{', '.join(sorted({run['hardware'] for run in runs}))}."
    included = sum("validation_seconds" not in run for run in runs)
    if included:
        which = "all of these runs" if included == len(runs) else f"{included} of these runs"
        about += f" Training seconds of {which}, whose records have no `validation_seconds`, include their validations."
    return f"{about}\n\n{markdown(header, sorted(rows, key=lambda row: float(row[4])))}"


# --- CPU ------------------------------------------------------------------------------------------------------------


# --- the page -------------------------------------------------------------------------------------------------------

GPU, CPU = "python -m benchmarks.gpu", "python -m benchmarks.cpu"
SECTIONS: dict[str, Section] = {
    "gpu-origin": Section("gpu-speed.json", None, gpu_origin, GPU),
    "gpu-steps": Section("gpu-speed.json", "steps", steps, GPU),
    "gpu-sizes": Section("gpu-speed.json", "steps", sizes, GPU),
    "gpu-rounded": Section("gpu-speed.json", None, rounded, GPU),
    "gpu-all-entities": Section("gpu-speed.json", "all-entities", all_entities, GPU),
    "gpu-samplers": Section("gpu-speed.json", "samplers", samplers, GPU),
    "gpu-kernels": Section("gpu-speed.json", "kernels", kernel_rows, GPU),
    "gpu-kmeans": Section("gpu-speed.json", "kmeans", kmeans, GPU),
    "gpu-ranking": Section("gpu-speed.json", "ranking", ranking, GPU),
    "gpu-memory": Section("gpu-speed.json", "steps", memory, GPU),
    "quality": Section("fast.jsonl", None, quality, f"{GPU} --only quality --runs RECIPE..."),
    "cpu-origin": Section("cpu-speed.json", None, cpu_report.origin, CPU),
    **{f"cpu-{name}": Section("cpu-speed.json", None, table, CPU) for name, table in cpu_report.TABLES.items()},
    "prediction": Section("prediction.json", None, prediction.page, "python -m benchmarks.prediction"),
}
# Figures stand under the section they show.
DRAWN = {
    "gpu-sizes": ("step-time", "Milliseconds per training step against the number of negatives and the width"),
    "quality": ("time-to-mrr", "Validation MRR against training seconds"),
    "cpu-steps": ("cpu-ratios", "How many times faster than PyKEEN on a CPU"),
}


def content(section: Section, records: Path) -> Any | None:
    """The record of a section; None where it is missing or only tried out."""
    file = records / section.record
    if not file.is_file():
        return None
    if file.suffix == ".jsonl":
        return read_records(file) or None
    record = with_current_names(json.loads(file.read_text("utf-8")))
    if section.part is None:
        return record
    part = record["sections"].get(section.part)
    return None if part is None or part.get("quick") else part


def rendered(name: str, records: Path = RECORDS, figures: Path = FIGURES) -> str:
    """What stands between the marks of a section."""
    section = SECTIONS[name]
    found = content(section, records)
    if found is None:
        return f"Not measured yet: `{section.command}`."
    drawing, caption = DRAWN.get(name, ("", ""))
    shown = drawing and (figures / f"{drawing}.svg").is_file()
    return section.render(found) + (f"\n\n![{caption}](figures/{drawing}.svg)" if shown else "")


def written(page: str, name: str) -> str:
    """What the page has between the marks of a section."""
    found = re.findall(rf"<!-- begin {name} -->\n\n(.*?)\n\n<!-- end {name} -->", page, re.DOTALL)
    if len(found) != 1:
        raise SystemExit(f"{PAGE.name} has {len(found)} sections '{name}', not one")
    return str(found[0])


def updated(page: str, records: Path = RECORDS, figures: Path = FIGURES) -> str:
    """The page with every section made anew."""
    for name in SECTIONS:
        begin, end = f"<!-- begin {name} -->\n\n", f"\n\n<!-- end {name} -->"
        page = page.replace(begin + written(page, name) + end, begin + rendered(name, records, figures) + end)
    return page


def main() -> None:
    """Rewrite the page."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    before = PAGE.read_text("utf-8")
    after = updated(before)
    atomic_write(PAGE, after.encode())
    for name, section in SECTIONS.items():
        changed = written(before, name) != written(after, name)
        missing = content(section, RECORDS) is None
        print(f"{name}: {'no record' if missing else 'written anew' if changed else 'as it was'}")


if __name__ == "__main__":
    main()
