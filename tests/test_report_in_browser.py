"""A report as a browser lays it out: on a screen, on a phone and on paper, by day and by night."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import eans
from eans.graph import KnowledgeGraph, Vocabulary
from eans.inspection.page import render
from helpers_browser import CONTRAST, LABELS, SCHEMES, WIDTHS, Visit, framed, needs_chromium, visit
from helpers_runs import ring_graph

pytest.importorskip("matplotlib")
pytestmark = needs_chromium


def labelled_graph() -> KnowledgeGraph:
    """The ring, with labels that a page could choke on."""
    ring = ring_graph()
    entities = [f"{label} {LABELS[place % len(LABELS)]}" for place, label in enumerate(ring.entities)]
    relations = [f"{label} {LABELS[place]}" for place, label in enumerate(ring.relations)]
    return replace(ring, entities=Vocabulary(entities), relations=Vocabulary(relations, "relation"))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("runs") / "words & <b>"
    settings = {"dim": 8, "steps": 40, "negatives": 4, "batch_size": 32, "valid_every": 10, "log_every": 5}
    eans.train(labelled_graph(), "transe", "eans", out=folder, device="cpu", **settings)
    return eans.report(folder, device="cpu")


@pytest.fixture(scope="module", params=SCHEMES)
def visited(request: pytest.FixtureRequest, report: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Visit:
    return visit(framed(render(report)), tmp_path_factory.mktemp("browser"), SCHEMES[request.param])


@pytest.fixture
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.node.callspec.params["visited"])


@pytest.mark.parametrize("name", WIDTHS)
def test_the_page_is_as_wide_as_the_window(visited: Visit, name: str) -> None:
    found = visited.told[name]
    assert found["inner"] == WIDTHS[name]
    assert found["scroll"] <= found["inner"]
    assert found["outside"] == []


@pytest.mark.parametrize("name", WIDTHS)
def test_charts_are_whole(visited: Visit, name: str) -> None:
    found = visited.told[name]
    assert len(found["charts"]) == 7
    assert all(width > 300 and height > 150 for width, height in found["charts"])
    assert found["cut"] == []
    assert found["nameless"] == 0


@pytest.mark.parametrize("name", WIDTHS)
def test_tables_are_whole(visited: Visit, report: dict[str, Any], name: str) -> None:
    found = visited.told[name]
    metrics, scores, relations = found["hanging"]
    assert found["tables"] == [2 * 5, 4, len(report["relations"])]
    assert (metrics, scores) == (0, 0)
    assert relations == 0 or name == "phone"  # there it may scroll by itself


@pytest.mark.parametrize("name", WIDTHS)
def test_labels_stay_words(visited: Visit, report: dict[str, Any], name: str) -> None:
    found = visited.told[name]
    assert found["names"] == [row["relation"] for row in report["relations"]]
    assert found["images"] == 0
    assert (found["title"], found["lang"]) == ("default/transe/eans on ring", "en")


@pytest.mark.parametrize("name", WIDTHS)
def test_text_can_be_read(visited: Visit, scheme: str, name: str) -> None:
    found = visited.told[name]
    assert found["behind"] == ("rgb(255, 255, 255)" if scheme == "day" else "rgb(21, 23, 27)")
    contrast, words = found["faintest"]
    assert contrast >= CONTRAST, words


def test_settings_are_printed(visited: Visit) -> None:
    assert not visited.told["screen"]["settings"]
    assert visited.told["paper"]["settings"] == visited.told["paper"]["unfolds"]  # what older browsers cannot do


def test_the_browser_has_nothing_to_complain_about(visited: Visit) -> None:
    assert visited.console == []
