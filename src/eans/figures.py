"""How figures look, and how they are written: needs matplotlib, the extra ``figures``."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from eans.errors import UsageError
from eans.files import atomic_write, make_folder

__all__ = ["COLOURS", "GREY", "STYLE", "figure", "require_matplotlib", "spread_apart"]

# Okabe and Ito's colours, which stay apart for colour-blind readers; the most distant ones first.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
GREY = "#666666"
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": "black",
    "ytick.labelcolor": "black",
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "svg.hashsalt": "eans",
    "pdf.fonttype": 42,  # letters that can be searched, and that publishers take
}
# By format, where its description goes, and what is not written: the time and the version of matplotlib.
METADATA = {
    "svg": ("Description", ("Date",)),
    "png": ("Description", ("Software",)),
    "pdf": ("Subject", ("CreationDate", "Creator", "Producer")),
}


def require_matplotlib() -> None:
    """Raise unless figures can be drawn."""
    if find_spec("matplotlib") is None:
        raise UsageError("figures need matplotlib, which the extra 'figures' brings: pip install 'eans[figures]'")


@contextmanager
def figure(
    width: float,
    height: float,
    folder: Path,
    name: str,
    description: str | None = None,
    formats: Sequence[str] = ("svg", "png"),
) -> Iterator[Any]:
    """A figure in inches, saved at the end in some formats: 7 inches are 700 pixels on a page.

    All files carry the description where programs find it, and readers of the figure do not see it.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        drawing = Figure(figsize=(width, height), layout="constrained")
        yield drawing
        make_folder(folder)
        # The same drawing is the same file.
        for ending in formats:
            content = io.BytesIO()
            about, unsaid = METADATA[ending]
            metadata = {about: description, **dict.fromkeys(unsaid)}
            drawing.savefig(content, format=ending, dpi=200, metadata=metadata)
            atomic_write(folder / f"{name}.{ending}", content.getvalue())


def spread_apart(places: list[float], least: float) -> list[float]:
    """Move places up or down so that neighbours are at least `least` apart; their order stays."""
    ranked = sorted(range(len(places)), key=lambda index: places[index])
    moved = sorted(places)
    for _ in range(200):
        for low in range(len(moved) - 1):
            overlap = least - (moved[low + 1] - moved[low])
            if overlap > 1e-12:
                moved[low] -= overlap / 2
                moved[low + 1] += overlap / 2
    result = [0.0] * len(places)
    for index, place in zip(ranked, moved, strict=True):
        result[index] = place
    return result
