"""Hooks of MkDocs, which make its Markdown read lists as GitHub does."""

from __future__ import annotations

import re
from typing import Any

from markdown import Markdown
from markdown.blockprocessors import build_block_parser
from markdown.extensions import Extension


class TwoSpaces(Extension):  # type: ignore[misc]
    """What belongs to a list item is indented by two spaces, not by four.

    It makes the parser of blocks anew, so it has to come before all other extensions.
    """

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        md.tab_length = 2
        md.parser = build_block_parser(md)


def on_config(config: Any) -> Any:
    """Put the extension first."""
    config.markdown_extensions.insert(0, TwoSpaces())
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A blank line between an item of several paragraphs and the next one, which GitHub does not need."""
    return re.sub(r"\n\n((?:  .*\n)+)(?=- )", r"\n\n\1\n", markdown)
