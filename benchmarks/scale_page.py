"""Writes the tables of docs/explanation/scale.md: `python -m benchmarks.scale_page`.

Between ``<!-- begin NAME -->`` and ``<!-- end NAME -->`` stands what is made here: of ``records/large.jsonl``, of
``records/large-optimizers.jsonl``, and of what small trainers say of memory (`eans.description.growth`). All else is
written by hand. What a plan says of a run is kept in ``records/large-plans.jsonl`` when the run is first seen: later
versions may need less than the run did.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.large import FILE, SIZES
from benchmarks.performance_page import markdown
from benchmarks.plots import TITLES
from eans.data import Sizes
from eans.description.growth import Growth, growth, stand_in
from eans.description.planning import memory
from eans.experiments import current_commit
from eans.files import atomic_write
from eans.optimizer import OPTIMIZERS
from eans.recipes import Recipe, load
from eans.recipes.build import resolve
from eans.run import MEGABYTE

PLANS = FILE.with_name("large-plans.jsonl")
BY_OPTIMIZER = FILE.with_name("large-optimizers.jsonl")  # runs of `benchmarks.large` on one small graph
PAGE = FILE.parent.parent / "docs" / "explanation" / "scale.md"
MODELS = {"TransE, 200 wide": "transe", "ComplEx or RotatE, 400 wide": "complex"}
GRAPHS = ("1m", "5m", "20m", "freebase86m")


def recipe_with(model: str, optimizer: str, sizes: Sizes) -> Recipe:
    """Of the table of what fits: d = 200, uniform negatives n = 256, b = 1024."""
    settings = {"model.dim": 200, "train.optimizer": optimizer, "train.batch_size": 1024, "sampler.negatives": 256}
    return resolve(load(f"default/{model}/uniform", settings), stand_in(sizes))


def sizes_of(name: str) -> Sizes:
    """Of a graph of `benchmarks.large`; all triples are train."""
    return Sizes(SIZES[name].entities, SIZES[name].relations, SIZES[name].triples, 0, 0)


def formulas() -> dict[tuple[str, str], dict[str, Growth]]:
    """How memory grows, by the words for a model and an optimizer."""
    sizes = sizes_of(GRAPHS[-1])
    return {
        (words, optimizer): growth(recipe_with(model, optimizer, sizes), sizes)
        for words, model in MODELS.items()
        for optimizer in OPTIMIZERS
    }


def what_fits() -> str:
    """Peaks by model, optimizer and graph."""
    header = ["GB at the peak, on a GPU (and on a CPU)", "optimizer", "bytes per entity"]
    for name in GRAPHS:
        header.append(f"{short(SIZES[name].entities)} entities, {short(SIZES[name].triples)} triples")
    rows = []
    for (words, optimizer), parts in formulas().items():
        row = [words, optimizer, f"{parts['model'].entity + parts['optimizer'].entity:,.0f}"]
        for name in GRAPHS:
            found = memory(recipe_with(MODELS[words], optimizer, sizes_of(name)), sizes_of(name), parts)["peak"]
            row.append(f"{found['gpu'] / 1e9:,.1f} ({found['cpu'] / 1e9:,.1f})")
        rows.append(row)
    return markdown(header, rows, 2)


def short(count: int) -> str:
    """``86M``."""
    return f"{count / 1e6:.0f}M" if count >= 1e6 else f"{count / 1e3:.0f}k"


def read(file: Path) -> list[dict[str, Any]]:
    """The lines of a file; none where there is no file."""
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.is_file() else []


def records() -> list[dict[str, Any]]:
    """All runs, in the order in which they were made, each with its ``planned`` peak in bytes."""
    return [run | {"planned": plan["peak"]} for run, plan in zip(read(FILE), read(PLANS), strict=True)]


def plan_runs() -> None:
    """Keep what a plan says of the runs that have none yet."""
    runs, plans = read(FILE), read(PLANS)
    for run in runs[len(plans) :]:
        plans.append(
            {"run": len(plans), "run_commit": run["commit"], "peak": predicted(run), "commit": current_commit()}
        )
    atomic_write(PLANS, "".join(json.dumps(plan) + "\n" for plan in plans).encode())


def runs(found: Iterable[Mapping[str, Any]]) -> str:
    """Rates and memory."""
    header = ["entities", "run", "optimizer", "b", "n", "steps", "passes", "positives/s, fastest", "median"]
    header += ["a CPU second", "peak GB", "by the formula"]
    return markdown(header, (_run(record) for record in found), 3)


def _run(record: Mapping[str, Any]) -> list[str]:
    rate = record["positives_per_second"]
    return [
        short(record["entities"]),
        title(record),
        record["optimizer"],
        *(f"{record[key]:,}" for key in ("batch", "negatives", "steps")),
        f"{record['passes']:.2f}",
        *(f"{rate[key]:,}" for key in ("fastest", "median", "median_per_cpu_second")),
        f"{measured(record) / 1e9:.2f}",
        f"{record['planned'] / 1e9:.2f}",
    ]


def title(record: Mapping[str, Any]) -> str:
    """``ComplEx d=32, softmax``."""
    _, model, method = record["recipe"].split("/")
    return f"{TITLES.get(model, model)} d={record['dim']}, {method}"


def measured(record: Mapping[str, Any]) -> int:
    """The peak of a run in bytes: of the process, or of a GPU's memory."""
    return int((record["peak_mb"]["rank"] if record["device"] == "cpu" else record["peak_gpu_mb"]) * MEGABYTE)


