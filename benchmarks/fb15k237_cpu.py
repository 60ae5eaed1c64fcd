"""A short look at FB15k-237 without a GPU: `python -m benchmarks.fb15k237_cpu`.

TransE, 64 dimensions, 5,000 steps: uniform and EANS negatives, each with and without self-adversarial weights, at the
same settings. Far from converged; it shows that training works and where the methods stand early on.
"""

from __future__ import annotations

from benchmarks.cells import RECORDS, Cell, read_records, run_missing

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


def main() -> None:
    """Run what is missing, then print a Markdown table."""
    cells = [Cell(f"fb15k-237/transe/{method}", SETTINGS) for method in METHODS]
    for _ in run_missing(cells, FILE, "cpu", workers=2):
        pass
    print(
        "| negatives | valid MRR | valid Hits@10 | test MRR | test Hits@10 | minutes |\n|---|---:|---:|---:|---:|---:|"
    )
    for record in read_records(FILE):
        numbers = [record[split]["both"][name] for split in ("valid", "test") for name in ("mrr", "hits@10")]
        cells_text = " | ".join(f"{number:.4f}" for number in numbers)
        print(f"| {record['recipe'].split('/')[-1]} | {cells_text} | {record['seconds'] / 60:.1f} |")


if __name__ == "__main__":
    main()
