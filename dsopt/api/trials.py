"""One run of a study, and what it wrote."""

from dsopt.api.results import Run
from dsopt.api.study import Study
from dsopt.errors import DsoptError
from dsopt.protocol.run_dir import RunDir
from dsopt.protocol.tail import tail
from dsopt.protocol.text import plain_text, significant
from dsopt.report.left import ON_CLUSTER
from dsopt.report.named import labels
from dsopt.report.readable import outcome_text
from dsopt.search.run_cost import whole_seconds
from dsopt.study.documents import nearest
from dsopt.study.folders import is_run_directory
from dsopt.worker.history import load_history

_MOST_BYTES = 2**20


def find_run(study: Study, name: str, round_: int | None = None) -> Run:
    """The last run of a configuration.

    Args:
        study: the study.
        name: the configuration's canonical name, `baseline` or `profile`, or what people read for it, such as
            `ZeRO 2 · 24 × 4`; `dsopt study show --why` lists both.
        round_: of the confirmation, 0 for the search; None: the last run of all.

    Raises:
        DsoptError: it has none.
    """
    runs, known_labels = study.runs, _labels(study)
    name = next((known for known, label in known_labels.items() if _spelt(label) == _spelt(name)), name)
    found = [run for run in runs if run.candidate == name and round_ in (None, run.round)]
    if found:
        return found[-1]
    names = list(dict.fromkeys(run.candidate for run in runs))
    meant = nearest(name, names, cutoff=0.6)
    hint = f"Did you mean '{meant}'?" if meant and meant != name else f"See: dsopt study show {study.name} --why"
    where = "" if round_ is None else f" in round {round_}"
    raise DsoptError(f"study '{study.name}' has no run of {name!r}{where}. {hint}")


def _labels(study: Study) -> dict[str, str]:
    """What people read for each configuration that was tried, by its name."""
    return labels(load_history(study._store, study._stored).everything)


def _spelt(label: str) -> str:
    """A label without what is hard to type: `ZeRO 2 · 24 × 4` and `zero 2 24 x 4` are the same."""
    return " ".join(label.casefold().replace("×", "x").replace("·", " ").split())


def described(study: Study, run: Run) -> list[str]:
    """A run in lines: what came of it, why it was chosen, where its files are."""
    unit, spec, seen = study.spec.autotuning.unit, study.spec, load_history(study._store, study._stored).everything
    label = labels(seen).get(run.candidate, run.candidate)
    lines = [f"{label}{f' · round {run.round}' if run.round else ''}: {run.state}", f"name: {run.candidate}"]
    if run.metric is not None:
        until = " until it was stopped" if run.state == "slow" else ""
        lines.append(f"metric{until}: {significant(run.metric)} {unit}")
    values = [
        f"{significant(o.figure)} in round {o.round}" for o in seen if o.name == run.candidate and o.figure is not None
    ]
    lines += [f"launched {len(values)} times: {', '.join(values)}"] if len(values) > 1 else []
    if run.step_seconds is not None and run.half_width_seconds is not None:
        lines.append(
            f"step: {significant(1000 * run.step_seconds, 5)} ms ± {significant(1000 * run.half_width_seconds, 2)} ms"
        )
    if run.needed_memory_bytes:
        lines.append(f"memory: the fullest rank needed {run.needed_memory_bytes / 2**30:.2f} GiB at its peak")
    simulated = [o for o in seen if (o.name, o.round) == (run.candidate, run.round) and o.seconds is not None]
    if spec.is_simulated and simulated:
        lines.append(f"took: {whole_seconds(spec, simulated[-1]):.0f} s {ON_CLUSTER}")
    elif run.finished_at is not None:
        lines.append(f"took: {run.finished_at - run.started_at:.0f} s")
    lines += [f"devices: {run.devices}"] if run.devices else []
    lines += [f"beside it on these nodes: {run.beside}"] if run.beside else []
    lines += [f"chosen: {run.why}"] if run.why else []
    lines += [f"{outcome_text(run.state, run.reason)}: {plain_text(run.message or '')}"] if run.reason else []
    return [*lines, f"files: {run.run_dir}"]


def logs_of(study: Study, run: Run, lines: int) -> list[tuple[str, list[str]]]:
    """The last lines of what a run wrote to stdout and stderr, by name of the file.

    Raises:
        DsoptError: its folder is not here, or is none of the study's.
    """
    if not is_run_directory(study.spec, run.run_dir):
        raise DsoptError(
            f"{run.run_dir}: no folder of a run of study '{study.name}' here. Look on the node that ran it."
        )
    folder = RunDir(run.run_dir)
    return [
        (path.name, plain_text(tail(path, _MOST_BYTES)).splitlines()[-lines:])
        for path in (folder.stdout, folder.stderr)
        if path.is_file()
    ]
