"""Every `dsopt` command that any page names is one of dsopt's, with options that it has."""

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from dsopt.cli.main import dsopt
from tests.docs.pages import DOCS

PAGES = [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"(?:^ {4,}|(?<!\*\*)`)(?:[A-Z_]+=\S+ )*dsopt ([a-z-][^`\n]*)", re.MULTILINE)
NO_COMMAND = re.compile(r"…|\.\.\.|\||[A-Z]\[|^is\b")  # a form of many commands, or a sentence of an output
REMARK = re.compile(r"\s{2,}(?:#|[a-z]).*$|\s#.*$")  # what an output has beside a command, or a comment


def named() -> Iterator[tuple[str, str]]:
    """Pages and commands."""
    for page in PAGES:
        if page.parent.name == "reference":
            continue
        text = FENCE.sub(lambda found: indented(found[2]) if found[1] == "sh" else "", page.read_text("utf-8"))
        for command in LINE.findall(text):
            yield page.stem, REMARK.sub("", command.strip())


def indented(text: str) -> str:
    """A block of commands as a page without fences would have it."""
    return "".join(f"    {line}" for line in text.splitlines(keepends=True))


COMMANDS = sorted({(page, command) for page, command in named() if not NO_COMMAND.search(command)})


def test_many_are_found() -> None:
    assert len(COMMANDS) > 80
    assert len({command for _, command in COMMANDS if command.startswith("study ")}) > 15


@pytest.mark.parametrize(("page", "text"), COMMANDS, ids=str)
def test_a_command_is_one_of_dsopt(page: str, text: str) -> None:
    command: click.Command = dsopt
    context, args = None, shlex.split(text)
    while isinstance(command, click.Group):
        if not args or args[0].startswith("-"):
            return
        context = click.Context(command, parent=context)
        name, found, args = command.resolve_command(context, args)
        assert found is not None, name
        command = found
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    given = args[: args.index("--")] if "--" in args else args
    assert {word.split("=")[0] for word in given if re.match(r"--?[a-z]", word)} <= {*options, "--help", "-h"}
