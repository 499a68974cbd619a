"""Whether the script has the flags that it gets, where its own source says which it has."""

from collections.abc import Iterator
from typing import Final

from dsopt.doctor.check import Check, ok, problem, skipped
from dsopt.study.spec import StudySpec
from dsopt.study.wrong_flags import wrong_flags

NAME: Final = "arguments"


def check_arguments(spec: StudySpec) -> Iterator[Check]:
    """The flags that the command, the study and the launcher give the script."""
    if spec.is_simulated:
        yield skipped(NAME, "a dry run starts no training")
        return
    wrong, script = wrong_flags(spec), spec.launch.script
    if wrong is None:
        yield skipped(NAME, f"the source of {script} alone does not say which flags it has")
        return
    yield from (problem(NAME, message, fix) for message, fix in wrong)
    if not wrong:
        yield ok(NAME, f"{script} has every flag that it is given")
