"""Nations, UMLS and Kinships: small graphs that the package PyKEEN ships as text files, here taken over as they are."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from eans.data.building.sources import Sources
from eans.errors import DataError
from eans.graph import SPLITS, Split

REQUIREMENT = "pykeen==1.11.1"
WHEEL_SHA256 = "b6cc0ab012fc6ba4f37b58fb7081a409a5c1f04cbbb0e0e9c2256e911757d4ba"


def build(sources: Sources, expected: Mapping[Split, str]) -> dict[Split, bytes]:
    """The splits of the graph `sources.name`: from PyKEEN where it is installed, or else from its wheel."""
    installed = _installed(sources.name)
    if installed is not None:
        return {
            split: sources.check(str(path), path.read_bytes(), expected[split]) for split, path in installed.items()
        }
    wheel = sources.wheel(REQUIREMENT, WHEEL_SHA256)
    found: dict[Split, bytes] = {}
    try:
        with zipfile.ZipFile(wheel) as archive:
            for split in SPLITS:
                member = f"pykeen/datasets/{sources.name}/{split}.txt"
                found[split] = sources.check(f"{wheel.name}/{member}", archive.read(member), expected[split])
    except (KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"{sources.name}: {wheel.name}: {' '.join(str(error).split())}; {sources.otherwise}") from None
    return found


def _installed(name: str) -> dict[Split, Path] | None:
    """The files of an installed PyKEEN, which is not imported for it."""
    spec = find_spec("pykeen")
    for place in (spec.submodule_search_locations or []) if spec else []:
        files: dict[Split, Path] = {split: Path(place) / "datasets" / name / f"{split}.txt" for split in SPLITS}
        if all(path.is_file() for path in files.values()):
            return files
    return None
