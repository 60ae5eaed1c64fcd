"""Quantities as people write them. Loads nothing."""

from __future__ import annotations


def duration(seconds: float | None) -> str:
    """``3.1 s``, ``99 s``, ``12 min``, ``3 h 05 min``; a dash for None."""
    if seconds is None:
        return "-"
    if seconds < 180:
        return f"{seconds:.{1 if seconds < 10 else 0}f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60:,} h {minutes % 60:02d} min"
