"""The record of a speed measurement: one JSON file of sections, each with its own commit and date."""

from __future__ import annotations

import json
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from eans._version import __version__
from eans.errors import UsageError
from eans.experiments import current_commit
from eans.files import atomic_write

FORMAT = 1
FORMER_SECTIONS = {"everyone": "all-entities"}  # earlier name: name now
Record = dict[str, Any]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def processor() -> str:
    """Number and name of the processors."""
    cpuinfo = Path("/proc/cpuinfo")  # where Python itself knows no more than the architecture
    lines = cpuinfo.read_text("utf-8").splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else platform.processor() or platform.machine()


def hardware(device: torch.device) -> Record:
    """What the measurement ran on."""
    if device.type != "cuda":
        return {"name": processor(), "threads": torch.get_num_threads()}
    properties = torch.cuda.get_device_properties(device)
    return {
        "name": properties.name,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "multiprocessors": properties.multi_processor_count,
        "l2_mib": round(getattr(properties, "L2_cache_size", 0) / 2**20, 1),
    }


def facts(device: torch.device) -> Record:
    """Who measured what, where and when."""
    return {
        "commit": current_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": hardware(device),
        "versions": {
            "eans": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "triton": _version("triton"),
        },
    }


def merged(old: Record, section: str, results: Record, about: Record) -> Record:
    """`old` with one section replaced; the other sections keep their own commit and date.

    Raises:
        UsageError: when the old record is of other hardware, with which new numbers must not be mixed.
    """
    before = old.get("hardware", {}).get("name")
    now = about["hardware"]["name"]
    if before not in (None, now):
        raise UsageError(f"the record holds measurements of '{before}', this is '{now}'; choose another --out")
    sections = {**old.get("sections", {}), section: {**about, **results}}
    return {"format": FORMAT, **about, "sections": sections}


def with_current_names(record: Record) -> Record:
    """A record whose sections may have the names of an earlier version, with today's names."""
    if "sections" not in record:
        return record
    sections = {FORMER_SECTIONS.get(name, name): part for name, part in record["sections"].items()}
    return {**record, "sections": sections}


def read(path: Path) -> Record:
    """The record, or an empty one where there is no file."""
    record: Record = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    if record and record.get("format") != FORMAT:
        raise UsageError(f"{path}: not a speed record of format {FORMAT}; choose another --out")
    return with_current_names(record)


def update(path: Path, section: str, results: Record, about: Record) -> Record:
    """Replace one section of the file in one step and return the new record."""
    record = merged(read(path), section, results, about)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, (json.dumps(record, indent=1) + "\n").encode())
    return record


def table(header: list[str], rows: list[list[str]]) -> str:
    """Plain text in columns: the first flush left, the others flush right."""
    cells = [header, *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = [
        "  ".join(cell.rjust(width) if index else cell.ljust(width) for index, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(row, widths, strict=True)) for row in cells)
    ]
    return "\n".join(line.rstrip() for line in lines)
