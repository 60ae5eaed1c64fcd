"""Tables on standard output."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from eans.progress import plain_console

if TYPE_CHECKING:
    from rich.table import Table


def plain_table(*columns: str, right: Collection[str] = ()) -> Table:
    """A table without lines; the columns in `right` are flush right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left")
    return table


def show_metrics(splits: dict[str, Any], protocol: dict[str, Any]) -> None:
    """A table of metrics by split and side, and the protocol under it."""
    from eans.evaluation import HITS
    from eans.graph import SIDES

    console = plain_console()
    names = ("mr", "mrr", *(f"hits@{k}" for k in HITS))
    headings = ["Hits@" + name[5:] if name.startswith("hits") else name.upper() for name in names]
    table = plain_table("split", "side", *headings, right=headings)
    for split, metrics in splits.items():
        for side in ("both", *SIDES):
            values = metrics[side]
            numbers = [f"{values[name]:.1f}" if name == "mr" else f"{values[name]:.4f}" for name in names]
            table.add_row(split if side == "both" else "", side, *numbers)
    console.print(table)
    console.print(
        f"filtered against {'+'.join(protocol['filtered_against'])}, {protocol['candidates']} as candidates,"
        f" {protocol['ties']} ties, unseen entities {protocol['unseen_entities']}",
        soft_wrap=True,
    )
