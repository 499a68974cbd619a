"""The messages that the troubleshooting page explains are those of the code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import DOCS

PACKAGE = DOCS.parent / "dsopt"
TEXT = (DOCS / "troubleshooting.md").read_text("utf-8")
QUOTED = re.findall(r"^\*\*`(.+?)`\*\*", TEXT, re.MULTILINE)
IN_TABLES = re.findall(r"^\| `(.+?)` \|", (DOCS / "reading-a-result.md").read_text("utf-8"), re.MULTILINE)


def rendered(path: Path) -> Iterator[str]:
    """The texts in a module, with `…` for what an f-string fills in."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
            yield re.sub("…+", "…", "".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [text for path in PACKAGE.rglob("*.py") for text in rendered(path)]


def test_every_bold_message_is_found() -> None:
    assert len(QUOTED) == TEXT.count("**`") > 30


@pytest.mark.parametrize("message", [*QUOTED, *(each for each in IN_TABLES if not each.startswith("dsopt "))])
def test_a_message_still_occurs_in_the_source(message: str, texts: list[str]) -> None:
    assert any(message in text for text in texts), f"no module says: {message}"
