"""Puts tuners side by side and writes what `docs/benchmarks.md` quotes.

    python -m benchmarks.search [--cases published|held-out|development|recorded|measured|recomputing|all]
                                [--scenarios 200] [--noise 0.02 0.10] [--modes fast full] [--jobs 2] [--out docs]

Writes `benchmarks-search.json` (figures, and a line for each case and tuner) and `images/search-*.png` into `--out`,
and prints tables. The same arguments give the same results: every process hashes and draws with fixed seeds.
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from benchmarks.search.cases import cases_of
from benchmarks.search.figures import OURS, THEIRS, by_case, figures
from benchmarks.search.plots import plot_best_so_far
from benchmarks.search.results import Cases, Row
from benchmarks.search.side_by_side import Task, run_all
from benchmarks.search.tables import figure_table, tuner_table

_MODES = ("fast", "full")
# a grid has the knobs that it was recorded with, no published run varies any, and there it is the flag that counts
_WITHOUT_KNOBS = ("recorded", "measured", "measured-development", "recomputing", "recomputing-development")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Rows that belong in one table: of one set of cases, mode and noise level."""

    cases: Cases
    is_fast: bool
    noise: float | None

    @property
    def title(self) -> str:
        noise = "" if self.noise is None else f", noise {self.noise:.0%}"
        return f"{self.cases} cases, {'fast' if self.is_fast else 'full'}{noise}"

    @property
    def file_name(self) -> str:
        noise = "" if self.noise is None else f"-{100 * self.noise:g}"
        return f"search-{self.cases}-{'fast' if self.is_fast else 'full'}{noise}.png"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", choices=[*get_args(Cases), "all"], default="all")
    parser.add_argument("--scenarios", type=int, default=200, help="how many drawn cases")
    parser.add_argument("--noise", type=float, nargs="+", default=[0.02, 0.10])
    parser.add_argument("--modes", choices=_MODES, nargs="+", default=list(_MODES))
    parser.add_argument("--tuners", nargs="+", default=[], help="only these, by name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("docs"))
    args = parser.parse_args()
    quoted: Sequence[Cases] = ("published", "held-out", "recorded", "measured", "recomputing")
    sets = quoted if args.cases == "all" else (args.cases,)
    tasks = [
        Task(case=case, is_fast=mode == "fast", only=tuple(args.tuners))
        for which in sets
        for case in cases_of(which, count=args.scenarios, noises=tuple(args.noise))
        for mode in args.modes
        if not (which in _WITHOUT_KNOBS and mode == "full")
    ]
    rows = list(run_all(tasks, args.jobs))
    groups: dict[_Group, list[Row]] = {}
    for found in rows:
        group = _Group(cases=found.cases, is_fast=found.is_fast, noise=found.noise)
        groups.setdefault(group, []).append(found)
    document = {"groups": [_report(group, of_group, args.out) for group, of_group in groups.items()]}
    (args.out / "benchmarks-search.json").write_text(json.dumps(document, indent=1) + "\n")


def _report(group: _Group, rows: Sequence[Row], out: Path) -> dict[str, Any]:
    """Prints and draws a group; what the JSON file says of it."""
    names = {row.tuner for row in rows}
    found = figures(rows) if {OURS, THEIRS} <= names else []
    print(f"\n## {group.title}: {len(by_case(rows))} cases\n\n{tuner_table(rows)}")
    if found:
        print(f"\n{figure_table(found)}")
    plot_best_so_far(rows, out / "images" / group.file_name, group.title)
    return {
        "title": group.title,
        "figures": [asdict(figure) for figure in found],
        "rows": [_short(row) for row in rows],
    }


def _short(row: Row) -> dict[str, Any]:
    """A row without its curve, with as many digits as mean anything."""
    kept = {key: value for key, value in asdict(row).items() if key not in ("shares", "seconds", "memory_errors")}
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in kept.items()}


if __name__ == "__main__":
    main()
