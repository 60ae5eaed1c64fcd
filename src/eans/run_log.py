"""The log of a run folder: one JSON object per line, to which lines are added while the run goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from eans.errors import RunError
from eans.files import cannot_write
from eans.manifest import Manifest
from eans.run_shapes import of_record
from eans.shapes import lacking


class RunLog:
    """Adds to, reads and shortens the log.

    Args:
        file: where it is.
        manifest: of the run folder.
    """

    def __init__(self, file: Path, manifest: Manifest) -> None:
        self.file, self.manifest = file, manifest

    def append(self, record: dict[str, Any]) -> None:
        """Add one record."""
        try:
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
        except OSError as error:
            raise cannot_write(self.file, error) from error

    def records(self) -> list[dict[str, Any]]:
        """All whole records."""
        if not self.file.is_file():
            return []
        lines = self.manifest.read(self.file).decode(errors="replace").splitlines()
        records = []
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
            except ValueError:
                if number == len(lines):  # a crash may have torn the last line
                    break
                record = None
            if place := lacking(record, of_record(record)):
                advice = self.manifest.advised(self.file)
                raise RunError(f"{self.file} is damaged (line {number}: no {place}); {advice}")
            records.append(record)
        return records

    def rewind(self, step: int) -> None:
        """Drop records after `step`: those steps will be done, and logged, again."""
        records = [record for record in self.records() if record["step"] <= step]
        if self.file.is_file():
            self.manifest.write(self.file, "".join(json.dumps(record) + "\n" for record in records).encode())
