"""Options and set-up that several commands share."""

import json
import logging
from collections.abc import Callable
from typing import Any, TypeVar

import click

from dsopt.store.studies import Store

_F = TypeVar("_F", bound=Callable[..., Any])
DEFAULT_STORAGE = "sqlite:///.dsopt/dsopt.db"


def storage_option(command: _F) -> _F:
    """`--storage URL`, by default DSOPT_STORAGE or SQLite in the working directory."""
    return click.option(
        "--storage",
        "storage",
        envvar="DSOPT_STORAGE",
        default=DEFAULT_STORAGE,
        metavar="URL",
        help="Database: sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME. "
        f"Default: DSOPT_STORAGE, else {DEFAULT_STORAGE}.",
    )(command)


def json_option(command: _F) -> _F:
    """`--json`: data instead of text."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


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
    """`--take-over`: an earlier study whose runs are not made again."""
    return click.option(
        "--take-over",
        "earlier",
        metavar="STUDY",
        help="Do not measure again what STUDY has run with the same configuration and command.",
    )(command)


def quiet_libraries() -> None:
    """Log lines of Optuna and Alembic are not for the user of a command."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)


def run_label(name: str, round_: int) -> str:
    """How a run is called: its candidate, and its round in the confirmation."""
    return f"{name} (round {round_})" if round_ else name


def open_store(url: str, *, make: bool = False) -> Store:
    """Opens the storage, and makes it with `make`."""
    quiet_libraries()
    return Store.open(url, make=make)


def print_json(content: Any) -> None:  # noqa: ANN401 - any JSON value
    """Prints data."""
    click.echo(json.dumps(content, indent=2))
