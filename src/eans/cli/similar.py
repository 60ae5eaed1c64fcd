"""``eans similar``."""

from __future__ import annotations

from itertools import groupby
from json import dumps
from typing import TYPE_CHECKING, Annotated, cast

import typer

from eans.cli.options import DeviceOption, RunArgument, choose
from eans.cli.tables import plain_table
from eans.progress import plain_console
from eans.streams import typed

if TYPE_CHECKING:
    from eans.similarity import By


def similar(
    run: RunArgument,
    entity: Annotated[str, typer.Argument(help="Label of an entity.")],
    k: Annotated[int, typer.Option("-k", help="How many by each measure.")] = 10,
    by: Annotated[
        str | None,
        typer.Option(
            help="embedding, or substitution: the score of the EANS loss. Default: both, where there are two."
        ),
    ] = None,
    format: Annotated[str, typer.Option(help="table or json.")] = "table",
    device: DeviceOption = "auto",
) -> None:
    """Entities most like one: by embedding (cosine, or L2 distance), and by the substitution score of EANS."""
    from eans.run import Run
    from eans.similarity import BY

    choose("--format", format, ("table", "json"))
    if by is not None:
        choose("--by", by, BY)
    found = Run.load(run, device).similar(cast(str, typed(entity)), k, cast("By | None", by))
    if format == "json":
        print(dumps([row._asdict() for row in found], ensure_ascii=False, indent=2))
        return
    for measure, rows in groupby(found, lambda row: row.measure):
        table = plain_table("rank", right=("rank",))
        table.add_column("entity", overflow="fold")
        table.add_column(measure, justify="right")
        for rank, row in enumerate(rows, 1):
            table.add_row(str(rank), row.entity, f"{row.score:.3f}")
        plain_console().print(table)
