"""What a comparison measures beside the user's own configuration: what the user asks for, and what tuners chose."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dsopt.autotuner.results import chosen_config
from dsopt.errors import DsoptError
from dsopt.report.optimal import measured_optimum
from dsopt.search.history import History
from dsopt.study.candidate_run import candidate_command, run_config
from dsopt.study.check_command import check_command
from dsopt.study.command import LaunchCommand
from dsopt.study.command_secrets import secret_warnings
from dsopt.study.compared import ComparedRun, check_name
from dsopt.study.comparison import OPTIMUM, VANILLA, configured_run, vanilla_run
from dsopt.study.ds_schema import Schema, schema_if_readable
from dsopt.study.given_config import config_in, find_config
from dsopt.study.spec import StudySpec
from dsopt.study.typed import typed_words

_AUTOTUNER: Final = "autotuner"


def compared_runs(
    spec: StudySpec, given: Sequence[str], history: History | None
) -> tuple[list[ComparedRun], list[str]]:
    """The runs of a comparison in the order of its table, and warnings.

    Args:
        spec: the study, or what a command line alone says.
        given: `NAME=WHAT` each; one with the name of another run replaces that run.
        history: of a study that has a result; None for a command alone.

    Raises:
        DsoptError: WHAT is not a configuration, results folder or command.
    """
    schema, warnings = schema_if_readable("--with") if given else (None, [])
    asked = []
    for text in given:
        run, more = _given(spec, text, schema)
        asked.append(run)
        warnings += more
    names = {run.name for run in asked}
    others = [run for run in _tuned(spec, history) if run.name not in names] if history is not None else []
    vanilla = [run for run in asked if run.name == VANILLA]
    _refuse_plain_dry_runs(spec, asked)
    if spec.is_simulated:
        warnings.append(f"{VANILLA} is left out: a dry run simulates DeepSpeed, and no training without it.")
    elif not vanilla:
        derived = vanilla_run(spec)
        vanilla = [derived] if derived is not None else []
        if derived is None:
            warnings.append(
                "vanilla is left out: the file that --config_file names may ask for DeepSpeed. Give the command that "
                f'trains without it: --with {VANILLA}="accelerate launch …"'
            )
    return [*vanilla, *(run for run in asked if run.name != VANILLA), *others], warnings


def _refuse_plain_dry_runs(spec: StudySpec, asked: Sequence[ComparedRun]) -> None:
    """Refuses, in a dry run, commands that train without DeepSpeed."""
    plain = next((run.name for run in asked if run.ds_config is None), None)
    if spec.is_simulated and plain is not None:
        raise DsoptError(
            f"--with {plain}: the command names no DeepSpeed configuration, and study '{spec.name}' is a dry run, "
            "which simulates DeepSpeed alone. Leave it out, or compare real runs: remove 'simulation' "
            "from the study file."
        )


def _tuned(spec: StudySpec, history: History) -> list[ComparedRun]:
    """What tuners chose: DeepSpeed's, if its results were imported, and dsopt."""
    runs = []
    imported = [o for o in history.measured if o.imported is not None]
    if imported:
        best = max(imported, key=history.score).candidate
        command, config = candidate_command(spec, best), run_config(spec, best, history.aio)
        runs.append(ComparedRun(name=_AUTOTUNER, command=str(command), ds_config=config))
    found = measured_optimum(spec, history)
    return [*runs, ComparedRun(name=OPTIMUM, command=str(found.command), ds_config=found.ds_config)]


def _given(spec: StudySpec, text: str, schema: Schema | None) -> tuple[ComparedRun, list[str]]:
    """The run that `NAME=WHAT` asks for, and warnings."""
    name, _, what = text.partition("=")
    if not name or not what:
        raise DsoptError(f"--with {text}: expected NAME=WHAT, such as hand-tuned=ds_config.json.")
    try:
        check_name(name)
    except ValueError as error:
        raise DsoptError(f"--with {text}: {error}.") from None
    path = Path(what)
    if " " in what and not path.exists():
        return _commanded(spec, name, what, schema)
    if path.is_dir():
        tuning = spec.autotuning
        config, where = chosen_config(path, tuning.metric, maximize=tuning.maximize)
        return configured_run(spec, name, config, where, schema)
    found = config_in(path, schema)
    run, warnings = configured_run(spec, name, found.content, found.where, schema)
    return run, [*found.warnings, *warnings]


def _commanded(spec: StudySpec, name: str, typed: str, schema: Schema | None) -> tuple[ComparedRun, list[str]]:
    """The run of a whole command: with DeepSpeed if the command names a configuration, else without."""
    where, cwd = f"--with {name}", Path(spec.cwd)
    command = LaunchCommand.parse(typed_words(typed, where), where)
    check_command(command, cwd, where)
    if command.config is None:
        return ComparedRun(name=name, command=str(command)), secret_warnings(command, where)
    found = find_config({}, command, cwd, where, where, schema)
    warnings = [*found.warnings, *secret_warnings(command, where)]
    return ComparedRun(name=name, command=str(command), ds_config=found.content), warnings
