"""Standard input, output and error as a command may find them: closed, full, without a reader, in ASCII."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from eans.errors import EansWarning, RunError

__all__ = ["outlive_readers", "standard_streams", "typed"]

ESCAPES = "eans-escapes"
LOST = "eans: note: standard output is gone ({reason}); its text is lost, and the work goes on\n"


class Output(io.FileIO):
    """Standard output or error. What cannot be written is lost, and so is everything that comes after it.

    Attributes:
        required: raise the first time that something cannot be written.
        notice: written to standard error at that time otherwise.
    """

    required = False
    notice = ""

    def write(self, data: Any) -> int:
        """Write bytes.

        Raises:
            BrokenPipeError: the reader has gone.
            RunError: anything else keeps the output from being written.
        """
        try:
            return super().write(data)
        except BlockingIOError:
            raise
        except OSError as error:
            with Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), self.fileno())
            if self.required and isinstance(error, BrokenPipeError):
                raise
            if self.required:
                raise RunError(f"cannot write to standard output: {error.strerror}") from error
            # Not through `sys.stderr`, which a progress bar leads to standard output, here in the middle of a write.
            with contextlib.suppress(OSError):
                os.write(2, self.notice.format(reason=error.strerror).encode())
        return len(data)


@contextlib.contextmanager
def standard_streams() -> Iterator[None]:
    """Let a command read and print, whatever its standard streams are.

    A closed one takes everything and gives nothing. Characters that the encoding does not have are written as
    ``\\uXXXX``, as in JSON. What cannot be printed to standard error is lost; see `outlive_readers` for the other.
    """
    for number in (0, 1, 2):  # otherwise the next files to be opened would take their place
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the smallest number that is free
    codecs.register_error(ESCAPES, _escaped)
    before = sys.stdout, sys.stderr, warnings.showwarning
    try:
        warnings.showwarning = _show_warning
        # Others, such as those of a test, are left as they are.
        if sys.stdout is sys.__stdout__:
            sys.stdout = _opened(1, sys.stdout, required=True)
        if sys.stderr is sys.__stderr__:
            sys.stderr = _opened(2, sys.stderr, required=False)
        yield
    finally:
        with contextlib.suppress(BrokenPipeError, RunError):
            sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr, warnings.showwarning = before


def outlive_readers() -> None:
    """From now on, a command works to its end when its standard output can no longer be written."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, Output):
        raw.required = False
        raw.notice = LOST


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """One line for a warning of ours, without the place in the source that any other has."""
    ours = issubclass(category, EansWarning)
    text = f"eans: warning: {message}\n" if ours else warnings.formatwarning(message, category, filename, lineno, line)
    (file or sys.stderr).write(text)


def _opened(number: int, stream: TextIO | None, *, required: bool) -> TextIO:
    """A stream like one of Python's, which is None for one that was closed."""
    if stream is not None:
        stream.flush()
    output = Output(number, "wb", closefd=False)
    output.required = required
    buffered = bool(stream is not None and (stream.line_buffering or getattr(stream, "write_through", False)))
    encoding = stream.encoding if stream is not None else "utf-8"
    return io.TextIOWrapper(io.BufferedWriter(output), encoding, ESCAPES, line_buffering=buffered)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """``\\uXXXX`` for each UTF-16 unit of the characters that cannot be encoded."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = zip(units[::2], units[1::2], strict=True)
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in pairs), error.end


def typed(text: str | None) -> str | None:
    """An argument that names something in a file: UTF-8, even where the locale says ASCII."""
    return os.fsencode(text).decode("utf-8", "surrogateescape") if text is not None else None
