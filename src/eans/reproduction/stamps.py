"""A line of text inside a figure's files, which no reader of the figure sees: it tells what was drawn."""

from __future__ import annotations

import zlib
from pathlib import Path

from eans.files import atomic_write

KEYWORD = "eans-data"
END_OF_PNG = 12  # bytes of the last chunk, which is always the same


def stamp(file: Path, words: str) -> None:
    """Write words of plain ASCII into a PNG or an SVG."""
    content = file.read_bytes()
    if file.suffix == ".svg":
        before, end, after = content.rpartition(b"</svg>")
        parts = [before, f"<!-- {KEYWORD} {words} -->\n".encode(), end, after]
    else:
        parts = [content[:-END_OF_PNG], text_chunk(words), content[-END_OF_PNG:]]
    atomic_write(file, b"".join(parts))


def text_chunk(words: str) -> bytes:
    """The chunk in which PNG keeps text: its length, its type, a keyword, the text and a checksum."""
    body = b"tEXt" + KEYWORD.encode() + b"\0" + words.encode()
    return (len(body) - 4).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


def has_stamp(file: Path, words: str) -> bool:
    """Was a file stamped with these words?"""
    before = f"{KEYWORD} " if file.suffix == ".svg" else f"{KEYWORD}\0"
    return f"{before}{words}".encode() in file.read_bytes()
