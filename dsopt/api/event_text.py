"""The events of workers, in words."""

from typing import Final

from dsopt.api.events import (
    DevicesAwaited,
    DeviceSetAside,
    DriverSilent,
    Event,
    Failed,
    FilesPutBack,
    HelperReplaced,
    History,
    Measured,
    NodeAvoided,
    NodeMeasured,
    Outcome,
    Progress,
    RunsAlone,
    SavesInPlace,
    ScriptChanged,
    SecretsWithheld,
    StageClosed,
    StoredStudy,
    Task,
    TaskEnded,
    TaskSkipped,
    TaskTriedAgain,
    TrialLeftOut,
    WarmStartsEnded,
    WorkerPaused,
    WorkerWentOn,
    WroteOutside,
)
from dsopt.launch.strangers import DRIVER_SILENT
from dsopt.protocol.text import significant
from dsopt.report.changed_script import named
from dsopt.report.durations import short_duration as short_duration  # for those who show events
from dsopt.report.failures import outside_text, put_back_text
from dsopt.report.first_run import first_run_lines as first_run_lines
from dsopt.report.left import what_is_left
from dsopt.report.readable import readable_name
from dsopt.search.standing import standing_of
from dsopt.study.part import REFERENCE

_SLOW_START_SECONDS: Final = 30.0  # from where people ask what takes so long
_FAILED_BESIDE: Final = (
    "failed beside another run and went well alone: from now on runs go one after the other. Does the script use a "
    "port, a file or a lock of a fixed name?"
)
_MEETS_OTHERS: Final = (
    "saves outside of its own folder, where runs would meet each other's files: they go one after the other. For "
    "several at once, name the flag of its folder: isolate: [--FLAG] (with tune and run: --isolate=--FLAG)."
)


def event_line(event: Event) -> str | None:
    """The line that an event leaves; mere progress leaves none."""
    match event:
        case TaskEnded(study=study, task=task, outcome=outcome, value=value):
            return f"{label_of(task):<34} {_result(study, outcome, value)}"
        case TaskTriedAgain():
            return _tried_again_line(event)
        case TaskSkipped(task=task, why=why):
            return f"{label_of(task):<34} not run: {why}"
        case TrialLeftOut(study=study, part=part, trial=trial, why=why):
            return f"WARNING: trial {trial} of {study.name}/{part} {why}; it is left out."
        case WarmStartsEnded(why=why):
            return f"From now on dsopt starts ranks directly instead of forking them, which takes longer: {why}."
        case WorkerPaused(why=why):
            return f"Waiting: {why.rstrip('.')}. Current runs go on (Ctrl-C ends the worker)."
        case WorkerWentOn():
            return "Going on."
        case DeviceSetAside(task=task, device=device, why=why):
            return f"{label_of(task):<34} GPU {device} is set aside: {why}"
        case NodeAvoided(task=task, node=node, why=why, is_for_now=is_for_now):
            return f"{label_of(task):<34} node {node} is avoided {'for now' if is_for_now else 'from now on'}: {why}"
        case NodeMeasured():
            return measured_text(event)
        case RunsAlone(task=task):
            return f"{label_of(task):<34} {_FAILED_BESIDE}"
        case SavesInPlace(task=task):
            return f"{label_of(task):<34} {_MEETS_OTHERS}"
        case DevicesAwaited():
            return awaited_text(event)
        case ScriptChanged(files=files, runs=runs):
            return (
                f"WARNING: {named(files)}: {'1 run' if runs == 1 else f'{runs} runs'} before had another version, and "
                "factors will compare scripts, too. Tune in a new study (another --name)."
            )
        case HelperReplaced(what=what):
            return what
        case DriverSilent():
            return DRIVER_SILENT
        case SecretsWithheld(names=names):
            return (
                f"Runs do not get these variables, which look like secrets: {', '.join(names)}. If your script needs "
                f"one, list it: pass_env: [{names[0]}] (with tune and run: --pass-env={names[0]})."
            )
        case WroteOutside(task=task, paths=paths):
            return f"{label_of(task):<34} {outside_text(paths)}"
        case FilesPutBack(names=names, folder=folder):
            return put_back_text(names, folder)
        case StageClosed(stage=stage, verdict=verdict):
            return f"ZeRO {stage}: {verdict}."
    return None


def _tried_again_line(event: TaskTriedAgain) -> str | None:
    outcome = event.outcome
    if isinstance(outcome, Failed) and (outcome.node is not None or outcome.device is not None):
        return None  # what is avoided from now on has its own line, which says why
    where = ", if possible on another node" if event.is_elsewhere else ""
    return f"{label_of(event.task):<34} failed, and is tried again{where}: {outcome.message}"


