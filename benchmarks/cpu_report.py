"""The record of `benchmarks.cpu` as Markdown tables, with the ratio that each line must reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Times PyKEEN at least, by (model, dim); the sizes are those of `benchmarks.cpu.STEP_CELLS`.
STEP_TARGETS = {("transe", 1000): 12.0, ("distmult", 1000): 12.0, ("rotate", 1000): 5.0}
SMALL_STEP_TARGET = 5.0
SUBSTITUTION_TARGET = 6.0
RANKING_TARGET = 8.0
MEMORY_TARGET = 4.0  # PyKEEN's peak memory divided by ours
FIRST_STEP_TARGET = 4.0
SWEEP_TARGET = 1.0


def verdict(value: float, target: float) -> str:
    """``target, met`` or ``target, missed``."""
    return f"{target:g}x | {'met' if value >= target else 'MISSED'}"


def step_lines(rows: list[dict[str, Any]]) -> list[str]:
    """A line per cell and method.

    "Least" is PyKEEN's fastest step over our slowest one; "others" the cores that other programs used meanwhile.
    """
    lines = [
        "| training step | negatives | eans ms | PyKEEN ms | least | others, eans / PyKEEN | ratio | target | |",
        "|---|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        size = f"{row['model']} d={row['dim']} b={row['batch']} n={row['negatives']}"
        theirs = row["pykeen"]["seconds"]
        plain = STEP_TARGETS.get((row["model"], row["dim"]), SMALL_STEP_TARGET)
        for name, title, target in (
            ("eans adv", "self-adversarial", plain),
            ("eans eans+adv", "EANS, substitution", SUBSTITUTION_TARGET),
        ):
            if name in row:
                ratio = theirs / row[name]["seconds"]
                least = row["pykeen"]["least"] / row[name]["most"]
                others = f"{row[name]['others_busy']:.1f} / {row['pykeen']['others_busy']:.1f}"
                times = f"{1e3 * row[name]['seconds']:.1f} | {1e3 * theirs:.0f}"
                numbers = f"{times} | {least:.1f}x | {others} | {ratio:.1f}x"
                lines.append(f"| {size} | {title} | {numbers} | {verdict(ratio, target)} |")
    return lines


def memory_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Peak memory of the training processes; `above` is what came after importing and loading the graph."""
    lines = [
        "| peak memory of training | negatives | eans MB | PyKEEN MB | ratio | above imports | target | |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        size = f"{row['model']} d={row['dim']} b={row['batch']} n={row['negatives']}"
        peer = row["pykeen"]
        for name, title in (("eans adv", "self-adversarial"), ("eans eans+adv", "EANS, substitution")):
            if name in row:
                ours = row[name]
                ratio = peer["peak_mb"] / ours["peak_mb"]
                above = (peer["peak_mb"] - peer["start_mb"]) / max(1.0, ours["peak_mb"] - ours["start_mb"])
                numbers = f"{ours['peak_mb']:.0f} | {peer['peak_mb']:.0f} | {ratio:.1f}x | {above:.1f}x"
                lines.append(f"| {size} | {title} | {numbers} | {verdict(ratio, MEMORY_TARGET)} |")
    return lines


def ranking_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Test triples per second, both sides."""
    lines = [
        "| filtered ranking | eans triples/s | PyKEEN triples/s | others, eans / PyKEEN | ratio | target | |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        ratio = row["pykeen"]["seconds"] / row["eans"]["seconds"]
        speeds = " | ".join(f"{row['triples'] / row[name]['seconds']:,.1f}" for name in ("eans", "pykeen"))
        others = " / ".join(f"{row[name]['others_busy']:.1f}" for name in ("eans", "pykeen"))
        end = f"{ratio:.0f}x | {verdict(ratio, RANKING_TARGET)} |"
        lines.append(f"| {row['model']} d={row['dim']} | {speeds} | {others} | {end}")
    return lines


def ranking_memory_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Peak memory of the ranking processes."""
    lines = ["| peak memory of ranking | eans MB | PyKEEN MB | ratio | target | |", "|---|---:|---:|---:|---:|---|"]
    for row in rows:
        ours, theirs = row["eans"]["peak_mb"], row["pykeen"]["peak_mb"]
        numbers = f"{ours:.0f} | {theirs:.0f} | {theirs / ours:.1f}x"
        lines.append(f"| {row['model']} d={row['dim']} | {numbers} | {verdict(theirs / ours, MEMORY_TARGET)} |")
    return lines


def first_step_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Seconds from the command to the end of the first step."""
    lines = ["| command to end of first step | empty cache s | filled cache s | target | |", "|---|---:|---:|---:|---|"]
    for row in rows:
        met = "met" if row["warm"] <= FIRST_STEP_TARGET else "MISSED"
        lines.append(f"| {row['recipe']} | {row['cold']:.1f} | {row['warm']:.1f} | {FIRST_STEP_TARGET:g} s | {met} |")
    return lines


def sweep_lines(rows: list[dict[str, Any]]) -> list[str]:
    """Milliseconds per step beside those of PyTorch written by hand."""
    lines = [
        "| step | queries | d | n | b | eans ms | reference kernels ms | eager PyTorch ms | eager / eans | target | |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        dim, batch, negatives = row["size"]
        ratio = row["eager"] / row["eans"]
        numbers = " | ".join(f"{row[name]:.2f}" for name in ("eans", "reference", "eager"))
        met = "met" if ratio >= SWEEP_TARGET else "MISSED"
        line = f"| {row['model']} | {row['queries']} | {dim} | {negatives} | {batch} | {numbers} | {ratio:.1f}x"
        lines.append(f"{line} | {SWEEP_TARGET:g}x | {met} |")
    return lines


# Every table of the record, by name.
TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "first-step": lambda record: "\n".join(first_step_lines(record["first_step"])),
    "steps": lambda record: "\n".join(step_lines(record["steps"])),
    "memory": lambda record: "\n".join(memory_lines(record["steps"])),
    "ranking": lambda record: "\n".join(ranking_lines(record["ranking"])),
    "ranking-memory": lambda record: "\n".join(ranking_memory_lines(record["ranking"])),
    "sweep": lambda record: "\n".join(sweep_lines(record["sweep"])),
}


def origin(record: dict[str, Any]) -> str:
    """Where the numbers come from: one line."""
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    made = f"commit `{record['commit'][:12]}`, {record['date'][:10]}"
    return f"{record['hardware']}; {record['graph']}; {versions}; {made}."


def report(record: dict[str, Any]) -> str:
    """All tables under a line that says where they come from."""
    return "\n\n".join([origin(record), *(table(record) for table in TABLES.values())])
