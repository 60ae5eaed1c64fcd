"""A short look at FB15k-237 without a GPU: `python -m benchmarks.fb15k237_cpu`.

TransE, 64 dimensions, 5,000 steps: uniform and EANS negatives, each with and without self-adversarial weights, at the
same settings. Far from converged; it shows that training works and where the methods stand early on.
"""

from __future__ import annotations

from typing import Any

from benchmarks.cells import RECORDS, read_records, run_missing
from eans.reproduction.records import RunSpec

FILE = RECORDS / "fb15k-237-cpu.jsonl"
SETTINGS = (
    "model.dim=64",
    "sampler.negatives=16",
    "train.steps=5000",
    "train.lr=0.003",
    "train.valid_every=1000",
    "train.valid_triples=1000",
)
METHODS = ("uniform", "adv", "eans", "eans+adv")


def table(records: list[dict[str, Any]]) -> str:
    """Markdown: a row per method."""
    lines = [
        "| negatives | valid MRR | valid Hits@10 | test MRR | test Hits@10 | loss at step 100 → 5,000 |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for record in records:
        numbers = [record[split]["both"][name] for split in ("valid", "test") for name in ("mrr", "hits@10")]
        cells = " | ".join(f"{number:.3f}" for number in numbers)
        losses = " → ".join(f"{loss:.3f}" for loss in record["losses"])
        lines.append(f"| {record['recipe'].split('/')[-1]} | {cells} | {losses} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, then print a Markdown table."""
    cells = [RunSpec(f"fb15k-237/transe/{method}", SETTINGS) for method in METHODS]
    for _ in run_missing(cells, FILE, "cpu", workers=2):
        pass
    print(table(read_records(FILE)))


if __name__ == "__main__":
    main()
