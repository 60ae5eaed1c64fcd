"""Writing so that nothing is lost: a file is either its old self or its new self, never half of each."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from eans.errors import RunError


def atomic_write(path: Path, content: bytes) -> None:
    """Replace `path` by `content` in one step; on any failure the old file stays as it was.

    Raises:
        RunError: one line naming the file and the reason (disk full, read-only, ...).
    """
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())  # mkstemp is private to the user; keep the usual permissions
        Path(temporary).replace(path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        with contextlib.suppress(OSError):
            if temporary:
                Path(temporary).unlink()
        raise cannot_write(path, error) from error


def make_folder(folder: Path, advice: str = "choose another --out") -> None:
    """Make sure that there is a folder to write to.

    Raises:
        RunError: one line with the reason and the advice.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot create folder {folder}: {error.strerror}; {advice}") from error


def cannot_write(path: Path, error: OSError) -> RunError:
    """The one line for a write that failed."""
    return RunError(f"cannot write {path}: {error.strerror or error}; what was there before is intact")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
