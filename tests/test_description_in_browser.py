"""A description as a browser lays it out: on a screen, on a phone and on paper, by day and by night."""

from __future__ import annotations

from itertools import pairwise

import pytest

import eans
from eans.graph import KnowledgeGraph
from helpers_browser import CONTRAST, LABELS, SCHEMES, WIDTHS, Visit, framed, needs_chromium, visit

pytest.importorskip("matplotlib")
pytestmark = needs_chromium

FILTERED = """
addEventListener("load", () => {
  const filter = document.getElementById("filter");
  const shown = () => [...document.querySelectorAll("#by-relation tbody tr")].filter(row => !row.hidden)
    .map(row => row.cells[0].dataset.value);
  const search = words => { filter.value = words; filter.dispatchEvent(new Event("input")); return shown(); };
  const found = { all: shown(), symmetric: search("symm"), both: search("n-1 owns"), none: search("nothing") };
  search("");
  document.querySelector("th[data-key=test] button").click();
  tell({ ...found, sorted: shown() });
});
"""


def awkward_graph() -> KnowledgeGraph:
    """Every kind of pattern, and labels that a page could choke on."""
    names = [f"{i} {LABELS[i % len(LABELS)]}" for i in range(24)]
    pairs = list(pairwise(names))
    train = [(a, "owns/what.is_owned", b) for a, b in pairs[2:]] + [(b, f"owned_by {LABELS[3]}", a) for a, b in pairs]
    train += [(a, LABELS[0], b) for a, b in pairs]
    train += [triple for a, b in pairs for triple in ((a, "near", b), (b, "near", a))]
    train += [(name, f"kind {LABELS[2]}", names[0]) for name in names]
    test = [(a, "owns/what.is_owned", b) for a, b in pairs[:2]]
    return KnowledgeGraph.from_labels(train, test, [*test, (names[3], LABELS[0], names[9])], "words & <b>")


@pytest.fixture(scope="module")
def page() -> str:
    return eans.describe(awkward_graph(), device="cpu", progress=False).html()


@pytest.fixture(scope="module", params=SCHEMES)
def visited(request: pytest.FixtureRequest, page: str, tmp_path_factory: pytest.TempPathFactory) -> Visit:
    return visit(framed(page), tmp_path_factory.mktemp("browser"), SCHEMES[request.param])


@pytest.mark.parametrize("name", WIDTHS)
def test_nothing_is_clipped(visited: Visit, name: str) -> None:
    found = visited.told[name]
    assert found["inner"] == WIDTHS[name]
    assert found["scroll"] <= found["inner"]
    assert found["outside"] == []
    *others, relations = (found["hanging"][place] for place in (0, 1, 2, 4, 5, 6, 7, 3))
    assert others == [0] * 7
    assert relations == 0 or name == "phone"  # there it may scroll by itself
    assert found["tables"] == [2, 8, 10, 5, 10, 4, 11, 11]


@pytest.mark.parametrize("name", WIDTHS)
def test_charts_are_whole(visited: Visit, name: str) -> None:
    found = visited.told[name]
    assert len(found["charts"]) == 4
    assert all(width > 300 and height > 150 for width, height in found["charts"])
    assert found["cut"] == []
    assert found["nameless"] == 0


@pytest.mark.parametrize("name", WIDTHS)
def test_text_can_be_read(visited: Visit, name: str) -> None:
    found = visited.told[name]
    assert (found["title"], found["lang"], found["images"]) == ("words & <b>, described", "en", 0)
    assert LABELS[0] in found["names"]
    contrast, words = found["faintest"]
    assert contrast >= CONTRAST, words


def test_the_browser_has_nothing_to_complain_about(visited: Visit) -> None:
    assert visited.console == []


def test_relations_are_sorted_and_filtered(page: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    told = visit(
        page.replace("</body>", f"<script>{FILTERED}</script></body>"), tmp_path_factory.mktemp("browser")
    ).told
    kind, owned = f"kind {LABELS[2]}", f"owned_by {LABELS[3]}"
    assert told["all"] == ["near", kind, owned, LABELS[0], "owns/what.is_owned"]
    assert told["symmetric"] == ["near"]
    assert told["both"] == []
    assert told["none"] == []
    assert told["sorted"][:2] == ["owns/what.is_owned", LABELS[0]]
