"""Four ways to choose negatives on the bundled graph: `python -m benchmarks.compare_samplers`.

TransE and RotatE, uniform and EANS negatives, each with and without self-adversarial weights, 4 and 64 negatives,
three seeds, equal steps. Prints a Markdown table of what the records under ``records/`` hold.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from typing import Any

from benchmarks.cells import RECORDS, read_records, run_missing
from eans.reproduction.records import RunSpec

FILE = RECORDS / "wordnet-core-samplers.jsonl"
MODELS = ("transe", "rotate")
METHODS = {"uniform": "uniform", "adv": "self-adversarial", "eans": "EANS", "eans+adv": "EANS + self-adversarial"}
NEGATIVES = (4, 64)


def cells(seeds: int) -> list[RunSpec]:
    """The longest runs first, so that no core waits at the end."""
    return [
        RunSpec(f"wordnet-core/{model}/{method}", (f"sampler.negatives={n}",), seed)
        for n in reversed(NEGATIVES)
        for model in reversed(MODELS)
        for method in METHODS
        for seed in range(seeds)
    ]


def spread(values: list[float]) -> str:
    """``mean ± sample standard deviation``."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.3f} ± {deviation:.3f}"


def grouped(records: list[dict[str, Any]]) -> dict[tuple[str, int, str], list[dict[str, float]]]:
    """Test metrics of the seeds of each (model, n, method)."""
    groups: dict[tuple[str, int, str], list[dict[str, float]]] = defaultdict(list)
    for record in records:
        _, model, method = record["recipe"].split("/")
        negatives = int(record["overrides"][0].partition("=")[2])
        groups[model, negatives, method].append(record["test"]["both"])
    return groups


def summary(records: list[dict[str, Any]]) -> str:
    """Markdown: mean MRR, a row per model and n, a column per method."""
    groups = grouped(records)
    lines = [f"| MRR | n | {' | '.join(METHODS.values())} |", f"|---|---:{'|---:' * len(METHODS)}|"]
    for model in MODELS:
        for n in NEGATIVES:
            means = [statistics.mean(metrics["mrr"] for metrics in groups[model, n, method]) for method in METHODS]
            cells = [f"**{mean:.3f}**" if mean == max(means) else f"{mean:.3f}" for mean in means]
            lines.append(f"| {model} | {n} | {' | '.join(cells)} |")
    return "\n".join(lines)


def table(records: list[dict[str, Any]]) -> str:
    """Markdown: a row per model, n and method; mean and standard deviation over seeds."""
    groups = grouped(records)
    lines = ["| model | n | negatives | MRR | Hits@1 | Hits@10 | MR | seeds |", "|---|---:|---|---|---|---|---:|---:|"]
    for model in MODELS:
        for n in NEGATIVES:
            for method, title in METHODS.items():
                both = groups[model, n, method]
                if not both:
                    continue
                columns = [spread([metrics[name] for metrics in both]) for name in ("mrr", "hits@1", "hits@10")]
                rank = statistics.mean(metrics["mr"] for metrics in both)
                lines.append(f"| {model} | {n} | {title} | {' | '.join(columns)} | {rank:.0f} | {len(both)} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=2, help="runs at a time")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--table-only", action="store_true", help="run nothing")
    arguments = parser.parse_args()
    if not arguments.table_only:
        for _ in run_missing(cells(arguments.seeds), FILE, arguments.device, arguments.workers):
            pass
    print(table(read_records(FILE)))


if __name__ == "__main__":
    main()
