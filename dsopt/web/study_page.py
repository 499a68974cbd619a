"""The page of one study: the answer, how it was found, and everything that was tried."""

import json
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from dsopt.report.answer import Answer, answer_of
from dsopt.report.compare import ComparisonTable
from dsopt.report.diff import Diff, best_diff
from dsopt.report.files import config_file, were_scaled
from dsopt.report.model import model_line
from dsopt.report.optimal import optimum
from dsopt.report.rows import Row
from dsopt.report.space import space_lines
from dsopt.report.standing import Now, Standing, running_lines, standing_of
from dsopt.report.summary import Summary
from dsopt.search.history import History
from dsopt.store.measured import details_of
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.study.command_secrets import shown
from dsopt.web import plots
from dsopt.web.histories import Histories
from dsopt.worker.compared_later import comparison_version
from dsopt.worker.results import running_now, summary_of, table_of

_BARS = 6  # configurations whose step is shown in its parts, next to the user's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A chart with its heading, and `key`, what its signs mean; without one, `why_not` says why."""

    heading: str
    svg: Markup | None
    why_not: str
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPage:
    """What a study's page shows.

    Attributes:
        name, command: the study, and the user's command without its secrets.
        standing: where it stands; None for a comparison.
        table: of a comparison.
        answer, diff: of a study that has a result.
        stages: the ZeRO stages whose colours its charts have.
        space: what it searches, in words.
        model: what runs showed of it, in words.
        figures: the charts.
        optuna: by part, the address of its study in optuna-dashboard, relative to the overview.
    """

    name: str
    command: str
    standing: Standing | None = None
    table: ComparisonTable | None = None
    answer: Answer | None = None
    diff: Diff | None = None
    stages: Sequence[int] = ()
    space: Sequence[str] = ()
    model: str | None = None
    figures: Sequence[Figure] = ()
    optuna: Sequence[tuple[str, str]] = ()


class StudyPages:
    """Reads pages; of a study that has not changed, only what runs now is read again.

    Browsers that ask for the same page at once let one of them make it; nobody waits for another page.
    """

    def __init__(self, store: Store, histories: Histories) -> None:
        self._store = store
        self._histories = histories
        self._known: dict[str, tuple[tuple[int, int], StudyPage]] = {}
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def read(self, name: str) -> StudyPage:
        """The page of a study.

        Raises:
            DsoptError: there is none of that name, or this version cannot read it.
        """
        study = self._store.read(name)
        version = (self._store.now(study).version, comparison_version(self._store, study))
        running = running_now(self._store, study)
        with self._locks[study.id]:
            known = self._known.get(study.id)
            if known is None or known[0] != version:
                page = study_page(self._store, *self._histories.read(study))
                known = self._known[study.id] = (version, page)
        return with_running(known[1], running)


def with_running(page: StudyPage, running: Sequence[Now]) -> StudyPage:
    """The page with the runs that go on, if there are any."""
    if page.standing is None or not running:
        return page
    lines = running_lines(running, {row.name: row.label for row in page.standing.rows})
    return replace(page, standing=replace(page.standing, now=lines))


def study_page(store: Store, study: StoredStudy, history: History) -> StudyPage:
    """What a study's page shows, but for the runs that go on."""
    spec, command = study.spec, shown(study.spec.launch)
    if spec.compare:
        return StudyPage(name=study.name, command=command, table=table_of(store, study, history))
    summary = summary_of(store, study, history)
    scaled = were_scaled(spec, study.created_at, study.finished_at)
    standing = standing_of(spec, history, summary, (), scaled=scaled)
    answer, diff = _answer(study, history, summary, scaled=scaled)
    return StudyPage(
        name=study.name,
        command=command,
        standing=standing,
        answer=answer,
        diff=diff,
        stages=sorted({*spec.stages, *(row.stage for row in standing.rows if row.stage is not None)}),
        space=space_lines(spec),
        model=model_line(summary.model) if summary.model else None,
        figures=_figures(store, study, history, standing),
        optuna=_optuna(store, study),
    )


def _answer(
    study: StoredStudy, history: History, summary: Summary, *, scaled: bool
) -> tuple[Answer | None, Diff | None]:
    if summary.comparison is None:
        return None, None
    diff = best_diff(study.spec, history)
    file = str(config_file(study.spec, study.created_at, study.finished_at))
    best = optimum(study.spec, history, scale_lr=scaled)
    command = shown(best.command.with_config(file))
    return answer_of(summary, diff, file=file, command=command), diff


def _figures(store: Store, study: StoredStudy, history: History, standing: Standing) -> list[Figure]:
    measured = [row for row in standing.rows if row.state == "measured"]
    best = [*measured[:_BARS], *(row for row in measured[_BARS:] if row.is_own)]
    passes = _passes(store, study, best)
    facts = history.facts_for(study.spec)
    sizes = plots.by_micro_batch(standing)
    return [
        Figure(
            heading=f"{standing.metric[:1].upper()}{standing.metric[1:]} by micro-batch size",
            svg=sizes.svg() if sizes else None,
            why_not="Nothing was measured yet.",
            key=plots.key_of(sizes) if sizes else "",
        ),
        Figure(
            heading="Best so far",
            svg=plots.best_so_far(standing, history),
            why_not="Fewer than two runs were measured.",
        ),
        Figure(
            heading="Memory, predicted and measured",
            svg=plots.memory(study.spec, facts, history, standing),
            why_not="Nothing but your own configuration was measured so far, or not on a device whose memory is known.",
        ),
        Figure(
            heading=plots.STEP_PARTS,
            svg=plots.step_parts(best, passes),
            why_not="No run has told how long its passes take.",
        ),
    ]


def _passes(store: Store, study: StoredStudy, rows: Sequence[Row]) -> dict[str, Mapping[str, Sequence[float]]]:
    """By name, the seconds of each pass of each step, and of `all` of it."""
    found: dict[str, Mapping[str, Sequence[float]]] = {}
    for name, text in details_of(store.engine, study.id, [row.name for row in rows]).items():
        details = json.loads(text)
        found[name] = {**details.get("pass_seconds", {}), "all": details.get("step_seconds", [])}
    return found


def _optuna(store: Store, study: StoredStudy) -> list[tuple[str, str]]:
    links = []
    for part in study.parts:
        try:
            number = store.optuna_storage.get_study_id_from_name(f"{study.name}/{part}")
        except KeyError:
            continue
        links.append((str(part), f"optuna/studies/{number}"))
    return links
