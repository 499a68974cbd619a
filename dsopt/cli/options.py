"""Options that several commands share, and how they print."""

import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from dsopt.api.storage import DEFAULT_STORAGE, STORAGE_FILE_VARIABLE, STORAGE_VARIABLE
from dsopt.cli.prose import say

_F = TypeVar("_F", bound=Callable[..., Any])


def complete_study(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The names of studies that begin so, for a shell that completes."""
    try:
        from dsopt.api.headers import list_studies

        return [s.name for s in list_studies(storage=context.params.get("storage")) if s.name.startswith(incomplete)]
    except Exception:  # a traceback in the middle of a line that somebody types helps nobody
        return []


def storage_option(command: _F) -> _F:
    """`--storage URL`, by default DSOPT_STORAGE or SQLite in the working directory."""
    return click.option(
        "--storage",
        "storage",
        metavar="URL",
        help="Database: sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME. "
        f"Default: {STORAGE_VARIABLE}, else the one in the file that {STORAGE_FILE_VARIABLE} names, else "
        f"{DEFAULT_STORAGE}.",
    )(command)


def json_option(command: _F) -> _F:
    """`--json`: data instead of text."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def json_at_the_end_option(command: _F) -> _F:
    """`--json` of a command that works: progress goes to stderr."""
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        help="Print one JSON document at the end, with the summary of each study; progress goes to stderr.",
    )(command)


def devices_option(command: _F) -> _F:
    """`--devices`: what a worker may use."""
    return click.option(
        "--devices",
        metavar="LIST",
        help="GPUs such as 0,1,4-7 (default: all visible ones), or cpu:N for N slots on a machine without GPUs "
        "(default: its cores).",
    )(command)


def scaling_option(command: _F) -> _F:
    """`--apply-lr-scaling`: the learning rate follows the batch."""
    return click.option(
        "--apply-lr-scaling",
        "scale_lr",
        is_flag=True,
        help="Write the learning rate scaled to the best configuration's global batch.",
    )(command)


def take_over_option(command: _F) -> _F:
    """`--take-over`: an earlier study whose runs the new one reuses."""
    return click.option(
        "--take-over",
        "earlier",
        metavar="STUDY",
        help="Do not measure again what STUDY has run with the same configuration and command.",
    )(command)


def only_data_on_stdout(as_json: bool) -> contextlib.AbstractContextManager[object]:
    """Sends what is printed for people to stderr if the user asked for data."""
    return contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()


def print_warnings(warnings: Sequence[str]) -> None:
    """Prints warnings to stderr, one per line."""
    for warning in warnings:
        say(f"warning: {warning}", err=True)


def print_json(content: Any) -> None:  # noqa: ANN401 - any JSON value
    """Prints data."""
    click.echo(json.dumps(content, indent=2))
