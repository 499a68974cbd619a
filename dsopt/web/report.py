"""A study as one file that needs nothing else: to send, to print, to keep."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from markupsafe import Markup

from dsopt.launch.machine import versions
from dsopt.protocol.text import significant
from dsopt.report.aligned import markdown
from dsopt.report.diff import Diff, shown, worth_text
from dsopt.report.for_others import answer_for_others, standing_for_others, table_for_others
from dsopt.report.numbers import number
from dsopt.report.rows import Row, bound_text
from dsopt.report.secrets import secrets_of
from dsopt.report.software import software_of
from dsopt.report.standing import Standing
from dsopt.search.facts import ModelFacts
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.study.command_secrets import shown_spec
from dsopt.study.markdown import plain_markdown
from dsopt.study.quantity import gib
from dsopt.study.spec import StudySpec
from dsopt.web.render import render, style
from dsopt.web.study_page import StudyPage, study_page, with_running
from dsopt.worker.history import load_history
from dsopt.worker.results import running_now


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A study for people who were not there.

    Attributes:
        spec: the study's.
        page: what its page shows.
        device: what its runs ran on, in words; None if no run has told.
        software: versions of what the runs trained with, in words; None if no run has told.
        made_with: versions of dsopt and Python where the report is made.
    """

    spec: StudySpec
    page: StudyPage
    device: str | None
    software: str | None
    made_with: Mapping[str, str]

    def html(self) -> str:
        """One HTML file with everything in it."""
        return render(
            "report",
            page=self.page,
            most=None,
            device=self.device,
            software=self.software,
            made_with=self.made_with,
            cwd=self.spec.cwd,
            study_file=self._study_file(),
            style=Markup(style()),  # noqa: S704 - our own file
        )

    def markdown(self) -> str:
        """The same without charts, as Markdown."""
        page = self.page
        lines = [f"# {page.name}", "", *_fenced(page.command), ""]
        lines += [page.table.text()] if page.table else _body(page)
        lines += ["", f"Made with {', '.join(f'{name} {version}' for name, version in self.made_with.items())}."]
        if self.device:
            lines.append(f"Runs ran on {plain_markdown(self.device)}.")
        if self.software:
            lines.append(f"They trained with {plain_markdown(self.software)}.")
        lines += [
            "",
            "## How to reproduce it",
            "",
            "Save this as `study.yaml`, then `dsopt study create study.yaml`:",
            "",
        ]
        return "\n".join([*lines, *_fenced(self._study_file())]) + "\n"

    def to_json(self) -> dict[str, Any]:
        """The same as data."""
        page = self.page
        return {
            "study": page.name,
            "command": page.command,
            "standing": page.standing.to_json() if page.standing else None,
            "table": page.table.to_json() if page.table else None,
            "answer": asdict(page.answer) if page.answer else None,
            "diff": page.diff.to_json() if page.diff else None,
            "device": self.device,
            "software": self.software,
            "made_with": dict(self.made_with),
        }

    def _study_file(self) -> str:
        """The study as a file, which is JSON and so YAML, without secrets."""
        return json.dumps(shown_spec(self.spec.to_json()), indent=2)


def report_of(store: Store, study: StoredStudy) -> Report:
    """The report of a study as it stands now."""
    history = load_history(store, study)
    facts = None if study.spec.compare else history.facts_for(study.spec)
    page = with_running(study_page(store, study, history), running_now(store, study))
    secrets = secrets_of(study.spec.launch)
    page = replace(
        page,
        standing=standing_for_others(page.standing, secrets) if page.standing else None,
        table=table_for_others(page.table, secrets) if page.table else None,
        answer=answer_for_others(page.answer, secrets) if page.answer else None,
    )
    return Report(
        spec=study.spec,
        page=page,
        device=_device(facts) if facts else None,
        software=software_of(history),
        made_with={name: version for name, version in versions().items() if name in ("dsopt", "python")},
    )


def _device(facts: ModelFacts) -> str:
    ranks = "1 rank" if facts.world_size == 1 else f"{facts.world_size} ranks"
    return f"{ranks} on {facts.device or 'devices'} of {gib(facts.device_memory_bytes)} each"


def _body(page: StudyPage) -> list[str]:
    standing, answer = page.standing, page.answer
    assert standing is not None
    lines = [f"**{plain_markdown(standing.good)}**", "", f"{standing.state}, {standing.far}.", ""]
    lines += [text for line in standing.now for text in (plain_markdown(line), "")]
    if standing.simulated:
        lines += [f"A dry run: {standing.simulated}. No figure is measured.", ""]
    if answer is not None and answer.rows:
        rows = [(row.what, row.yours, row.best) for row in answer.rows]
        lines += [answer.certainty, "", markdown(("", "yours", "best"), rows, (False, True, True)), ""]
    if answer is not None:
        lines += [f"Configuration: `{answer.file}`", "", "Train with:", "", *_fenced(answer.command), ""]
    lines += [text for line in standing.advice for text in (plain_markdown(line), "")]
    if standing.doubts:
        lines += ["## Before you believe it", "", *(f"- {plain_markdown(line)}" for line in standing.doubts), ""]
    if page.diff is not None and page.diff.changes:
        lines += ["## What each change is worth", "", *_changes(page.diff), ""]
    lines += [
        "## Stages",
        "",
        *(text for line in page.space for text in (plain_markdown(line), "")),
        *(f"- ZeRO {stage}: {plain_markdown(verdict)}." for stage, verdict in standing.stages),
        "",
        *([f"Model: {plain_markdown(page.model)}.", ""] if page.model else []),
    ]
    return [*lines, "## Everything that was tried", "", *_tried(standing)]


def _changes(diff: Diff) -> list[str]:
    cells = [
        (plain_markdown(c.key), *(plain_markdown(shown(c.key, value)) for value in (c.old, c.new)), worth_text(c.worth))
        for c in diff.changes
    ]
    return [markdown(("key", "yours", "best", "worth"), cells, (False, True, True, True)), "",
            plain_markdown(diff.sentence())]  # fmt: skip


def _tried(standing: Standing) -> list[str]:
    rows: Sequence[Row] = standing.rows
    if not rows:
        return ["Nothing was tried yet."]
    header = ("configuration", f"one run, {standing.unit}", "estimate", "memory", "batch", "why")
    cells = [
        (
            f"{'★ ' if row.is_best else ''}{plain_markdown(row.label)}{f' ({row.origin})' if row.origin else ''}",
            _searched(row, maximize=standing.maximize),
            _estimated(row),
            gib(row.needed_bytes) if row.needed_bytes else "-",
            "-" if row.batch is None else str(row.batch),
            plain_markdown("; ".join(filter(None, [row.why, row.message, *row.again]))),
        )
        for row in rows
    ]
    return [markdown(header, cells, (False, True, True, True, True, False))]


def _searched(row: Row, *, maximize: bool) -> str:
    if row.bound is not None:
        return f"{bound_text(row, maximize=maximize)} (stopped early)"
    if row.searched is None:
        return row.outcome
    return number(row.searched) + ("" if row.searched_percent is None else f" ±{row.searched_percent:.1f} %")


def _estimated(row: Row) -> str:
    if row.unconfirmed:
        return "failed"
    if row.estimate is None or row.estimate_interval is None:
        return "-"
    low, high = row.estimate_interval
    return f"{number(row.estimate)} ({significant(low)}–{significant(high)})"


def _fenced(text: str) -> list[str]:
    """A block of code that its content cannot end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, text, fence]
