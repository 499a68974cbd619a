"""The results of a study: its best configuration, and its runs."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from dsopt.api.output import refuse_existing
from dsopt.errors import DsoptError
from dsopt.report.answer import Answer, answer_of
from dsopt.report.diff import Diff, best_diff
from dsopt.report.files import changed_text, others_text, training_config, were_scaled, write_config
from dsopt.report.optimal import optimum
from dsopt.report.summary import Summary
from dsopt.search.history import BASELINE, History
from dsopt.store.neighbours import Neighbour, neighbours
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.study.command import LaunchCommand
from dsopt.study.command_secrets import shown
from dsopt.study.folders import OPTIMAL
from dsopt.study.given_config import named_config
from dsopt.study.secrets import HIDDEN
from dsopt.study.spec import StudySpec
from dsopt.worker.history import load_history
from dsopt.worker.results import confirmed_summary, ensure_results, not_confirmed

__all__ = ["Answer", "Result", "Run", "find_best", "not_confirmed", "runs_of", "training_of"]
_COMPUTED: Final = ("needed_memory_bytes", "why", "taken_over", "devices", "beside")  # not columns of an attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The best configuration of a finished study.

    Attributes:
        study: the study's name.
        name: the configuration's name; `baseline` is the user's own.
        ds_config: DeepSpeed's configuration.
        command: the command to train with, in the study's working folder.
        config_file: the file that the command names, absolute; it holds `ds_config`.
        value: the metric in the confirmation, in `unit`.
        unit: such as samples/s.
        factor: how many times as good as the user's own configuration it is; None if that does not run.
        interval: the 95 % interval of `factor`; None if it is not known.
        files: the study's result files, absolute; only `config_file` if you asked for another place.
        summary: the whole result.
        answer: the same as an instruction, with what the best changes.
        advice: what else to do, such as about another global batch than the user's own.
    """

    study: str
    name: str
    ds_config: Mapping[str, Any]
    command: str
    config_file: Path
    value: float
    unit: str
    factor: float | None
    interval: tuple[float, float] | None
    files: Sequence[Path]
    summary: Summary
    answer: Answer
    advice: Sequence[str]
    is_scaled: bool

    @property
    def is_own(self) -> bool:
        """Whether it is the user's own configuration, because nothing faster was found."""
        return self.name == BASELINE

    def __str__(self) -> str:
        return self.summary.sentence()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One launch of a study.

    Attributes:
        id: of the launch in the database; random, and never given again.
        stage: `z0` … `z3` in the search, `reference` for the baseline and what runs again.
        trial: number of its trial in the stage's Optuna study.
        candidate: name of what ran.
        round: 0 of the first run, 1, 2 … of those after it.
        state: `running`, `measured`, `slow`, `infeasible`, `failed` or `cancelled`.
        reason, message: why it was not measured.
        started_at, finished_at: seconds since the epoch.
        run_dir: its folder, with configuration, command, logs and metrics.
        metric: the study's metric, in its unit; of a slow run, as measured until dsopt stopped it.
        step_seconds, half_width_seconds: mean time of a step, and half the width of its 95 % interval.
        samples_per_second: of all ranks together.
        peak_memory_bytes: the largest of any rank, as torch reserved it, with blocks that it only keeps.
        needed_memory_bytes: what decides whether memory runs out, and what tables show: tensors at their peak, and
            what torch does not count; of the run that counts for its configuration and round.
        why: why it was chosen; only if the models chose it.
        taken_over: the study that it was taken over from, if it was.
        devices: the nodes and devices that it had, such as `node1:0,1@node2:0,1`; a GPU by its number there. None: it
            had none, as in a dry run, or an earlier version ran it.
        beside: the runs that went on beside it on these nodes at some time, of this worker and of all others of the
            database, by name, those of other studies behind `STUDY:`; None: none.
    """

    id: str
    stage: str
    trial: int
    candidate: str
    round: int
    state: str
    reason: str | None
    message: str | None
    started_at: float
    finished_at: float | None
    run_dir: str
    metric: float | None
    step_seconds: float | None
    half_width_seconds: float | None
    samples_per_second: float | None
    peak_memory_bytes: float | None
    needed_memory_bytes: float | None
    why: str | None
    taken_over: str | None
    devices: str | None
    beside: str | None

    def to_json(self) -> dict[str, Any]:
        """The run as data."""
        return asdict(self)


def diff_of(store: Store, study: StoredStudy) -> Diff:
    """What the best configuration of a study changes.

    Raises:
        DsoptError: the study has no result.
    """
    history = load_history(store, study)
    confirmed_summary(store, study, history)
    return best_diff(study.spec, history)


def runs_of(store: Store, study: StoredStudy, history: History) -> list[Run]:
    """Every launch of a study, oldest first."""
    whys = {o.name: o.why for o in history.observations}
    with store.engine.connect() as connection:
        met = neighbours(connection, study.id)
    sources = {(o.name, o.round): o.taken_over for o in history.everything}
    needed = {(o.name, o.round): o.facts.needed_bytes for o in history.everything if o.facts is not None}
    kept = [key for key in Run.__dataclass_fields__ if key not in _COMPUTED]
    return [
        Run(
            **{key: row[key] for key in kept},
            needed_memory_bytes=None if row["metric"] is None else needed.get((row["candidate"], row["round"])),
            why=whys.get(row["candidate"]) if row["round"] == 0 else None,
            taken_over=sources.get((row["candidate"], row["round"])),
            devices=_devices(row["devices"]),
            beside=_beside(study.name, met.get(row["id"], ())),
        )
        for row in store.runs(study)
    ]


def _beside(own: str, met: Sequence[Neighbour]) -> str | None:
    """The runs that a run met, each once."""
    names = [one.candidate if one.study == own else f"{one.study}: {one.candidate}" for one in met]
    return ", ".join(dict.fromkeys(names)) or None


def _devices(text: str | None) -> str | None:
    """The devices of nodes as DeepSpeed's `--include` has them, from names in leases, such as `gpu:0/UUID`.

    None: they are unknown, or somebody has written something else into the database.
    """
    try:
        numbers = {
            node: {int(re.split("[/@]", name)[0].partition(":")[2]) for name in names}
            for node, names in json.loads(text or "").items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return "@".join(f"{node}:{','.join(map(str, sorted(each)))}" for node, each in numbers.items())


def find_best(
    store: Store, study: StoredStudy, output: str | Path | None, *, scale_lr: bool | None, force: bool = False
) -> Result:
    """The best configuration of a study, with its files.

    Args:
        store: the storage.
        study: the study.
        output: a file for DeepSpeed's configuration, instead of the one in the results folder.
        scale_lr: whether the learning rate follows the batch; None: as in the files that are there.
        force: whether `output` is replaced if it is there.

    Raises:
        DsoptError: the study has no result, or `output` is the user's own configuration, exists or cannot be written.
    """
    study.check_trust()
    history = load_history(store, study)
    summary = confirmed_summary(store, study, history)
    assert summary.comparison is not None
    scale_lr = were_scaled(study.spec, study.created_at, study.finished_at) if scale_lr is None else scale_lr
    best = optimum(study.spec, history, scale_lr=scale_lr)
    if output is None:
        files = _result_files(store, study, scale_lr=scale_lr)
        config = next(file for file in files if file.name == OPTIMAL)
    else:
        config = save_config(study.spec, Path(output), best.ds_config, force=force)
        files = [config]
    found, command = summary.comparison, shown(best.command.with_config(str(config)))
    diff = best_diff(study.spec, history)
    return Result(
        study=study.name,
        name=found.best,
        ds_config=best.ds_config,
        command=command,
        config_file=config,
        value=found.value,
        unit=summary.unit,
        factor=found.speedup,
        interval=found.interval,
        files=files,
        summary=summary,
        answer=answer_of(summary, diff, file=str(config), command=command),
        advice=[
            *changed_text(study.name, config, best.ds_config),
            *_hidden_text(command),
            *summary.advice_lines(scaled=scale_lr),
            *others_text(study.spec, study.created_at),
        ],
        is_scaled=scale_lr,
    )


def _result_files(store: Store, study: StoredStudy, *, scale_lr: bool) -> list[Path]:
    try:
        return ensure_results(store, study, scale_lr=scale_lr)
    except PermissionError as error:
        raise DsoptError(
            f"study '{study.name}': {error.filename}: is closed to you, as another user's. For a file of your own: "
            f"dsopt study best {study.name} --output FILE"
        ) from None


def _hidden_text(command: str) -> list[str]:
    """What to do with a command that has a secret which is not shown."""
    return [f"In place of {HIDDEN} goes what you typed there: dsopt shows no secret."] if HIDDEN in command else []


def save_config(spec: StudySpec, output: Path, ds_config: Mapping[str, Any], *, force: bool) -> Path:
    """Writes a configuration to a file that a person named, and returns that, absolute: commands run in another folder.

    Raises:
        DsoptError: it is the user's own configuration, exists without `force`, or cannot be written.
    """
    path = output.absolute()
    for named, what in ((named_config(spec), "configuration"), (spec.launch.script, "script")):
        if named is not None and os.path.realpath(path) == os.path.realpath(Path(spec.cwd) / named):
            raise DsoptError(f"--output: {path} is your own {what}, which dsopt never changes. Name another file.")
    refuse_existing(path, example=OPTIMAL, force=force)
    try:
        write_config(path, ds_config)
    except OSError as error:
        raise DsoptError(f"--output: {path}: cannot be written: {error.strerror}.") from None
    return path


def training_of(store: Store, study: StoredStudy, *, scale_lr: bool) -> LaunchCommand:
    """The command of the real training with the best configuration; writes the file that it names.

    Raises:
        DsoptError: the study has no result.
    """
    find_best(store, study, None, scale_lr=scale_lr)
    best = optimum(study.spec, load_history(store, study), scale_lr=scale_lr)
    return best.command.with_config(str(training_config(study.spec, best.ds_config)))
