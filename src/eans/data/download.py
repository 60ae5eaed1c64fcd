"""Fetch one file over HTTP so that it is either complete and checked, or not there at all."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from eans._version import __version__
from eans.errors import DataError

if TYPE_CHECKING:
    from requests import Response

Progress = Callable[[str, int, int], None]
"""Called as ``progress(file, done, total)`` in bytes while a file arrives; `total` is 0 when the server gives none."""

_CHUNK = 1 << 16
_TIMEOUT_S = 30.0
_STALE_S = 3600.0


def fetch(url: str, target: Path, sha256: str, *, otherwise: str, progress: Progress | None = None) -> None:
    """Download `url` to `target`, which appears only once the bytes have the hash `sha256`.

    Args:
        url: where the file is.
        target: where it goes; the folder is created.
        sha256: of the bytes as served.
        otherwise: what a user can do without this download; it ends the error line.
        progress: told of the bytes as they arrive.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target)
        # The random name keeps two processes that fetch the same file apart; the last rename wins, with equal bytes.
        part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
        try:
            found = _stream(url, part, _Bar(f"{target.parent.name}/{target.name}", progress) if progress else False)
            if found != sha256:
                raise DataError(
                    f"{url}: the {part.stat().st_size} bytes received have SHA-256 {found[:12]}… instead of "
                    f"{sha256[:12]}…; try again or {otherwise}"
                )
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:  # every exception of requests is one too
        raise DataError(_failure(error, url, target.parent, otherwise)) from error


def _sweep(target: Path) -> None:
    """Remove what killed processes left: parts that nobody has written to for long."""
    for part in target.parent.glob(f".{target.name}.*.part"):
        with suppress(FileNotFoundError):  # its owner may be done this very moment
            if time.time() - part.stat().st_mtime > _STALE_S:
                part.unlink()


def _stream(url: str, part: Path, bar: _Bar | Literal[False]) -> str:
    """Write what `url` serves to `part` and return its SHA-256."""
    import pooch  # costs as much as the rest of this package together, and most runs download nothing

    # Unencoded, so that the announced length is that of the file and progress can be told.
    headers = {"Accept-Encoding": "identity", "User-Agent": f"eans/{__version__}"}
    # Pooch's downloader rather than `pooch.retrieve`, which writes log lines to the terminal.
    with ExitStack() as responses:

        def close_later(response: Response, **_: object) -> None:  # pooch leaves it open when the body breaks off
            responses.callback(response.close)

        options = {"timeout": _TIMEOUT_S, "headers": headers, "hooks": {"response": close_later}}
        download = pooch.HTTPDownloader(progressbar=bar, chunk_size=_CHUNK, **options)
        download(url, str(part), None)
    return str(pooch.file_hash(str(part)))


class _Bar:
    """What pooch expects of a progress bar, passed on to a `Progress`."""

    def __init__(self, file: str, progress: Progress) -> None:
        self.total = 0
        self._file = file
        self._progress = progress
        self._done = 0

    def update(self, size: int) -> None:
        # Pooch counts whole chunks, so the last one overshoots.
        self._done = min(self._done + size, self.total) if self.total else self._done + size
        self._progress(self._file, self._done, self.total)

    def reset(self) -> None:
        """Pooch resets and then adds the total at the end, to fill the bar; it is full already."""

    def close(self) -> None:
        pass


def _failure(error: OSError, url: str, folder: Path, otherwise: str) -> str:
    import requests

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"{url}: the server answered HTTP {error.response.status_code}; try again later or {otherwise}"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return f"{url}: the connection broke before the end of the file; try again or {otherwise}"
    if isinstance(error, requests.exceptions.SSLError):
        return f"{url}: the server's certificate was refused; check the network's proxy or {otherwise}"
    if isinstance(error, requests.Timeout):
        return f"{url}: no answer within {_TIMEOUT_S:.0f} s; check the network or {otherwise}"
    if isinstance(error, requests.ConnectionError):
        return f"{url}: the connection failed; check the network or {otherwise}"
    if isinstance(error, requests.RequestException):
        return f"{url}: {' '.join(str(error).split())}; check the address or {otherwise}"
    return (
        f"{folder}: cannot be written ({error.strerror or error}); free some space or set EANS_CACHE to another folder"
    )
