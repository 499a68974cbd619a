"""The files that a study's script is made of, which may change after runs have shown something of it."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from dsopt.protocol.source_file import contents_digest, name_of
from dsopt.protocol.text import plain_text
from dsopt.study.spec import StudySpec

Sources = Mapping[str, str]


def script_file(spec: StudySpec) -> Path | None:
    """The file that its launcher runs; None for a dry run, or where there is none in the working folder."""
    if spec.is_simulated:
        return None
    name = Path(spec.launch.script)
    if spec.launch.is_module:
        name = Path(*spec.launch.script.split("."))
        names = [name.with_suffix(".py"), name / "__main__.py"]
    else:
        names = [name]
    return next((file for one in names if os.path.isfile(file := Path(spec.cwd) / one)), None)  # noqa: PTH113 - closed


def script_source(spec: StudySpec) -> Sources:
    """The digest of that file, by its name; empty where there is none that can be read."""
    file = script_file(spec)
    name = "" if file is None else name_of(file, Path(spec.cwd))
    return {name: digest} if file is not None and (digest := contents_digest(file)) else {}


def sources_now(spec: StudySpec, names: Iterable[str]) -> Sources:
    """The digests of files of these names as they are now; empty of one that is gone."""
    return {name: contents_digest(Path(spec.cwd) / name) for name in names}


def changed_files(one: Sources, other: Sources) -> list[str]:
    """The files that both have, with other contents."""
    return sorted(name for name in one.keys() & other.keys() if one[name] != other[name])


def sources_in(text: str) -> Sources:
    """Sources as a trial has them, or none if somebody has written something else into the database."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    is_own = isinstance(value, dict) and all(isinstance(digest, str) for digest in value.values())
    return value if is_own and all(name == plain_text(name) for name in value) else {}
