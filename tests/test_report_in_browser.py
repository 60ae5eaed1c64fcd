"""A report as a browser lays it out: on a screen, on a phone and on paper, by day and by night.

A window cannot be made as narrow as a phone, so the report stands in frames of the widths in question.
"""

from __future__ import annotations

import html
from dataclasses import replace
from typing import Any

import pytest

import eans
from eans.graph import KnowledgeGraph, Vocabulary
from eans.inspection.page import render
from helpers_browser import Visit, needs_chromium, visit
from helpers_runs import ring_graph

pytest.importorskip("matplotlib")
pytestmark = needs_chromium

WIDTHS = {"screen": 1280, "phone": 390, "paper": 718}  # of a sheet of A4, what Chromium's margins leave
LABELS = (
    "<img src=x onerror=\"document.title = 'no longer words'\">",
    'it\'s "quoted" & <b>bold</b>',
    "long" * 60,
    "/people/person/nationality./location/country/capital",
    "نعم",
)
SCHEMES = {"day": "--blink-settings=preferredColorScheme=1", "night": "--blink-settings=preferredColorScheme=0"}
CONTRAST = 4.5  # the least that WCAG asks of text
MEASURE = """
const channels = colour => colour.match(/[\\d.]+/g).map(Number);
const light = colour => channels(colour).slice(0, 3).map(value => value / 255)
  .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
  .reduce((sum, value, place) => sum + value * [0.2126, 0.7152, 0.0722][place], 0);
const contrast = (one, other) => {
  const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
};
const measure = frame => {
  const page = frame.contentDocument, look = frame.contentWindow.getComputedStyle.bind(frame.contentWindow);
  const all = selector => [...page.querySelectorAll(selector)], wide = frame.contentWindow.innerWidth;
  const inside = (box, other) => box.left >= other.left - 1 && box.right <= other.right + 1
    && box.top >= other.top - 1 && box.bottom <= other.bottom + 1;
  const box = element => element.getBoundingClientRect();
  const behind = element => channels(look(element).backgroundColor)[3] === 0 ? behind(element.parentElement)
    : look(element).backgroundColor;
  const own = element => [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
  const texts = all("body *").filter(element => own(element) && box(element).width && element.tagName !== "SCRIPT");
  const colour = element => element.closest("svg") ? look(element).fill : look(element).color;
  const contrasts = texts.map(element => [contrast(colour(element), behind(element.closest("svg")?.parentElement
    ?? element)), element.textContent.slice(0, 40)]);
  return {
    inner: wide,
    scroll: page.documentElement.scrollWidth,
    outside: all("body *").filter(element => !element.closest(".scroll table, pre, svg > *"))
      .filter(element => box(element).left < -1 || box(element).right > wide + 1).map(element => element.outerHTML),
    charts: all("figure svg").map(chart => [box(chart).width, box(chart).height]),
    cut: all("figure svg text").filter(text => !inside(box(text), box(text.closest("svg"))))
      .map(text => text.textContent),
    nameless: all("figure svg:not([aria-label]), figure svg[aria-label=''], input:not(label *)").length,
    tables: all("table").map(table => table.tBodies[0].rows.length),
    hanging: all(".scroll").map(place => place.scrollWidth - place.clientWidth),
    names: all("td.name").map(cell => cell.innerText),
    images: page.images.length,
    settings: all("pre")[0].checkVisibility(), unfolds: CSS.supports("selector(::details-content)"),
    faintest: contrasts.sort((one, other) => one[0] - other[0])[0],
    behind: look(page.body).backgroundColor,
    title: page.title, lang: page.documentElement.lang,
  };
};
addEventListener("load", () => tell(Object.fromEntries([...document.querySelectorAll("iframe")]
  .map(frame => [frame.id, measure(frame)]))));
"""


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


def framed(page: str) -> str:
    """A page with the report in a frame of each width; on paper, with the style that is for printing."""
    pages = {name: page.replace("@media print", "@media all") if name == "paper" else page for name in WIDTHS}
    frames = "".join(
        f'<iframe id="{name}" style="width: {width}px; height: 900px; border: 0" srcdoc="{html.escape(pages[name])}">'
        "</iframe>"
        for name, width in WIDTHS.items()
    )
    return f"<!doctype html><html><head></head><body>{frames}<script>{MEASURE}</script></body></html>"


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
