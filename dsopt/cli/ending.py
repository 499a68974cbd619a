"""What a command prints when a study is over: the answer in a box, then what to do with it."""

import sys
from typing import TYPE_CHECKING

import click
from rich.box import ROUNDED
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from dsopt.api.results import Answer, Result

WIDTH = 100  # where there is no terminal


def console_for_stdout() -> Console:
    """A console that writes where `click.echo` does: as wide as the terminal, without colour elsewhere."""
    is_terminal = sys.stdout.isatty()
    return Console(file=sys.stdout, width=None if is_terminal else WIDTH, highlight=False)


def show_answer(best: "Result") -> None:
    """Prints what a study has found, what it changes, and the next commands."""
    console, answer = console_for_stdout(), best.answer
    console.print(Panel(_box(answer), box=ROUNDED, title=Text(answer.study), title_align="left", padding=(1, 2)))
    click.echo(f"Configuration: {answer.file}\nTrain with:    {answer.command}")
    for line in [*best.advice, answer.doubts_text]:
        if line:
            console.print(Text(line), soft_wrap=not sys.stdout.isatty())
    click.echo("Next:")
    width = max(len(command) for command, _ in answer.next_commands)
    for command, what in answer.next_commands:
        click.echo(f"  {command.ljust(width)}  {what}")


def _box(answer: "Answer") -> RenderableType:
    parts: list[RenderableType] = []
    if answer.simulated is not None:
        parts.append(Text(f"A dry run: {answer.simulated}. No figure is measured.", style="yellow"))
    parts.append(Text(answer.headline, style="bold green" if answer.rows else "bold"))
    if answer.certainty:
        parts.append(Text(answer.certainty, style="dim"))
    if answer.rows:
        table = Table.grid(padding=(0, 2))
        table.add_column()
        table.add_column(justify="right")
        table.add_column()
        table.add_column(style="bold")
        table.add_row("", Text("yours", style="dim"), "", Text("best", style="dim"))
        for row in answer.rows:
            table.add_row(Text(row.what), Text(row.yours), "→", Text(row.best))
        parts += ["", table]
    return Group(*parts)
