"""The SHA-256 of every file of a run folder, in ``manifest.json``: damage is noticed when a file is read.

The manifest has one of its own entries too, so that damage to it is not taken for damage to what it lists. One without
it, of an earlier version, is taken as it is.

A file is replaced in three steps: the manifest names the new content beside the old, the file is replaced, the manifest
names the new content alone. A process that is killed in between leaves a file with one of the two contents. Before that
the new content is written beside the old, and its sum taken on the way.

``EANS_VERIFY=0`` reads without checking.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from eans.errors import EansWarning, RunError
from eans.files import atomic_file, atomic_write, cannot_read

FORMAT = "1"
NAME = "manifest.json"
RESTORE = "restore it from a copy or train again"
# How often a file and the manifest are read before they are called different: a run that goes on replaces both.
ATTEMPTS = 5


@dataclass(frozen=True)
class Content:
    """What a file holds: the SHA-256 in hexadecimal digits, and the length in bytes."""

    sha256: str
    length: int

    @classmethod
    def of(cls, content: bytes) -> Content:
        return cls(hashlib.sha256(content).hexdigest(), len(content))

    @classmethod
    def of_file(cls, file: BinaryIO) -> Content:
        """Of a file from where it stands to its end, without keeping it in memory."""
        start = file.tell()
        digest = hashlib.file_digest(cast(Any, file), "sha256")
        return cls(digest.hexdigest(), file.tell() - start)

    @classmethod
    def written(cls, blocks: Iterable[bytes | memoryview], file: BinaryIO) -> Content:
        """Write the blocks of a content to a file."""
        digest, length = hashlib.sha256(), 0
        for block in blocks:
            file.write(block)
            digest.update(block)
            length += len(block)
        return cls(digest.hexdigest(), length)


@dataclass(frozen=True)
class Entry:
    """What a file should hold: one content, or one of two while it is replaced.

    Attributes:
        contents: the new content first. Without an old one, a file that is being replaced may be missing.
        replacing: is the replacement going on?
    """

    contents: tuple[Content, ...]
    replacing: bool = False

    @property
    def may_be_missing(self) -> bool:
        """Was the process perhaps killed before it wrote the file for the first time?"""
        return self.replacing and len(self.contents) == 1

    def allows(self, content: bytes, growing: bool) -> bool:
        """Is this what the file should hold, followed by something else if it is `growing`?"""
        return any(
            len(content) == expected.length or (growing and len(content) > expected.length)
            for expected in self.contents
            if Content.of(content[: expected.length]) == expected
        )


class Manifest:
    """What the files of a run folder should hold. Only the process that trains writes it.

    Args:
        folder: the run folder.
        log: the file to which lines are added while the run is not complete.
        last: the file whose presence says that the run is complete.
        advice: by file name, what to do about one that is damaged, and about one that is missing.
    """

    def __init__(self, folder: Path, log: Path, last: Path, advice: Mapping[str, tuple[str, str]]) -> None:
        self.folder = folder
        self.file = folder / NAME
        self._log = log
        self._last = last
        self._advice = advice
        self._entries: dict[str, Entry] | None = None
        self._warned = False

    @property
    def entries(self) -> dict[str, Entry]:
        """By file name; empty for a folder without a manifest."""
        if self._entries is None:
            self._entries = self._load()
        return self._entries

    def _load(self) -> dict[str, Entry]:
        if not self.file.is_file():
            return {}
        try:
            found = json.loads(self.file.read_bytes())
            check_format(found["format"], self.file)
            files = found["files"]
            if found.get("sha256", _sum_of(files)) != _sum_of(files):
                raise ValueError("not what was written")
            return {name: _parsed(entry) for name, entry in files.items()}
        except OSError as error:
            raise cannot_read(self.file, error) from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise RunError(f"{self.file} is damaged; restore it, or delete it to do without its checks") from error

    def read(self, path: Path) -> bytes:
        """The content of a file of the folder, checked.

        Raises:
            RunError: it cannot be read, or is not what the run wrote.
        """
        try:
            for _ in range(ATTEMPTS):
                content = path.read_bytes()
                if self._is_right(path, content):
                    return content
                self._entries = None  # the run may be going on, and have replaced the file and then this
                if self._is_right(path, content):
                    return content
        except FileNotFoundError as error:
            raise self.missing(path) from error
        except OSError as error:
            raise cannot_read(path, error) from error
        raise self._wrong(path)

    @contextmanager
    def opened(self, path: Path) -> Iterator[BinaryIO]:
        """A file of the folder at its beginning, checked like the content by `read` but never as a whole in memory.

        What a run that goes on puts into its place meanwhile is another file.
        """
        try:
            with self._opened(path) as file:
                yield file
        except FileNotFoundError as error:
            raise self.missing(path) from error
        except OSError as error:
            raise cannot_read(path, error) from error

    def _opened(self, path: Path) -> BinaryIO:
        for _ in range(ATTEMPTS):
            file = path.open("rb")
            try:
                content = Content.of_file(file) if self._checks() else None
                if content is None or self._lists(path, content):
                    file.seek(0)
                    return file
                self._entries = None
                if self._lists(path, content):
                    file.seek(0)
                    return file
            except BaseException:
                file.close()
                raise
            file.close()
        raise self._wrong(path)

    def _wrong(self, path: Path) -> RunError:
        return RunError(f"{path} is damaged: its SHA-256 is not that in {NAME}; {self.advised(path)}")

    def _checks(self) -> bool:
        """Is there anything to check by?"""
        if os.environ.get("EANS_VERIFY") == "0":
            return False
        if not self.file.is_file():
            self._warn()
            return False
        return True

    def _lists(self, path: Path, content: Content) -> bool:
        entry = self.entries.get(path.name)
        return entry is None or content in entry.contents

    def _is_right(self, path: Path, content: bytes) -> bool:
        if not self._checks():
            return True
        entry = self.entries.get(path.name)
        return entry is None or entry.allows(content, growing=path == self._log and not self._last.is_file())

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.folder} has no {NAME}, like runs of older versions: damage to its files goes unnoticed",
                EansWarning,
                stacklevel=2,
            )

    def advised(self, path: Path) -> str:
        """What to do about a file that is damaged."""
        return self._advice.get(path.name, (RESTORE, RESTORE))[0]

    def missing(self, path: Path) -> RunError:
        """The one line for a file that is not there."""
        return RunError(f"{path} is missing; {self._advice.get(path.name, (RESTORE, RESTORE))[1]}")

    def lacks(self, path: Path) -> bool:
        """Should there be a file that is not?"""
        entry = self.entries.get(path.name) if os.environ.get("EANS_VERIFY") != "0" else None
        return entry is not None and not entry.may_be_missing and not path.exists()

    def write(self, path: Path, content: bytes | Iterable[bytes | memoryview]) -> None:
        """Replace a file of the folder in one step, and renew the entry of the log. The content may come in blocks."""
        with atomic_file(path) as file:
            new = Content.written((content,) if isinstance(content, bytes) else content, file)
            old = self.entries.get(path.name)
            self._save({path.name: Entry((new, *(old.contents[:1] if old is not None else ())), replacing=True)})
        renewed = {path.name: Entry((new,))}
        if self._log.is_file():
            with self._log.open("rb") as log:
                os.fsync(log.fileno())  # the manifest must not be on the disk before the lines that it counts
                renewed[self._log.name] = Entry((Content.of(log.read()),))
        self._save(renewed)

    def adopt(self, *paths: Path) -> None:
        """Make the manifest of a folder that has none from its files as they are."""
        if not self.file.is_file():
            self._save({path.name: Entry((Content.of(path.read_bytes()),)) for path in paths if path.is_file()})

    def _save(self, renewed: dict[str, Entry]) -> None:
        entries = {**self.entries, **renewed}
        files = {name: _written(entries[name]) for name in sorted(entries)}
        content = {"format": FORMAT, "files": files, "sha256": _sum_of(files)}
        atomic_write(self.file, (json.dumps(content, indent=2) + "\n").encode())
        self._entries = entries

    def check(self) -> dict[str, str]:
        """For each file of the manifest what is wrong with it; empty where nothing is.

        Raises:
            RunError: there is no manifest, or it cannot be read.
        """
        if not self.file.is_file():
            raise RunError(f"{self.folder} has no {NAME}, like runs of older versions: there is nothing to check by")
        found = {}
        for name, entry in self.entries.items():
            path = self.folder / name
            try:
                if path.exists() or not entry.may_be_missing:
                    self._check_file(path)
                found[name] = ""
            except RunError as error:
                found[name] = str(error)
        return found

    def _check_file(self, path: Path) -> None:
        if path == self._log:  # to which lines may have been added
            self.read(path)
            return
        with self.opened(path):
            pass


def check_format(number: object, path: Path) -> None:
    """Raise for a file in a format of which this version knows nothing."""
    if number != FORMAT:
        raise RunError(f"{path} has the format {number}, and this version of eans reads {FORMAT}; use a newer version")


def _sum_of(files: Any) -> str:
    """The SHA-256 of the manifest's own entries: damage to them is not taken for damage to a file."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def _written(entry: Entry) -> dict[str, Any]:
    new, *old = entry.contents
    replaces = {"replaces": asdict(old[0]) if old else None} if entry.replacing else {}
    return asdict(new) | replaces


def _parsed(written: dict[str, Any]) -> Entry:
    parts = [written, *([written["replaces"]] if written.get("replaces") else [])]
    return Entry(tuple(Content(str(part["sha256"]), int(part["length"])) for part in parts), "replaces" in written)
