"""Quantities as people write them."""

from __future__ import annotations

import pytest

from eans.wording import duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (3.14, "3.1 s"),
        (99.4, "99 s"),
        (179.4, "179 s"),
        (180, "3 min"),
        (7140, "119 min"),
        (7300, "2 h 02 min"),
        (4e6, "1,111 h 07 min"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
