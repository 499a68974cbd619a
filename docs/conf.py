"""How Sphinx builds this folder: `make docs`. The pages under `reference/` are written from the code first."""

import re
import sys
from pathlib import Path
from typing import Final

from sphinx.application import Sphinx

HERE: Final = Path(__file__).parent
SECTION: Final = re.compile(r"(Args|Attributes|Returns|Raises|Yields):")
sys.path[:0] = [str(HERE), str(HERE.parent)]

project = "dsopt"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "search.md"]  # Sphinx calls its own page search.html; ours is included by another
html_theme = "furo"
html_title = "dsopt"
html_show_copyright = False
myst_heading_anchors = 3
smartquotes_action = "D"  # dashes alone
default_role = "literal"  # in docstrings
highlight_language = "none"  # what is indented is output and commands alike
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_use_ivar = True


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("builder-inited", write_reference)
    app.connect("source-read", lead_to_search)
    app.connect("autodoc-process-docstring", mark_examples, priority=400)  # before napoleon reads the sections


def write_reference(_: Sphinx) -> None:
    """Writes the pages that are made from the code, before Sphinx looks which pages there are."""
    from generate import write

    write(HERE / "reference")


def lead_to_search(_: Sphinx, __: str, source: list[str]) -> None:
    """Links to `search.md` lead to the page that includes it."""
    source[0] = re.sub(r"(\]\((?:\.\./)?)search\.md", r"\1how-it-decides.md", source[0])


def mark_examples(*given: object) -> None:
    """Indented lines of a docstring, in front of its sections, are code.

    What it returns is a sentence, also where it has a colon, which napoleon would take for the end of a type.
    """
    lines = given[-1]
    assert isinstance(lines, list)
    about, sections = lines, []
    starts = [index for index, line in enumerate(lines) if SECTION.fullmatch(line)]
    if starts:
        about, sections = lines[: starts[0]], lines[starts[0] :]
    text = re.sub(r"(?m)(?<=\n\n)((?:    .*\n|\n(?=    ))+)", r".. code-block:: python\n\n\1", "\n".join(about) + "\n")
    told = re.sub(r"(?m)^Returns:\n    ", ":returns: ", "\n".join(sections))
    lines[:] = [*text.split("\n"), *told.split("\n")]
