"""Graphs that are built on this machine when they are first asked for, from packages that others publish."""

from __future__ import annotations

import hashlib
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from eans.data.building import debian, pykeen_graphs, wordnet
from eans.data.building.sources import Sources
from eans.data.download import Progress
from eans.errors import DataError
from eans.graph import SPLITS, Split

Builder = Callable[[Sources, Mapping[Split, str]], dict[Split, bytes]]
BUILDERS: dict[str, Builder] = {
    "nations": pykeen_graphs.build,
    "umls": pykeen_graphs.build,
    "kinships": pykeen_graphs.build,
    "wordnet": wordnet.build,
    "debian": debian.build,
}
_STALE_S = 3600.0


def build(
    name: str, folder: Path, expected: Mapping[Split, str], *, otherwise: str, progress: Progress | None = None
) -> None:
    """Build the graph `name` into `folder`, which appears only once all files in it are as expected.

    Args:
        name: of the graph.
        folder: where ``train.txt``, ``valid.txt`` and ``test.txt`` go; what lies there now is replaced.
        expected: the SHA-256 of each split.
        otherwise: what a user can do without the sources; it ends the error lines.
        progress: told what is being done.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        part = folder.with_name(f".{name}.{uuid.uuid4().hex}.part")  # two processes may build the same graph
        try:
            (part / "sources").mkdir(parents=True)
            texts = BUILDERS[name](Sources(name, part / "sources", otherwise, progress), expected)
            for split in SPLITS:
                (part / f"{split}.txt").write_bytes(texts[split])
                found = hashlib.sha256(texts[split]).hexdigest()
                if found != expected[split]:
                    raise DataError(
                        f"{name}: the {split} split that was built has SHA-256 {found[:12]}… instead of"
                        f" {expected[split][:12]}…, though its sources are as they should be; please report it"
                    )
            shutil.rmtree(part / "sources")
            shutil.rmtree(folder, ignore_errors=True)  # a folder that is not complete, or another process's equal one
            part.replace(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise DataError(
            f"{folder}: cannot be built ({error.strerror or error}); free some space or set EANS_CACHE to another"
            " folder"
        ) from error


def _sweep(folder: Path) -> None:
    """Remove what killed processes left: parts that have not changed for long."""
    for part in folder.parent.glob(f".{folder.name}.*.part"):
        with suppress(FileNotFoundError):  # its owner may be done this very moment
            if time.time() - part.stat().st_mtime > _STALE_S:
                shutil.rmtree(part, ignore_errors=True)
