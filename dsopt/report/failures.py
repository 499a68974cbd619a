"""What a result says about failed runs, and about runs that wrote where they should not."""

from collections.abc import Sequence
from pathlib import Path

from dsopt.report.numbers import number
from dsopt.search.baseline_twin import baseline_test
from dsopt.search.history import History
from dsopt.search.unconfirmed import Unconfirmed
from dsopt.study.spec import StudySpec


def not_confirmed_text(found: Unconfirmed, unit: str, study: str) -> str:
    """What the search found, that this is not a result, what failed, and what to do."""
    baseline = "does not run" if found.baseline is None else f"had {number(found.baseline)}"
    runs = [f"{name} (round {round_}): {message}" for name, round_, message in found.failures]
    return "\n".join(
        [
            f"Not confirmed. In the search {found.best} had {number(found.value)} {unit}, and your own "
            f"configuration {baseline}; when dsopt ran again what had run, this failed:",
            *(f"  {run}" for run in runs),
            "So dsopt calls no configuration the best and writes none. See the logs, fix what made these runs "
            f"fail, and measure them again: dsopt study resume {study}, then dsopt worker {study}",
        ]
    )


def alone_text(crashed: Sequence[tuple[str, str]], *, only: str | None, is_refused: bool) -> str:
    """That only the user's own configuration was measured, and why.

    Args:
        crashed: names and messages of the runs that failed.
        only: how to try more, if the study has no other candidate; None if it has.
        is_refused: whether the script has sizes of its own, so that others could not be tried.
    """
    if only is not None:
        alone = "Your own configuration is the only candidate of this study, so nothing was compared with it."
        return f"{alone} {only}".rstrip()
    alone = "Only your own configuration was measured"
    if is_refused:
        return f"No answer yet: {alone[0].lower()}{alone[1:]}, because other sizes could not be tried."
    if not crashed:
        return f"{alone}: nothing else is likely to fit, or worth a run."
    name, message = crashed[0]
    runs = "1 run" if len(crashed) == 1 else f"{len(crashed)} runs"
    return f"{alone}, so dsopt cannot judge the others: {runs} failed. The first, {name}: {message}"


def has_alternatives(spec: StudySpec, history: History) -> bool:
    """Whether anything but the user's own configuration was measured."""
    is_own, known = baseline_test(spec, history), map(history.measured_here, history.observations)
    return any(o.has_figure and o.imported is None and not is_own(o.candidate) for o in known)


def left_out_lines(failed: Sequence[tuple[str, int, str]]) -> list[str]:
    """The finalists that a result does not cover, each with the round in which it failed, and why."""
    return [
        f"Left out: {name} failed when dsopt measured it again (round {round_}): {message}"
        for name, round_, message in failed
    ]


def put_back_text(names: Sequence[str], folder: Path) -> str:
    """Which of the user's files a script writes to, and where what stood in their place is, by its name."""
    several = ", ".join(names[:3]) + " …" * (len(names) > 3)
    return (
        f"The script writes to files that were there before: {several}. After each run they are as they were. "
        f"What stood there when it ended, also if another program wrote it, is in {folder}"
    )


def outside_text(paths: Sequence[str]) -> str:
    """What to do about checkpoints that appeared in the working folder."""
    return (
        f"While experiments ran, these appeared, changed or disappeared in the working folder: {', '.join(paths)}. "
        "They look like checkpoints. If the training script did this, name its flag for that place in 'isolate' "
        "(on the command line: --isolate)."
    )
