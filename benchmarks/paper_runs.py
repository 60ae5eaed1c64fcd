"""Runs of the paper's recipes: `python -m benchmarks.paper_runs fb15k-237/transe/eans+adv wn18rr/rotate/eans+adv`.

An override may follow a recipe after a colon: ``fb15k-237/transe/eans:sampler.negatives=1``. Records are appended to
``records/paper.jsonl``; cells that have one are not run again.
"""

from __future__ import annotations

import argparse

from benchmarks.cells import RECORDS, Cell, run_missing

FILE = RECORDS / "paper.jsonl"


def parse(text: str, seed: int) -> Cell:
    """``recipe[:override]...`` -> a cell."""
    recipe, *overrides = text.split(":")
    return Cell(recipe, tuple(overrides), seed)


def main() -> None:
    """Run the cells named on the command line that have no record yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1, help="runs at a time on the one device")
    arguments = parser.parse_args()
    cells = [parse(text, arguments.seed) for text in arguments.recipes]
    for _ in run_missing(cells, FILE, arguments.device, arguments.workers):
        pass


if __name__ == "__main__":
    main()
