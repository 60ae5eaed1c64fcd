"""Writing so that nothing is lost: a file is either its old self or its new self, never half of each."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

from eans.arguments import shown
from eans.errors import RunError, UsageError


def as_path(found: object, what: str) -> Path:
    """A path that somebody gave as `what`.

    Raises:
        UsageError: it is none, or none that a file can have: too long, below a file that is no folder, not allowed.
    """
    if not isinstance(found, (str, os.PathLike)) or not isinstance(os.fspath(found), str):
        raise UsageError(f"{what} must be a path, got {shown(found)}")
    path = Path(found)
    try:
        if "\0" in str(path):  # which Python says does not exist
            raise ValueError("a path has no character NUL")
        path.exists()
    except (OSError, ValueError) as error:
        raise UsageError(f"{what} {path}: {getattr(error, 'strerror', None) or error}") from error
    return path


def path_text(path: str | Path) -> str:
    """A path for files of text: bytes that are no UTF-8 as Python escapes them, ``\\xff``."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


__all__ = ["atomic_file", "atomic_write", "cannot_read", "cannot_write", "make_folder", "sync_folder", "take_lock"]


def atomic_write(path: Path, content: bytes) -> None:
    """Replace `path` by `content` in one step; on any failure until then the old file stays as it was.

    Raises:
        RunError: one line naming the file and the reason (disk full, read-only, ...), and which content is there.
    """
    with atomic_file(path) as file:
        file.write(content)


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of `path` in one step at the end of the context.

    Where the context ends with any error, an interruption as well, the old file stays as it was, and no other is left.

    Raises:
        RunError: as `atomic_write`, also for an `OSError` from inside, which is taken for one of writing.
    """
    if path.exists() and not path.is_file() and not path.is_dir():  # a device or a pipe, which nothing may take away
        try:
            with path.open("wb") as device:
                yield device
        except OSError as error:
            raise cannot_write(path, error) from error
        return
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())  # mkstemp is private to the user; keep the usual permissions
        Path(temporary).replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            if temporary:
                Path(temporary).unlink()
        if isinstance(error, OSError):
            raise cannot_write(path, error) from error
        raise
    try:
        sync_folder(path.parent)
    except OSError as error:
        reason = error.strerror or error
        raise RunError(
            f"{path} is written, but a power failure may undo it: cannot sync its folder: {reason}"
        ) from error


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


def cannot_read(path: Path, error: OSError) -> RunError:
    """The one line for a read that failed."""
    return RunError(f"cannot read {path}: {error.strerror or error}")


def sync_folder(folder: Path) -> None:
    """See that what a folder lists is on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


class FolderInUse(RunError):
    """Another process is at work in a run folder; there is nothing to mend, only to wait for."""


def take_lock(path: Path, taken: str) -> IO[str]:
    """A file that this process alone has locked, until it is closed.

    Raises:
        FolderInUse: with the words `taken`, where another process has the lock.
    """
    try:
        file = path.open("w")
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise FolderInUse(taken) from None
    return file
