"""Tables on standard output."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eans.progress import plain_console, plain_table

if TYPE_CHECKING:
    from eans.run import Run

__all__ = ["by_degree", "degrees", "plain_table", "show_metrics", "show_run"]


def show_metrics(splits: dict[str, Any], protocol: dict[str, Any]) -> None:
    """A table of metrics by split and side with the baselines of each split, MRR by degree, and the protocol."""
    from eans.evaluation import HITS
    from eans.graph import SIDES

    console = plain_console()
    names = ("mr", "mrr", *(f"hits@{k}" for k in HITS))
    headings = ["Hits@" + name[5:] if name.startswith("hits") else name.upper() for name in names]
    table = plain_table("split", "side", *headings, right=headings)
    for split, metrics in splits.items():
        rows = {side: metrics[side] for side in ("both", *SIDES)}
        rows |= {f"baseline: {name}": values["both"] for name, values in metrics.get("baselines", {}).items()}
        for place, (name, values) in enumerate(rows.items()):
            numbers = [f"{values[name]:.1f}" if name == "mr" else f"{values[name]:.4f}" for name in names]
            table.add_row("" if place else split, name, *numbers)
    console.print(table)
    for split, metrics in splits.items():
        if "by_degree" in metrics:
            console.print(f"{split} MRR by training triples of the answer: {by_degree(metrics)}", soft_wrap=True)
    console.print(
        f"filtered against {'+'.join(protocol['filtered_against'])}, {protocol['candidates']} as candidates,"
        f" {protocol['ties']} ties, unseen entities {protocol['unseen_entities']}",
        soft_wrap=True,
    )


def by_degree(metrics: dict[str, Any]) -> str:
    """``1-3: .120, 4-15: .301, 4096+: .700``."""
    return ", ".join(f"{degrees(group)}: {group['mrr']:.3f}" for group in metrics["by_degree"])


def degrees(group: dict[str, Any]) -> str:
    """``0``, ``1-3``, ``4096+``: the degrees of a group of ``by_degree``."""
    least, most = group["least"], group.get("most")
    return f"{least}+" if most is None else str(least) if least == most else f"{least}-{most}"


def show_run(run: Run) -> None:
    """The result of a finished run."""
    from eans.run_progress import summary

    console = plain_console()
    console.print(summary(run.recipe, run.metrics["training"]), soft_wrap=True)
    splits: dict[str, Any] = {split: run.metrics[split] for split in ("valid", "test") if split in run.metrics}
    if splits:
        show_metrics(splits, run.metrics["protocol"])
    else:
        console.print("not evaluated: the graph has neither valid nor test triples")
    console.print(f"run folder: {run.folder}", soft_wrap=True)
