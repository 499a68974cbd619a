"""`dsopt doctor`: what is wrong with this machine, the storage and a study, before hours are spent."""

import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from dsopt.cli.nodes import given_engine, nodes_options
from dsopt.cli.options import devices_option, json_option, print_json, storage_option
from dsopt.cli.prose import wrapped

if TYPE_CHECKING:
    from dsopt.api.doctor import Check

_COLOURS: Final = {"ok": "green", "warning": "yellow", "problem": "red", "skipped": "bright_black"}
_NAME: Final = 15  # characters
_BEHIND: Final = 7 + 2 + _NAME + 2  # where a message begins
_LEAST: Final = 30  # from how many characters on a column of text can be read
_STUDY_FILES: Final = (".yaml", ".yml")


class _Doctor(click.Command):
    """Says how to give a command if its options were taken for this one's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if "--" in typed:
                raise
            raise click.UsageError(
                f"{error.format_message()} Put -- in front of a command: dsopt doctor -- deepspeed …", ctx
            ) from None


@click.command(cls=_Doctor)
@storage_option
@devices_option
@nodes_options
@json_option
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[FILE | -- deepspeed …]")
@click.pass_context
def doctor(
    context: click.Context, /, words: tuple[str, ...], storage: str | None, devices: str | None, as_json: bool
) -> None:
    """Check this machine, the storage, and a study: its file, or its command after --.

    It changes nothing. It starts small programs in the training environment, so do not call it while runs are measured.
    Exits with 1 if there is a problem; warnings are no problem.
    """
    from dsopt.api.doctor import begin_diagnosis

    file, command = _asked(words)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing of a check outlives this
    found = []
    asked = begin_diagnosis(file, command=command, storage=storage, devices=devices, engine=given_engine())
    for check in asked:
        found.append(check)
        if not as_json:
            click.echo(_line(check))
    if as_json:
        keys = ("name", "status", "message", "fix")
        print_json([{key: getattr(check, key) for key in keys} for check in found])
    else:
        click.echo(_total(found))
    context.exit(1 if any(check.status == "problem" for check in found) else 0)


def _asked(words: Sequence[str]) -> tuple[Path | None, Sequence[str] | None]:
    """The study file or the command that the words name."""
    if not words:
        return None, None
    first = Path(words[0])
    is_file = first.suffix in _STUDY_FILES or (len(words) == 1 and shutil.which(words[0]) is None)
    if not is_file:
        return None, words
    if len(words) > 1:
        raise click.UsageError(f"{words[1]!r} is one word too many behind a study file. Give one file, or a command.")
    return first, None


def _line(check: "Check") -> str:
    status = click.style(check.status.ljust(7), fg=_COLOURS[check.status])
    fix = f". Fix: {check.fix}" if check.fix and check.fix not in check.message else ""
    told = f"{check.message.removesuffix('.') if fix else check.message}{fix}"
    return f"{status}  {check.name.ljust(_NAME)}  {_hanging(told)}"


def _hanging(text: str) -> str:
    """A text behind a check's name, broken between words where a terminal would cut them."""
    width = shutil.get_terminal_size().columns - _BEHIND
    if not sys.stdout.isatty() or width < _LEAST:
        return text
    return wrapped(text, width).replace("\n", "\n" + " " * _BEHIND)


def _total(found: Sequence["Check"]) -> str:
    counts = {status: sum(check.status == status for check in found) for status in ("problem", "warning")}
    told = [f"{count} {status}{'s' if count != 1 else ''}" for status, count in counts.items()]
    return f"{' and '.join(told)}."
