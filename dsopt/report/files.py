"""The files a finished study leaves in its results folder."""

import hashlib
import json
import os
import shlex
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from dsopt.errors import DsoptError
from dsopt.protocol.private import make_private, write_private
from dsopt.report.optimal import optimum
from dsopt.report.partitioned import SAVES_WHOLE
from dsopt.report.summary import Summary
from dsopt.search.history import History
from dsopt.study.command_secrets import shown
from dsopt.study.ds_config import TRAIN_BATCH
from dsopt.study.folders import OPTIMAL, find_results_folder, results_folder
from dsopt.study.given_config import named_config
from dsopt.study.spec import StudySpec

_COMMAND: Final = "cmd_optimal.txt"
_SUMMARY: Final = "summary.txt"
_NOTE: Final = ".dsopt-results"  # says which study the files belong to; written last
_EARLIER: Final = "earlier"
_CHANGED: Final = "{}.changed"  # by somebody
_TRAINING: Final = "training"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesOf:
    """What result files belong to.

    Attributes:
        created_at, finished_at: of the study, in seconds since the epoch; another study of its name, or the same one
            finished again, has other times.
        is_scaled: whether the learning rate in them follows the batch.
    """

    created_at: float
    finished_at: float | None
    is_scaled: bool


def written_files(spec: StudySpec, about: FilesOf, *, any_scaling: bool) -> list[Path] | None:
    """The result files of a study if all of them exist and belong to it, else None.

    Args:
        spec: the study.
        about: what they must belong to.
        any_scaling: whether both a scaled and an unscaled learning rate will do.
    """
    found_folder = find_results_folder(spec)
    if found_folder is None:
        return None
    folder = _place_in(found_folder, about.created_at, about.finished_at)
    try:
        note = json.loads((folder / _NOTE).read_text("utf-8"))
        found = FilesOf(**{key: note[key] for key in FilesOf.__dataclass_fields__})
        files = [folder / name for name in note["files"]]
    except FileNotFoundError:  # a study that an earlier version of dsopt finished
        files = [folder / name for name in (_SUMMARY, OPTIMAL, _COMMAND)]
        is_whole = any_scaling and all(path.is_file() for path in files)
        return files if is_whole and all(path.stat().st_mtime > about.created_at for path in files) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    is_of_it = (found.created_at, found.finished_at) == (about.created_at, about.finished_at)
    is_scaled_so = any_scaling or found.is_scaled == about.is_scaled
    return files if is_of_it and is_scaled_so and all(map(_is_there, files)) else None


def _is_there(path: Path) -> bool:
    """Whether a file is there, and not empty, as one may be after the machine has lost its power."""
    return path.is_file() and path.stat().st_size > 0


def changed_text(study: str, path: Path, ds_config: Mapping[str, Any]) -> list[str]:
    """A warning if a file of the results has another configuration than the best."""
    try:
        there = json.loads(path.read_text("utf-8"))
        is_same = there == _as_known_to(there, ds_config)
    except (OSError, ValueError, AttributeError):
        is_same = False
    if is_same:
        return []
    return [
        f"WARNING: {path} does not have the configuration that was measured: somebody, or another version of dsopt, "
        f"has changed it. To get that: dsopt study best {study} --output FILE"
    ]


