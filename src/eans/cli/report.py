"""``eans report``: a report on a run, as `eans.report` has it; ``eans inspect run`` is its earlier name."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from eans.cli.moved import hint
from eans.cli.options import DeviceOption, RunArgument, choose, file_to_write
from eans.errors import UsageError
from eans.progress import plain_console

if TYPE_CHECKING:
    from eans.graph import Split

OutOption = Annotated[Path | None, typer.Option(help="File to write. Default: report.html in the run folder.")]
FormatOption = Annotated[str, typer.Option(help="html, or json for the numbers.")]
SplitOption = Annotated[str, typer.Option(help="train, valid or test: for relations and examples.")]


def report(
    context: typer.Context,
    run: RunArgument,
    out: OutOption = None,
    format: FormatOption = "html",
    split: SplitOption = "test",
    device: DeviceOption = "auto",
) -> None:
    """Write a report on a run: metrics, curves, scores, relations, misses; one HTML file that needs nothing else."""
    from eans import inspection
    from eans.figures import require_matplotlib
    from eans.files import as_path, atomic_write
    from eans.graph import SPLITS
    from eans.inspection.page import render
    from eans.runs import RunFolder

    if not as_path(run, "run folder").exists():  # perhaps a table of the paper's, which this command was about once
        raise UsageError(f"{run} is not a run folder; {hint(['report', str(run), *context.args])}")
    if context.args:
        raise UsageError(f"no such option or argument: {context.args[0]}; see eans report --help")
    choose("--format", format, ("html", "json"))
    chosen = cast("Split", choose("--split", split, SPLITS))
    if format == "html":
        require_matplotlib()  # before the ranking, not after
    RunFolder.open(run)
    target = file_to_write("--out", out or run / "report.html")
    found = inspection.report(run, split=chosen, device=device)
    if format == "json" and out is None:
        print(dumps(found, indent=2, ensure_ascii=False))
        return
    text = render(found) if format == "html" else dumps(found, indent=2, ensure_ascii=False) + "\n"
    atomic_write(target, text.encode())
    plain_console().print(f"report: {target}", soft_wrap=True)
