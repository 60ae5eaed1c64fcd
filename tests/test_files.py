"""Atomic writes when the kernel says no: one clear line, the old content intact, nothing left behind."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from eans.errors import RunError
from eans.files import atomic_file, atomic_write
from helpers_runs import environment

# RLIMIT_FSIZE makes the kernel refuse to let a file grow, as a full disk does.
FULL = """
import resource, signal, sys
from pathlib import Path
from eans.errors import RunError
from eans.files import atomic_write
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    atomic_write(Path(sys.argv[1]), b"n" * int(sys.argv[2]))
except RunError as error:
    print(error)
    sys.exit(1)
"""


def write_with_little_disk(path: Path, size: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", FULL, str(path), str(size)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_replaces_the_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for content in (b"old", b"new", b"", b"x" * 1_000_000):
        atomic_write(path, content)
        assert path.read_bytes() == content
        assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def record_syncs(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes | None, bytes]]:
    """Fills up: the content of each file that is synced, None for the folder of `path`, and what `path` held then."""
    synced: list[tuple[bytes | None, bytes]] = []

    def record(descriptor: int) -> None:
        entries = (path.parent, *path.parent.iterdir())
        (entry,) = (entry for entry in entries if entry.stat().st_ino == os.fstat(descriptor).st_ino)
        synced.append((None if entry == path.parent else entry.read_bytes(), path.read_bytes()))

    monkeypatch.setattr(os, "fsync", record)
    return synced


def test_the_content_is_on_the_disk_before_the_old_one_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    synced = record_syncs(path, monkeypatch)
    atomic_write(path, b"new")
    assert (b"new", b"old") in synced


def test_the_folder_is_on_the_disk_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    synced = record_syncs(path, monkeypatch)
    atomic_write(path, b"new")
    assert (None, b"new") in synced


@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
def test_an_error_of_a_sync_says_which_content_is_there(
    folder: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode) == folder:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(RunError) as caught:
        atomic_write(path, b"new")
    assert str(caught.value) == (
        f"{path} is written, but a power failure may undo it: cannot sync its folder: Input/output error"
        if folder
        else f"cannot write {path}: Input/output error; what was there before is intact"
    )
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == {"file": b"new" if folder else b"old"}


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_permissions_follow_the_umask(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        atomic_write(tmp_path / "file", b"content")
        assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~mask
        assert os.umask(mask) == mask
    finally:
        os.umask(before)


@pytest.mark.parametrize("old", [b"old content", None], ids=["replace", "create"])
def test_disk_full(old: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "file"
    if old is not None:
        path.write_bytes(old)
    result = write_with_little_disk(path, 100_000)
    assert result.returncode == 1, result.stderr
    assert result.stdout == f"cannot write {path}: File too large; what was there before is intact\n"
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == ({"file": old} if old else {})
    assert write_with_little_disk(path, 1000).returncode == 0
    assert path.read_bytes() == b"n" * 1000


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("file/inside", "Not a directory"),
        ("missing/inside", "No such file or directory"),
        ("folder", "Is a directory"),
        ("/proc/eans", "No such file or directory"),  # the kernel refuses even root
        ("/proc/self/eans", "No such file or directory"),
    ],
)
def test_places_that_cannot_be_written(place: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.rglob("*"))
    path = tmp_path / place
    with pytest.raises(RunError) as caught:
        atomic_write(path, b"new")
    assert str(caught.value) == f"cannot write {path}: {reason}; what was there before is intact"
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "file").read_bytes() == b"old"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_stream_that_is_cut_off_leaves_the_old_content(error: type[BaseException], tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write() -> None:
        with atomic_file(path) as file:
            file.write(b"new" * 100_000)
            raise error

    with pytest.raises(error):
        write()
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == {"file": b"old"}


def test_a_device_stays_what_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        atomic_write(pipe, b"content")
        assert os.read(read, 100) == b"content"
    finally:
        os.close(read)
    assert pipe.is_fifo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["pipe"]