def _as_known_to(earlier: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without what earlier versions did not write, where this one lacks it."""
    known = {key: value for key, value in config.items() if key != TRAIN_BATCH or key in earlier}
    zero, before = config.get("zero_optimization", {}), earlier.get("zero_optimization", {})
    return known | {"zero_optimization": {k: value for k, value in zero.items() if k != SAVES_WHOLE or k in before}}


def were_scaled(spec: StudySpec, created_at: float, finished_at: float | None) -> bool:
    """Whether the learning rate in the result files of this study that are there follows the batch."""
    found = find_results_folder(spec)
    note = _read_note(found and _place_in(found, created_at, finished_at))
    return note.get("created_at") == created_at and bool(note.get("is_scaled"))


def config_file(spec: StudySpec, created_at: float, finished_at: float | None) -> Path:
    """Where the best configuration of a study is, or will be once it is finished."""
    found = find_results_folder(spec)
    return Path(OPTIMAL) if found is None else _place_in(found, created_at, finished_at) / OPTIMAL


def others_text(spec: StudySpec, created_at: float) -> list[str]:
    """What of others was in the results folder when this study wrote its files there, and where that is now."""
    folder = find_results_folder(spec)
    note = _read_note(folder)
    if folder is None or note.get("created_at") != created_at:
        return []
    aside, kept = note.get("aside"), note.get("kept")
    there = [folder / name for name in kept if isinstance(name, str)] if isinstance(kept, list) else []
    lines = [f"Somebody, or an interruption, had changed a result file. It is {p} now." for p in there if _is_there(p)]
    try:
        is_there = isinstance(aside, str) and Path(aside).is_dir()
    except (OSError, ValueError):
        return lines
    others = f"The results of another study '{spec.name}' were in this folder. They are in {aside} now."
    return [others, *lines] if is_there else lines


def write_files(spec: StudySpec, about: FilesOf, history: History, summary: Summary) -> list[Path]:
    """Writes `summary.txt` and, if there is a result, `ds_config_optimal.json` and `cmd_optimal.txt`.

    If there is none, it renames those of an earlier result, which would look like this one's. Files of another study of
    this name, as of another database, are moved aside, unless it ended later: then these get a folder of their own.
    What somebody has changed stays, under another name.
    """
    folder, aside = _prepared(spec, about)
    config, command, written = folder / OPTIMAL, folder / _COMMAND, [folder / _SUMMARY]
    kept = _keep_changed(folder, (config, command, *written))
    _write(written[0], summary.text(scaled=about.is_scaled) + "\n")
    if summary.comparison is None:
        for path in (config, command):
            if path.exists():
                path.replace(path.with_name(f"{path.name}.{_EARLIER}"))
    else:
        best = optimum(spec, history, scale_lr=about.is_scaled)
        _write(config, _config_text(best.ds_config))
        _write(command, f"cd {shlex.quote(spec.cwd)} && {shown(best.command.with_config(str(config)))}\n")
        written += [config, command]
    _note(folder, about, written, aside, kept)
    return written


def write_table(spec: StudySpec, about: FilesOf, text: str) -> list[Path]:
    """Writes the table of a comparison to `summary.txt`."""
    folder, aside = _prepared(spec, about)
    path = folder / _SUMMARY
    kept = _keep_changed(folder, [path])
    _write(path, text + "\n")
    _note(folder, about, [path], aside, kept)
    return [path]


def training_config(spec: StudySpec, ds_config: Mapping[str, Any]) -> Path:
    """Writes what a training begins with to a file that is named after its content, and that no other study changes."""
    text = _config_text(ds_config)
    folder = results_folder(spec) / _TRAINING / hashlib.sha256(text.encode()).hexdigest()[:12]
    make_private(folder)
    _write(folder / OPTIMAL, text)
    return folder / OPTIMAL


def write_config(path: Path, ds_config: Mapping[str, Any]) -> None:
    """Writes a DeepSpeed configuration to a file of the user's choice."""
    write_private(path, _config_text(ds_config))


def check_given(spec: StudySpec) -> None:
    """Raises a `DsoptError` if a study's command names a result file that the study would move aside."""
    folder, given = find_results_folder(spec), named_config(spec)
    if folder is None or given is None:
        return
    if os.path.realpath(Path(spec.cwd) / given) == os.path.realpath(folder / OPTIMAL):
        raise DsoptError(
            f"{folder / OPTIMAL}: is the result of an earlier study '{spec.name}', which a new one moves aside. Copy "
            "it to a file of your own, and name that in the command. Or give this study another name (--name)."
        )


def set_aside_earlier(spec: StudySpec) -> Path | None:
    """Moves the result files of an earlier study of the same name out of the way of a new one.

    It moves only files with the names of dsopt's results, in a folder that is marked as this study's, and removes
    nothing.

    Returns:
        The folder they are in now; None if there were none.
    """
    folder = find_results_folder(spec)
    found = [path for name in (OPTIMAL, _COMMAND, _SUMMARY) if folder and (path := folder / name).is_file()]
    if folder is None or not found:
        return None
    aside = _free(folder, _EARLIER)
    make_private(aside, exist_ok=False)
    for path in found:
        path.replace(aside / path.name)
    if (command := aside / _COMMAND).is_file():  # it names the file that is here now
        _write(command, command.read_text("utf-8").replace(str(folder / OPTIMAL), str(aside / OPTIMAL)))
    (folder / _NOTE).unlink(missing_ok=True)  # last: files without a note are those of an earlier version of dsopt
    return aside


def _config_text(ds_config: Mapping[str, Any]) -> str:
    return json.dumps(ds_config, indent=2) + "\n"


def _place_in(folder: Path, created_at: float, finished_at: float | None) -> Path:
    """Where the result files of a study belong: in its results folder, unless those of one are there that ended later.

    It is another study of this name, as of another database, and somebody may train with its files.
    """
    note = _read_note(folder)
    ended = note.get("finished_at")
    is_others = note.get("created_at", created_at) != created_at
    is_later = isinstance(ended, int | float) and finished_at is not None and ended > finished_at
    return folder / f"created-{created_at:.0f}" if is_others and is_later else folder


def _prepared(spec: StudySpec, about: FilesOf) -> tuple[Path, Path | None]:
    """Where to write a study's result files, and where those of an earlier one of this name are, if some were there."""
    base = results_folder(spec)
    folder = _place_in(base, about.created_at, about.finished_at)
    if folder != base:
        make_private(folder)
        return folder, None
    note = _read_note(base)
    if note.get("created_at", about.created_at) != about.created_at:
        return folder, set_aside_earlier(spec)
    aside = note.get("aside")
    return folder, Path(aside) if isinstance(aside, str) else None


def _keep_changed(folder: Path, files: Sequence[Path]) -> list[str]:
    """Gives what somebody has changed since it was written another name, and returns it."""
    digests = _read_note(folder).get("digests")
    known = digests if isinstance(digests, dict) else {}
    there = [path for path in files if path.name in known and _is_there(path)]
    changed = [path for path in there if known[path.name] != _digest(path)]
    return [path.replace(_free(folder, _CHANGED.format(path.name))).name for path in changed]


def _free(folder: Path, name: str) -> Path:
    """A place of this name, or with a number."""
    place, number = folder / name, 1
    while place.exists():
        number += 1
        place = folder / f"{name}.{number}"
    return place


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _note(folder: Path, about: FilesOf, files: Sequence[Path], aside: Path | None, kept: Sequence[str] = ()) -> None:
    digests = {path.name: _digest(path) for path in files}
    content = asdict(about) | {"files": [*digests], "digests": digests, "aside": aside and str(aside), "kept": kept}
    _write(folder / _NOTE, json.dumps(content) + "\n")


def _read_note(folder: Path | None) -> dict[str, Any]:
    """What the note says; nothing if there is none, or none of dsopt's."""
    try:
        note = json.loads((folder / _NOTE).read_text("utf-8")) if folder is not None else {}
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def _write(path: Path, text: str) -> None:
    """Writes to a name of its own, then renames, so that no reader sees half a file."""
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    write_private(temporary, text)
    temporary.replace(path)
