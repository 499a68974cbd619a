"""The pages of the documentation that a reader follows at a keyboard, as blocks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = sorted(DOCS.glob("guides/*.md"))
PAGES = [*(DOCS / f"{name}.md" for name in ("start", "words", "reading-a-result", "search-space")), *GUIDES]
FENCE = re.compile(r"(?:<!-- not run: (?P<reason>.+) -->\n)?^```(?P<kind>.*)\n(?P<body>(?:.*\n)*?)^```$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block.

    Attributes:
        kind: its language.
        text: what is in it.
        caption: the name of the file that it is; empty: it is none.
        reason: why no test runs it; empty: one does.
    """

    kind: str
    text: str
    caption: str
    reason: str


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page, in order."""
    for match in FENCE.finditer(page.read_text("utf-8")):
        kind, text, caption = match["kind"], match["body"], ""
        if kind.startswith("{code-block}"):
            kind = kind.removeprefix("{code-block}").strip()
            caption, _, text = text.removeprefix(":caption: ").partition("\n\n")
        yield Block(kind=kind, text=text, caption=caption, reason=match["reason"] or "")
