"""HTML pages that need nothing else: figures, style and script stand inside them. What all pages have in common."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from eans._version import __version__
from eans.progress import duration


def rendered(package: str, template: str, *, charts: Mapping[str, str], **values: Any) -> str:
    """A page from a template of a package, which extends ``base.html.jinja`` of this one.

    Args:
        package, template: where the template is.
        charts: SVG elements by name, for ``chart(name, caption)`` of ``parts.html.jinja``.
        values: whatever else the template needs.
    """
    loader = ChoiceLoader([PackageLoader(name, "") for name in (package, __name__)])
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": number, "count": count, "duration": duration, "breakable": breakable}
    environment.globals |= {"charts": {name: Markup(svg) for name, svg in charts.items()}, "version": __version__}
    return environment.get_template(template).render(**values)


def number(value: float | None, places: int = 3) -> str:
    """A number with so many places; a dash for None."""
    return "–" if value is None else f"{value:,.{places}f}"


def count(value: int | None) -> str:
    """``1234`` -> ``1,234``; nothing for None."""
    return "" if value is None else f"{value:,}"


def breakable(label: str) -> Markup:
    """A label as HTML whose lines may end after its separators, rather than anywhere."""
    return Markup(re.sub(r"(?<=[_./])(?=\w)", "<wbr>", str(escape(label))))
