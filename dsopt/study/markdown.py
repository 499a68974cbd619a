"""Text within Markdown."""

import html
import re


def plain_markdown(text: str) -> str:
    """A text that Markdown shows as it is: neither HTML, a link, emphasis nor the end of a cell."""
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", html.escape(text, quote=False)).replace("\n", " ")