def measured_text(event: NodeMeasured) -> str:
    """What a node does, and which of its devices are slow."""
    if event.rates is None:
        return (
            f"Node {event.node}: its devices did not show their speed: {event.why}. Runs begin all the same; "
            "dsopt doctor checks the node."
        )
    text = f"Node {event.node}: {event.pool}, each {event.rates}."
    slow = event.rates.slow_devices() if event.pool.kind == "gpu" else {}  # slots are no devices
    for place, share in slow.items():
        text += f" WARNING: GPU {event.pool.indices[place]} is {100 * share:.0f} % slower than the others."
    return text


def awaited_text(event: DevicesAwaited) -> str:
    """Who has the devices that a worker waits for."""
    held = [f"{count} held by {_holder(name)} on {node}" for count, name, node in event.holders]
    if event.files_of is not None:
        return f"Waiting for a run of {_holder(event.files_of or None)}, which saves in the same working folder."
    held += [f"{event.training} held by a training that dsopt has started"] if event.training else []
    held += list(event.strangers)
    elsewhere = (
        "runs outside of this database have them" if event.engine is None else f"{event.engine} has none to grant"
    )
    return f"Waiting for devices: {', '.join(held) or elsewhere}."


def _holder(study: str | None) -> str:
    if study is None:
        return "a deleted study"
    return f"study {study!r}" if study else "a worker that measures them"


def label_of(task: Task) -> str:
    """The name of a run, for people."""
    return readable_name(task.name, task.candidate, task.round)


def part_of(task: Task) -> str:
    """What a run is for: a ZeRO stage, the baseline or the confirmation."""
    if task.part == REFERENCE:
        return "confirmation" if task.round else "baseline"
    return f"ZeRO {task.part.stage}"


def progress_text(progress: Progress | None) -> str:
    """How far a run has come."""
    if progress is None:
        return "launching"
    if progress.phase == "starting":
        doing = "building the engine" if progress.engine is None else "doing the first step"
        slow = " (in a first run, DeepSpeed may compile its operators)" if _may_compile(progress) else ""
        return f"{doing}, {short_duration(progress.seconds)}{slow}"
    text = f"measuring, {progress.steps} steps"
    m = progress.measurement
    if m is not None:
        text += f", {significant(m.samples_per_second)} samples/s ±{100 * m.relative_half_width:.1f} %"
    return text


def _may_compile(progress: Progress) -> bool:
    return progress.engine is None and progress.seconds > _SLOW_START_SECONDS


def best_text(study: StoredStudy, history: History | None) -> str:
    """The best of a study so far, against its baseline."""
    baseline = history.find("baseline") if history is not None else None
    if history is None or not history.measured:
        if baseline is None or baseline.value is None:
            return "none yet"
        return f"yours: {significant(baseline.value)} {study.spec.autotuning.unit}"
    best = max(history.measured, key=history.score)
    repeated, standing = {o.name for o in history.reference if o.round and o.value is not None}, None
    if repeated:  # it may be less good than it seemed
        standing = standing_of(study.spec, history)
    if standing is not None:
        best = history.searched(standing.best) or best
    figure = best.value or 0.0
    if standing is not None and best.name in repeated:
        level = standing.level(best.name).factor
        figure = level if history.maximize else 1 / level
    against = f" (baseline {significant(baseline.value)})" if baseline and baseline.value is not None else ""
    origin = " (imported)" if best.imported is not None else ""
    value = f"{significant(figure)} {study.spec.autotuning.unit}"
    return f"{readable_name(best.name, best.candidate)}{origin}: {value}{against}"


def done_text(history: History | None) -> str:
    """How many runs a study has done."""
    over = [o for o in (history.everything if history else []) if o.launched and o.state != "running"]
    return f"{len(over)} run{'s' * (len(over) != 1)} done"


def left_text(study: StoredStudy, history: History, pace: float | None) -> str | None:
    """What is left of a study; None if nothing true can be said. `pace`: seconds from one run's end to the next's."""
    left = what_is_left(study.spec, history, pace)
    return left.text() if left else None


def _result(study: StoredStudy, outcome: Outcome, value: float | None) -> str:
    if not isinstance(outcome, Measured) or value is None:
        assert not isinstance(outcome, Measured)
        reason = "" if outcome.reason == outcome.state else f", {outcome.reason}"
        return f"{outcome.state}{reason}: {outcome.message}"
    m = outcome.measurement
    drift = ", still drifting" if m.drifting else ""
    return (
        f"{significant(value)} {study.spec.autotuning.unit} (±{100 * m.relative_half_width:.1f} %, "
        f"{m.measured_steps} steps{drift})"
    )
