"""Sentences on a terminal: broken between words, because a terminal would cut words. Elsewhere a sentence is a line."""

import shutil
import sys
import textwrap


def say(text: str, *, err: bool = False) -> None:
    """Prints text for people, to stdout or stderr."""
    stream = sys.stderr if err else sys.stdout  # not by click, which would write into the live view
    print(wrapped(text, shutil.get_terminal_size().columns) if stream.isatty() else text, file=stream, flush=True)


def wrapped(text: str, width: int) -> str:
    """Text with no line wider than this, unless a word is: a path stays whole, so that it can be copied.

    Rows of tables stay whole, too.
    """
    lines = text.split("\n")
    return "\n".join(
        textwrap.fill(line, max(20, width), break_long_words=False, break_on_hyphens=False, drop_whitespace=True)
        if len(line) > width and not line.startswith("|")
        else line
        for line in lines
    )
