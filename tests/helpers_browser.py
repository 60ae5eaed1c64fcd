"""A browser for tests of pages: headless Chromium, where there is one; and what it measures of a page.

A window cannot be made as narrow as a phone, so a page stands in frames of the widths in question.
"""

from __future__ import annotations

import html
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for name in NAMES if (found := shutil.which(name))), "")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--enable-logging=stderr", "--v=0"),
)
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason=f"needs a browser: none of {', '.join(NAMES)} on the path")


class Visit(NamedTuple):
    """What the script of a page told, and what the console of the browser says."""

    told: dict[str, Any]
    console: list[str]


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
    settings: all("pre")[0]?.checkVisibility(), unfolds: CSS.supports("selector(::details-content)"),
    faintest: contrasts.sort((one, other) => one[0] - other[0])[0],
    behind: look(page.body).backgroundColor,
    title: page.title, lang: page.documentElement.lang,
  };
};
addEventListener("load", () => tell(Object.fromEntries([...document.querySelectorAll("iframe")]
  .map(frame => [frame.id, measure(frame)]))));
"""


def visit(page: str, folder: Path, *flags: str) -> Visit:
    """Open a page whose script ends with ``tell(found)``; `folder` is for the page and the browser."""
    file = folder / "page.html"
    # In two parts: the script itself must not look like what it tells.
    told = '"TO" + "LD" + JSON.stringify(found) + "END"'
    tell = f"const tell = found => {{ document.documentElement.textContent = {told}; }};"
    file.write_text(page.replace("<head>", f"<head><script>{tell}</script>", 1), "utf-8")
    done = subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", *flags, "--dump-dom", file.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "TOLD" in done.stdout, done.stderr
    text = html.unescape(done.stdout[done.stdout.index("TOLD") + 4 : done.stdout.rindex("END")])
    return Visit(json.loads(text), [line for line in done.stderr.splitlines() if "CONSOLE" in line])


def framed(page: str) -> str:
    """A page with another one in a frame of each width; on paper, with the style that is for printing."""
    pages = {name: page.replace("@media print", "@media all") if name == "paper" else page for name in WIDTHS}
    frames = "".join(
        f'<iframe id="{name}" style="width: {width}px; height: 900px; border: 0" srcdoc="{html.escape(pages[name])}">'
        "</iframe>"
        for name, width in WIDTHS.items()
    )
    return f"<!doctype html><html><head></head><body>{frames}<script>{MEASURE}</script></body></html>"
