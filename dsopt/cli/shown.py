"""`dsopt study show`: a study on one screen."""

import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from dsopt.cli.ending import console_for_stdout

if TYPE_CHECKING:
    from dsopt import Study
    from dsopt.api.standing import Row, Standing

_MOST_ROWS = 12
_WATCH_SECONDS = 2.0
_UNBOUNDED = 1000
_LABEL = 24  # characters of a line of a configuration's name that columns beside it leave
_STYLES = {"measured": "", "slow": "dim", "running": "cyan", "infeasible": "dim", "failed": "red"}


def screen(standing: "Standing", console: Console, *, every: bool, why: bool) -> list[RenderableType]:
    """A study on one screen, part by part.

    Args:
        standing: where it stands.
        console: what it is for; a narrow one gets fewer columns.
        every: whether to show all that was tried, instead of the best.
        why: whether to show why each was chosen, why it was not measured, and every doubt.
    """
    title = Text.assemble((standing.study, "bold"), f"  {standing.state}  ·  {standing.far}")
    parts: list[RenderableType] = [title]
    if standing.simulated is not None:
        parts.append(Text(f"A dry run: {standing.simulated}. No figure is measured.", style="yellow"))
    parts.append(Text(standing.good, style="bold green" if standing.state == "finished" else "bold"))
    parts += [Text(line, style="cyan") for line in standing.now]
    rows = standing.rows if every or why else _first(standing.rows)
    if rows:
        table, left_out = _fitting_table(rows, standing, console)
        parts += ["", table]
        if left_out:
            parts.append(Text(f"A wider terminal shows {' and '.join(left_out)}, too.", style="dim"))
    if len(rows) < len(standing.rows):
        parts.append(Text(f"more: {_counted([row for row in standing.rows if row not in rows])} (--all)", style="dim"))
    if why:
        parts += [line for row in rows for line in _reasons(row)]
    if standing.stages:
        parts.append("")
        parts += [Text(f"ZeRO {stage}: {verdict}.", style="dim") for stage, verdict in standing.stages]
    if standing.advice:
        parts += ["", *(Text(line) for line in standing.advice)]
    told = [line for line in standing.doubts if why or line.startswith("WARNING: ")]
    if told:
        parts += ["", *(Text(f"• {line}") for line in told)]
    if len(told) < len(standing.doubts):
        left = len(standing.doubts) - len(told)
        parts.append(Text(f"{left} doubt{'s' * (left != 1)} about these figures: --why", style="yellow"))
    return parts


def _fitting_table(rows: Sequence["Row"], standing: "Standing", console: Console) -> tuple[Table, Sequence[str]]:
    """The table with all columns, or without the least important ones where names would not fit on a line.

    The user's own configuration takes two lines before a column goes. Where names fit beside no number of columns, they
    get the room of a short one.

    Returns:
        The table, and the columns that it leaves out.
    """
    broken = [replace(row, label=row.label.replace(" (", "\n(", 1)) if row.is_own else row for row in rows]
    choices: Sequence[tuple[Sequence[Row], tuple[str, ...]]]
    choices = ((rows, ()), (broken, ()), (broken, ("batch",)), (broken, ("memory", "batch")))
    tables = [_table(of, standing, left_out) for of, left_out in choices]
    unbounded = console.options.update(width=_UNBOUNDED)
    widths = [Measurement.get(console, unbounded, table).maximum for table in tables]
    longest = max(len(line) for row in broken for line in row.label.splitlines())
    for spared in (0, max(0, longest - _LABEL)):
        for table, width, (_, left_out) in zip(tables, widths, choices, strict=True):
            if width - spared <= console.width:
                return table, left_out
    return tables[-1], choices[-1][1]


def _first(rows: Sequence["Row"]) -> Sequence["Row"]:
    """The best of them, and the user's own configuration, which factors are of."""
    own = [row for row in rows[_MOST_ROWS:] if row.is_own]
    return [*rows[: _MOST_ROWS - len(own)], *own]


def _table(rows: Sequence["Row"], standing: "Standing", left_out: Collection[str]) -> Table:
    is_estimated = any(row.estimate is not None or row.unconfirmed for row in rows)
    searched = partial(_searched, maximize=standing.maximize)
    columns: dict[str, Callable[[Row], Text]] = {f"one run,\n{standing.unit}": searched}
    columns |= {"estimate": _estimated} if is_estimated else {}
    columns |= {"memory": _memory, "batch": _batch}
    columns = {name: cell for name, cell in columns.items() if name not in left_out}
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("")
    table.add_column("configuration", overflow="fold")
    for name in columns:
        table.add_column(name, justify="right")
    for row in rows:
        label = Text(row.label, style="bold" if row.is_best else "")
        cells = [cell(row) for cell in columns.values()]
        table.add_row(Text("★" if row.is_best else ""), label, *cells, style=_STYLES[row.state])
    return table


def _reasons(row: "Row") -> list[Text]:
    chosen = f"chosen: {row.why}" if row.why else ""
    told = [line for line in (chosen, row.origin, row.message, *row.again, row.unconfirmed) if line]
    return [Text(f"\n{row.label}  {row.name}"), *(Text(line, style="dim") for line in told)] if told else []


def _searched(row: "Row", *, maximize: bool) -> Text:
    from dsopt.api.standing import bound_text, significant

    if row.bound is not None:
        return Text(f"{bound_text(row, maximize=maximize)} stopped")
    if row.searched is None:
        return Text(row.outcome)
    precision = "" if row.searched_percent is None else f" ±{row.searched_percent:.1f} %"
    how = "imported" if row.is_imported else ""
    return Text(f"{significant(row.searched)}{precision} {how}".rstrip())


def _estimated(row: "Row") -> Text:
    if row.unconfirmed is not None:
        return Text("failed", style="red")
    if row.estimate is None or row.estimate_interval is None:
        return Text("")
    from dsopt.api.standing import significant

    low, high = row.estimate_interval
    return Text(f"{significant(row.estimate)} ({significant(low)}–{significant(high)})")


def _memory(row: "Row") -> Text:
    if row.needed_bytes is None:
        return Text("")
    share = f" {100 * row.needed_bytes / row.device_bytes:.0f} %" if row.device_bytes else ""
    return Text(f"{row.needed_bytes / 2**30:.1f} GiB{share}")


def _batch(row: "Row") -> Text:
    return Text("" if row.batch is None else str(row.batch))


def _counted(rows: Sequence["Row"]) -> str:
    words = {"slow": "stopped early", "infeasible": "not runnable"}
    counts = {words.get(state, state): sum(row.state == state for row in rows) for state in _STYLES}
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count)


def show(standing: "Standing", *, every: bool, why: bool) -> None:
    """Prints it; without a terminal, a sentence is a line."""
    console = console_for_stdout()
    for part in screen(standing, console, every=every, why=why):
        console.print(part, soft_wrap=isinstance(part, Text) and not sys.stdout.isatty())


def watch(study: "Study", *, every: bool, why: bool) -> None:
    """Shows it again and again until the study is over, or Ctrl-C."""
    console = console_for_stdout()
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            standing = study.standing
            live.update(Group(*screen(standing, console, every=every, why=why)), refresh=True)
            if standing.state in ("finished", "stopped"):
                return
            time.sleep(_WATCH_SECONDS)
