"""A browser for tests of pages: headless Chromium, where there is one."""

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
