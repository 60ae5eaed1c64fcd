"""``eans data describe``: a graph before anything is trained on it, as `eans.describe` has it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eans.cli.graphs import load_graph
from eans.cli.options import DeviceOption, SplitOption, StrictOption, file_to_write, require_given
from eans.errors import UsageError
from eans.progress import plain_console

STANDARD_OUTPUT = Path("-")
JsonOption = Annotated[
    Path | None, typer.Option(help="Write all numbers to this file; - for standard output, instead of the tables.")
]


def describe(
    name: Annotated[str, typer.Argument(help="Dataset name or folder.")],
    json: JsonOption = None,
    html: Annotated[Path | None, typer.Option(help="Write one HTML page with figures to this file.")] = None,
    estimate: Annotated[
        bool, typer.Option("--estimate/--no-estimate", help="Measure what training takes on this machine.")
    ] = True,
    device: DeviceOption = "auto",
    strict: StrictOption = False,
    split: SplitOption = None,
) -> None:
    """Describe a graph before training: degrees, relations, leakage, components, baselines, a recipe and its cost."""
    from eans.description import describe
    from eans.description.text import show
    from eans.devices import choose_device
    from eans.figures import require_matplotlib
    from eans.files import atomic_write

    require_given("the name of the dataset", name)
    choose_device(device)
    if html is not None:
        require_matplotlib()  # before the work, not after
    printed = json == STANDARD_OUTPUT
    if html is not None and html in (json, STANDARD_OUTPUT):
        fault = "--html needs the name of a file" if html == STANDARD_OUTPUT else "--json and --html name the same file"
        raise UsageError(f"{fault}; write for example --html graph.html")
    files = {"--json": None if printed else json, "--html": html}
    targets = {option: file_to_write(option, path) for option, path in files.items() if path is not None}
    found = describe(load_graph(name, strict, split), estimate=estimate, device=device)
    console = plain_console()
    if printed:
        print(found.to_json())
    else:
        show(found.facts, console)
    for option, target in targets.items():
        text = found.html() if option == "--html" else found.to_json() + "\n"
        atomic_write(target, text.encode())
        if not printed:
            console.print(f"written: {target}", soft_wrap=True)