def predicted(record: Mapping[str, Any]) -> int:
    """The peak that the formula says, in bytes."""
    sizes = Sizes(record["entities"], record["relations"], **record["graph"]["splits"])
    settings = {
        "model.dim": record["dim"],
        "train.optimizer": record["optimizer"],
        "train.batch_size": record["batch"],
        "sampler.negatives": record["negatives"],
        "train.steps": record["steps"],
    }
    recipe = resolve(load(record["recipe"], settings), stand_in(sizes))
    key = "cpu" if record["device"] == "cpu" else "gpu"
    return int(memory(recipe, sizes, growth(recipe, sizes))["peak"][key])


def quality(found: Iterable[Mapping[str, Any]]) -> str:
    """MRR of the model between that of frequencies and that of the structure."""
    header = [
        "entities",
        "run",
        "optimizer",
        "passes",
        "ranked",
        "MRR of frequencies",
        "of the model",
        "of the planted structure",
    ]
    return markdown(
        header,
        (
            [
                short(record["entities"]),
                title(record),
                record["optimizer"],
                f"{record['passes']:.2f}",
                record["protocol"].rpartition("; ")[2],
                *(f"{record['valid'][key]['mrr']:.4f}" for key in ("frequency", "model", "planted")),
            ]
            for record in found
        ),
        3,
    )


def by_optimizer(found: Iterable[Mapping[str, Any]]) -> str:
    """MRR by optimizer and learning rate, the best rate of each optimizer in bold."""
    mrr: dict[tuple[str, str], dict[float, float]] = {}
    for record in found:
        mrr.setdefault((title(record), record["optimizer"]), {})[record["lr"]] = record["valid"]["model"]["mrr"]
    rates = sorted({rate for values in mrr.values() for rate in values})
    rows = [
        [
            *key,
            *(
                "-"
                if rate not in values
                else f"{'**' * (best := values[rate] == max(values.values()))}{values[rate]:.4f}{'**' * best}"
                for rate in rates
            ),
        ]
        for key, values in mrr.items()
    ]
    return markdown(["run", "optimizer", *(f"lr {rate:g}" for rate in rates)], rows, 2)


def made(found: Iterable[Mapping[str, Any]]) -> str:
    """What making the graphs took."""
    graphs = {record["entities"]: record["graph"] for record in found}
    header = ["entities", "triples drawn", "different ones", "CPU s", "peak MB"]
    rows = [
        [
            f"{graph['entities']:,}",
            f"{graph['triples']:,}",
            f"{sum(graph['splits'].values()):,}",
            f"{graph['cpu_seconds']:.0f}",
            f"{graph['peak_mb']:,}",
        ]
        for _, graph in sorted(graphs.items())
    ]
    return markdown(header, rows, 0)


PARTS: dict[str, Callable[[], str]] = {
    "what-fits": what_fits,
    "graphs": lambda: made(records()),
    "runs": lambda: runs(records()),
    "quality": lambda: quality(records()),
    "optimizers": lambda: by_optimizer(read(BY_OPTIMIZER)),
}


def written(page: str, name: str) -> str:
    """What the page has between the marks of a part."""
    found = re.findall(rf"<!-- begin {name} -->\n\n(.*?)\n\n<!-- end {name} -->", page, re.DOTALL)
    if len(found) != 1:
        raise SystemExit(f"{PAGE}: expected one part between <!-- begin {name} --> and <!-- end {name} -->")
    return str(found[0])


def main(page: Path = PAGE) -> None:
    """Rewrite the page."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    plan_runs()
    text = page.read_text("utf-8")
    for name, make in PARTS.items():
        begin, end = f"<!-- begin {name} -->\n\n", f"\n\n<!-- end {name} -->"
        text = text.replace(begin + written(text, name) + end, begin + make() + end)
    atomic_write(page, text.encode())


if __name__ == "__main__":
    main()
