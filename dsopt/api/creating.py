"""Creates studies: from a study file, from a mapping of the same keys, or from a launch command."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dsopt.api.storage import handed_on
from dsopt.api.study import Study
from dsopt.launch.devices import DevicePool
from dsopt.report.changed_script import named, runs_of_others
from dsopt.report.files import check_given, set_aside_earlier
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.store.told import unsigned_note
from dsopt.study.command import LaunchCommand
from dsopt.study.load import build_spec, load_spec
from dsopt.study.spec import StudySpec
from dsopt.study.typed import typed_words
from dsopt.study.wrong_flags import wrong_flags
from dsopt.worker.check_node import check_node
from dsopt.worker.history import load_history
from dsopt.worker.takeover import check_source, take_over

_OVERWRITTEN: Final = (
    "autotuning.overwrite: the finished study '{}' of this folder was deleted; its run directories and files stay"
)
_SIGNED: Final = (
    "autotuning.overwrite: the finished study '{}' was not signed. It is now, and stays; to begin anew, do this again"
)

COMMAND_LINE: Final = "command line"  # what messages name as the place of a command that is in no file


def create_study(
    source: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    *,
    command: Sequence[str] | None = None,
    name: str | None = None,
    take_over: str | None = None,
    storage: str | None = None,
    **settings: Any,  # noqa: ANN401 - keys of the study file
) -> Study:
    """Creates a study. Creating the same study again changes nothing and returns the existing one.

        study = dsopt.create_study("my-study.yaml")
        study = dsopt.create_study(command=["deepspeed", "train.py", "--deepspeed_config", "ds.json"], name="mine")

    It moves the result files of an earlier study of that name to `earlier` in the results folder.

    Args:
        source: a study file, or a mapping of what would be in one; paths in a mapping are relative to the working
            directory.
        command: instead of `source`, the launch command, word by word.
        name: the study's name; by default that in the source, else the file's or the script's.
        take_over: name of an earlier study; the new one reuses its runs with the same configuration and command.
        storage: URL of the database; by default DSOPT_STORAGE, else SQLite in the working directory.
        settings: with `command`, further keys of the study file, such as `timeout_seconds=60`.

    Raises:
        DsoptError: the study is not valid, or a study with another spec has its name; nothing has changed.
        TypeError: not exactly one of `source` and `command` is given, or settings beside a source.
    """
    if (source is None) == (command is None):
        raise TypeError("create_study takes a study file, a mapping, or command=[...]; exactly one of them.")
    if command is not None:
        return keep(*spec_of_command(command, {"name": name, **settings}), take_over, storage)
    if settings:
        raise TypeError(f"create_study: {', '.join(settings)}: needs command=[...]; write it in the source instead.")
    if isinstance(source, Mapping):
        return keep(*_spec_of_mapping(source, name), take_over, storage)
    assert source is not None
    return keep(*load_spec(Path(source), name), take_over, storage)


def spec_of_command(command: Sequence[str], settings: Mapping[str, Any]) -> tuple[StudySpec, list[str]]:
    """The spec of a command that was typed here, and warnings; ignores settings without a value."""
    content: dict[str, Any] = {
        "name": LaunchCommand.parse(typed_words(list(command), COMMAND_LINE), COMMAND_LINE).study_name,
        "command": list(command),  # a shell has split it already
        "cwd": str(Path.cwd()),
    }
    given = {key: list(v) if isinstance(v, tuple) else v for key, v in settings.items() if v not in (None, ())}
    return build_spec(content | given, COMMAND_LINE)


def keep(
    spec: StudySpec,
    warnings: Sequence[str],
    earlier: str | None,
    storage: str | None,
    pool: DevicePool | None = None,
) -> Study:
    """Stores a study, and creates the storage if there is none yet.

    Args:
        spec: the study.
        warnings: those from reading it.
        earlier: a study whose runs it takes over.
        storage: the URL, or None for the default.
        pool: devices here; before anything is created, the study has to be one that can run on them.
    """
    if pool is not None:
        check_node(spec, pool)
    with handed_on(storage, make=True) as store:
        return _keep(store, spec, warnings, earlier)


def _keep(store: Store, spec: StudySpec, warnings: Sequence[str], earlier: str | None) -> Study:
    source = None if earlier is None else store.get(earlier)
    if source is not None:
        check_source(spec, source.spec)
    is_there = any(header.name == spec.name for header in store.headers())
    may_overwrite = spec.autotuning.overwrite and is_there
    if may_overwrite or not is_there:
        check_given(spec)
    stored, is_new = store.create(spec)
    is_begun = not is_new and bool(store.runs(stored))  # a creator may have been interrupted just before this
    aside = None if is_begun else set_aside_earlier(spec)
    taken = take_over(store, stored, source) if source is not None and stored.state != "finished" else None
    note = unsigned_note(store.engine)
    changed = None if is_new else _changed_note(store, stored)
    flags = [] if spec.is_simulated else wrong_flags(spec) or []
    wrong = (f"{message}: runs will fail. {fix}".rstrip() for message, fix in flags)
    told = [*warnings, *wrong, *(text for text in (note, changed) if text)]
    if may_overwrite and (is_new or stored.state == "finished"):
        told.append((_OVERWRITTEN if is_new else _SIGNED).format(spec.name))
    return Study(store, stored, warnings=told, is_new=is_new, taken_over=taken, earlier_results=aside)


def _changed_note(store: Store, study: StoredStudy) -> str | None:
    """A warning if the script is another one than that of runs of the study."""
    spec = study.spec
    files, earlier = ([], 0) if spec.compare else runs_of_others(spec, load_history(store, study))
    if not files:
        return None
    runs = "1 run" if earlier == 1 else f"{earlier} runs"
    return (
        f"{named(files)}: {runs} of study '{spec.name}' had another version, so its result may not "
        "be that of the script as it is now. To tune anew, give another name (--name), or: dsopt study delete "
        f"{spec.name}"
    )


def _spec_of_mapping(source: Mapping[str, Any], name: str | None) -> tuple[StudySpec, list[str]]:
    content = dict(source)
    if isinstance(content.get("cwd", ""), str):
        content["cwd"] = os.path.realpath(content.get("cwd", ""))
    if name is not None:
        content["name"] = name
    command = content.get("command")
    if "name" not in content and isinstance(command, str | list):
        content["name"] = LaunchCommand.parse(typed_words(command, "study: command"), "study: command").study_name
    return build_spec(content, "study")
