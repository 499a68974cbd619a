"""Sentences on a terminal: broken between words, because a terminal would cut words. Elsewhere a sentence is a line."""

import shutil
import sys
import textwrap

import click


def say(text: str, *, err: bool = False) -> None:
    """Prints text for people, to stdout or stderr."""
    is_terminal = (sys.stderr if err else sys.stdout).isatty()
    click.echo(wrapped(text, shutil.get_terminal_size().columns) if is_terminal else text, err=err)


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
