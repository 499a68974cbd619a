"""What the installed DeepSpeed reads in its configuration: asks a separate process, and caches the answer on disk."""

import functools
import hashlib
import importlib.metadata
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter, ValidationError

from dsopt.errors import DsoptError
from dsopt.study.cache_folder import cache_folder
from dsopt.study.own_programs import own_environment, own_program

_TIMEOUT_SECONDS: Final = 300.0
_PROBE: Final = "dsopt.probe.schema"


class SchemaError(DsoptError):
    """dsopt cannot ask the installed DeepSpeed what it reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of a section.

    Attributes:
        kind: what its value is; a number that DeepSpeed does not check itself is a `float`.
        choices: the texts that DeepSpeed accepts, if it accepts only some.
        any_case: whether it ignores their case.
        can_be_null: whether it accepts null.
        is_exact: whether DeepSpeed uses the value as it is. Its models also accept "true" for true and "5" for 5.
        ge, gt, le, lt: bounds of a number.
        section: the keys in it, if the key is a section.
        refused: DeepSpeed's message, if it refuses the key whatever its value.
    """

    kind: Literal["bool", "int", "float", "str", "list", "object", "any", "section"]
    choices: tuple[str, ...] = ()
    any_case: bool = False
    can_be_null: bool = False
    is_exact: bool = False
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    section: "Section | None" = None
    refused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section of the configuration.

    Attributes:
        unknown: what happens to a key that is not in `keys`.
        keys: what DeepSpeed reads.
        replaced: old names, each with the new one that must not be used together with it.
        words: names that DeepSpeed's module for this section declares, if keys are passed on.
    """

    unknown: Literal["refused", "ignored", "passed on"]
    keys: Mapping[str, Key]
    replaced: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()

    def paths(self, *, with_sections: bool = False) -> Iterator[str]:
        """The paths of all single keys in it that DeepSpeed accepts, or of sections, too."""
        for name, key in self.keys.items():
            if key.refused is None and (with_sections or key.section is None):
                yield name
            if key.section is not None:
                yield from (f"{name}.{path}" for path in key.section.paths(with_sections=with_sections))


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The configuration of one version of DeepSpeed.

    Attributes:
        version: DeepSpeed's.
        root: the configuration as a whole.
        optimizers: the parameters of each optimizer; DeepSpeed's own names in lower case, None if unknown.
        schedulers: the parameters of each scheduler.
        exclusive: pairs of sections that must not be enabled together.
    """

    version: str
    root: Section
    optimizers: Mapping[str, Section | None]
    schedulers: Mapping[str, Section]
    exclusive: tuple[tuple[str, str], ...]

    def section(self, *path: str) -> Section | None:
        """The section at a path, or None if there is none."""
        found: Section | None = self.root
        for name in path:
            key = found.keys.get(name) if found is not None else None
            found = key.section if key is not None else None
        return found


_ADAPTER: Final = TypeAdapter(Schema)


def installed_schema() -> Schema:
    """The schema of the DeepSpeed that this Python imports.

    dsopt caches it in the user's cache folder, so that it imports DeepSpeed (some seconds) once for each version.

    Raises:
        SchemaError: DeepSpeed is not installed, or cannot be imported.
    """
    try:
        found = importlib.util.find_spec("deepspeed")
        version = importlib.metadata.version("deepspeed")
    except (ImportError, ValueError):
        found = None
    if found is None or found.origin is None:
        raise SchemaError("DeepSpeed is not installed here")
    package = Path(found.origin).parent
    probe = Path(__file__).parents[1] / "probe"
    sources = [
        package / "runtime" / "config.py",
        package / "runtime" / "zero" / "config.py",
        *sorted(probe.glob("*.py")),
    ]
    stamps = [f"{path}:{path.stat().st_mtime_ns}" for path in sources if path.exists()]
    identity = "\n".join([version, importlib.metadata.version("torch"), sys.version, *stamps])
    return _kept(cache_folder() / f"deepspeed-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json")


def schema_if_readable(where: str) -> tuple[Schema | None, list[str]]:
    """The schema, or None and a warning: a study also works without the check."""
    try:
        return installed_schema(), []
    except SchemaError as error:
        return None, [f"{where}: cannot check DeepSpeed's configuration for misspelled keys and values: {error}"]


@functools.cache
def _kept(path: Path) -> Schema:
    try:
        return _ADAPTER.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        text = _asked()
    try:
        schema = _ADAPTER.validate_json(text)
    except ValidationError as error:
        raise SchemaError(f"dsopt does not understand what it reads: {error.errors()[0]['msg']}") from None
    _write(path, text)
    return schema


def _asked() -> str:
    """What the probe prints."""
    try:
        done = subprocess.run(
            own_program(_PROBE),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
            start_new_session=True,
            env={**own_environment(), "DS_ACCELERATOR": "cpu"},  # no device is touched
        )
    except subprocess.TimeoutExpired:
        raise SchemaError(f"importing it took more than {_TIMEOUT_SECONDS:g} seconds") from None
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise SchemaError(f"importing it ended with exit code {done.returncode}: {last}")
    return lines[-1]


def _write(path: Path, text: str) -> None:
    """Writes the text, whole or not at all; if it cannot, dsopt asks DeepSpeed again next time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            file.write(text)
        Path(file.name).replace(path)
    except OSError:
        return
