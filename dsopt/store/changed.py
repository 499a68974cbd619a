"""The error for a study that is created again with other settings."""

import difflib
import itertools
import json
from collections.abc import Collection, Sequence

from dsopt.errors import DsoptError
from dsopt.study.command_secrets import shown_spec
from dsopt.study.spec import StudySpec


def changed_study_error(existing: StudySpec, new: StudySpec, names: Collection[str]) -> DsoptError:
    """Says what differs between two specs of one name, and how the new one reuses what would run the same.

    Args:
        names: of all existing studies.
    """
    name = existing.name
    others = f"That is the study of another folder: {existing.cwd}. Its results are not to be overwritten from here."
    free = next(other for number in itertools.count(2) if (other := f"{name}-{number}") not in names)
    return DsoptError(
        f"study '{name}' exists with a different spec:\n{_difference(existing, new)}\n"
        + (
            f"Create the new one under another name:\n  --name {free}\n"
            if new.compare or existing.cwd != new.cwd  # nothing would run the same
            else f"Create the new one under another name; --take-over reuses what would run the same:\n"
            f"  --name {free} --take-over {name}\n"
        )
        + (f"Or delete the old one first: dsopt study delete {name}" if existing.cwd == new.cwd else others)
    )


def _difference(old: StudySpec, new: StudySpec) -> str:
    """What differs between two specs, line by line."""

    def lines(spec: StudySpec) -> Sequence[str]:
        return json.dumps(shown_spec(spec.to_json()), indent=2, sort_keys=True).splitlines()

    changed = difflib.unified_diff(lines(old), lines(new), "existing", "new", lineterm="", n=1)
    return "\n".join(changed) or "(they differ only in what looks like a secret)"
