"""The study to check, with what reading it says of its command and of its DeepSpeed configuration."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from dsopt.doctor.check import Check, ok, problem, skipped, warning
from dsopt.doctor.settings import idle_settings
from dsopt.errors import DsoptError
from dsopt.study.check_config import check_config
from dsopt.study.command_secrets import shown
from dsopt.study.ds_schema import schema_if_readable
from dsopt.study.mistakes import Mistake, MistakesError
from dsopt.study.spec import StudySpec

COMMAND, CONFIGURATION = "command", "configuration"
ReadStudy: TypeAlias = Callable[[], tuple[StudySpec, list[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What came of reading a study.

    Attributes:
        spec: the study; None if none is given, or it has mistakes.
        warnings: those from reading it.
        mistakes: why it is none.
    """

    spec: StudySpec | None = None
    warnings: tuple[str, ...] = ()
    mistakes: tuple[Mistake, ...] = ()

    @property
    def why_none(self) -> str:
        """Why there is no study."""
        return "the study has mistakes" if self.mistakes else "no study or command is given"


def read_study(read: ReadStudy | None) -> Reading:
    """Reads a study, and keeps what is wrong with it."""
    if read is None:
        return Reading()
    try:
        spec, warnings = read()
    except MistakesError as error:
        return Reading(mistakes=error.mistakes)
    except DsoptError as error:
        return Reading(mistakes=(Mistake(message=str(error)),))
    return Reading(spec=spec, warnings=tuple(warnings))


def check_command(reading: Reading) -> Iterator[Check]:
    """The command, and all of the study that is not DeepSpeed's configuration."""
    wrong = [mistake for mistake in reading.mistakes if not _is_about_config(mistake)]
    yield from (problem(COMMAND, mistake.message) for mistake in wrong)
    told = _config_warnings(reading.spec)
    warned = [text for text in reading.warnings if not text.endswith(told)]
    yield from (warning(COMMAND, text) for text in warned)
    if reading.spec is not None and not warned:
        yield ok(COMMAND, shown(reading.spec.launch))
    if reading.spec is None and reading.mistakes and not wrong:
        yield ok(COMMAND, "no mistake outside DeepSpeed's configuration")
    elif reading.spec is None and not wrong:
        yield skipped(COMMAND, f"{reading.why_none}: dsopt doctor FILE, or dsopt doctor -- deepspeed …")


def check_configuration(reading: Reading) -> Iterator[Check]:
    """DeepSpeed's configuration against the installed DeepSpeed."""
    wrong = [mistake for mistake in reading.mistakes if _is_about_config(mistake)]
    yield from (problem(CONFIGURATION, mistake.message) for mistake in wrong)
    if reading.spec is None:
        if not wrong:
            yield skipped(CONFIGURATION, reading.why_none)
        return
    told = _config_warnings(reading.spec)
    found = [warning(CONFIGURATION, text) for text in reading.warnings if text.endswith(told)]
    found += idle_settings(reading.spec)
    yield from found
    if not found:
        schema, unread = schema_if_readable("DeepSpeed")
        yield from (warning(CONFIGURATION, text) for text in unread)
        if schema is not None:
            yield ok(CONFIGURATION, f"DeepSpeed {schema.version} reads every key of it")


def _is_about_config(mistake: Mistake) -> bool:
    return any(key.startswith("ds_config") for key in mistake.about)


def _config_warnings(spec: StudySpec | None) -> tuple[str, ...]:
    """How the warnings end that are about keys of DeepSpeed's configuration."""
    schema, _ = schema_if_readable("")
    return tuple(check_config(spec.ds_config, "", schema)) if spec is not None and schema is not None else ()
