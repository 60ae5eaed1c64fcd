"""Runs of the paper's recipes: `python -m benchmarks.paper_runs fb15k-237/transe/eans+adv wn18rr/rotate/eans+adv`.

An override may follow a recipe after a colon: ``fb15k-237/transe/eans:sampler.negatives=1``. Records are appended to
``records/paper.jsonl``; cells that have one are not run again.
"""

from __future__ import annotations

import argparse
from typing import Any

from benchmarks.cells import RECORDS, Cell, read_records, run_missing

FILE = RECORDS / "paper.jsonl"
# MRR and Hits@10 that the paper prints, for the cells that have been run so far.
PUBLISHED = {
    "fb15k-237/transe/eans": (0.338, 0.526),
    "fb15k-237/transe/eans+adv": (0.342, 0.534),
    "fb15k-237/rotate/eans+adv": (0.344, 0.537),
    "wn18rr/rotate/eans+adv": (0.489, 0.576),
}


def parse(text: str, seed: int) -> Cell:
    """``recipe[:override]...`` -> a cell."""
    recipe, *overrides = text.split(":")
    return Cell(recipe, tuple(overrides), seed)


def table(records: list[dict[str, Any]]) -> str:
    """Markdown: each run beside the published numbers."""
    lines = [
        "| recipe | seed | MRR | published | Hits@10 | published | MR | training | hardware |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for record in sorted(records, key=lambda record: str(record["key"])):
        beside = f", {record['runs_at_a_time']} at a time" if "runs_at_a_time" in record else ""
        both, published = record["test"]["both"], PUBLISHED.get(record["key"].rpartition(" ")[0], ("", ""))
        lines.append(
            f"| `{record['key'].rpartition(' ')[0]}` | {record['seed']} | {both['mrr']:.4f} | {published[0]} "
            f"| {both['hits@10']:.4f} | {published[1]} | {both['mr']:.0f} | {record['seconds']:.0f} s{beside} "
            f"| {record['hardware']} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the cells named on the command line that have no record yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1, help="runs at a time on the one device")
    arguments = parser.parse_args()
    cells = [parse(text, arguments.seed) for text in arguments.recipes]
    for _ in run_missing(cells, FILE, arguments.device, arguments.workers):
        pass
    print(table(read_records(FILE)))


if __name__ == "__main__":
    main()
