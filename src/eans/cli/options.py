"""Options that several commands have, and checks of what was given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eans.errors import UsageError, did_you_mean

RunArgument = Annotated[Path, typer.Argument(help="Run folder.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
DataOption = Annotated[
    str | None, typer.Option(help="Dataset name, file or folder; - is standard input. Default: the recipe's.")
]
ColumnsOption = Annotated[
    str | None,
    typer.Option(
        metavar="PART=COLUMN,...",
        help="Which columns are which, by name or number from 1: head=subject,relation=predicate,tail=object; also"
        " weight and time. Default: the usual names, or the only three.",
    ),
]
QueryOption = Annotated[str | None, typer.Option(metavar="SQL", help="Select the triples from a database.")]
LiteralsOption = Annotated[
    bool, typer.Option("--literals", help="Keep RDF literals as entities. Default: leave out their triples.")
]
SeedOption = Annotated[int | None, typer.Option(min=0, help="Short for --set train.seed=N.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a recipe key; repeatable.")
]
SplitOption = Annotated[
    str | None,
    typer.Option(
        metavar="HOW",
        help="Split the triples: 80/10/10, temporal, or both and more with commas between (inverse, uncovered, seed=N);"
        " none to take them as they are. Default: none for what has splits, 80/10/10 for a single file.",
    ),
]
LabelsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--labels", metavar="FILE", help="Readable names: lines id<TAB>name, or id,name in a .csv file; repeatable."
    ),
]
StrictOption = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Fail on what is otherwise a warning about files of triples: duplicates, leakage, a header...",
    ),
]


def overrides_of(settings: list[str] | None, seed: int | None) -> list[str]:
    """What --set and --seed say, as ``section.key=value``."""
    return [*(settings or []), *([f"train.seed={seed}"] if seed is not None else [])]


def choose(option: str, value: str, allowed: tuple[str, ...]) -> str:
    """`value` if it is allowed; otherwise an error that lists what is."""
    if value not in allowed:
        raise UsageError(f"{option} '{value}' is not one of {', '.join(allowed)}{did_you_mean(value, allowed)}")
    return value


def require_given(option: str, dataset: str | None) -> None:
    """Raise for an empty name: what an unset variable of a shell becomes should not choose a graph."""
    if dataset is not None and not dataset.strip():
        raise UsageError(f"{option} is empty; give the name of a dataset, a file or a folder")


def file_to_write(option: str, path: Path) -> Path:
    """A file that can be written, as far as can be told before the work."""
    from eans.files import as_path

    target = as_path(path, option)
    if target.is_dir() or not target.parent.is_dir():
        reason = "it is a folder" if target.is_dir() else f"there is no folder {target.parent}"
        raise UsageError(f"cannot write {target}: {reason}; name a file with {option}")
    return target
