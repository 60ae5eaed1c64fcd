"""``eans export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from eans.cli.options import DeviceOption, RunArgument, choose
from eans.progress import plain_console

if TYPE_CHECKING:
    from eans.export import Format


def export(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="Folder to write to.")],
    format: Annotated[str, typer.Option(help="parquet, numpy or word2vec.")] = "parquet",
    device: DeviceOption = "auto",
) -> None:
    """Write all embeddings with their labels to files that other programs read."""
    from eans.export import FORMATS
    from eans.run import Run

    choose("--format", format, FORMATS)
    for path in Run.load(run, device).export(out, cast("Format", format)):
        plain_console().print(str(path), soft_wrap=True)
