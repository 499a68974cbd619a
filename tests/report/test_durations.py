"""How long a study took: idle days between its workers do not count."""

import pytest

from dsopt.report.durations import covered_seconds, duration_text
from dsopt.report.summarize import summarize
from tests.made_up import history, spec

DAY = 86400.0


@pytest.mark.parametrize(
    ("intervals", "seconds"),
    [
        ([], 0.0),
        ([(0.0, 5.0)], 5.0),
        ([(0.0, 5.0), (3.0, 8.0)], 8.0),  # side by side
        ([(0.0, 9.0), (3.0, 4.0)], 9.0),
        ([(3 * DAY, 3 * DAY + 5), (0.0, 5.0)], 10.0),
    ],
)
def test_time_that_was_worked(intervals: list[tuple[float, float]], seconds: float) -> None:
    assert covered_seconds(intervals) == seconds


def test_the_wall_clock_is_said_where_it_differs() -> None:
    assert duration_text(79.42898, 85.0) == "0:01:19.428980"
    assert duration_text(600.0, 640.0) == "0:10:00"
    told = duration_text(600.0, 2 * DAY)
    assert told == "0:10:00 of runs (2 days, 0:00:00 from the study's creation to its end)"


def test_the_summary_says_the_time_that_was_worked() -> None:
    summary = summarize(
        spec(), history(), [], state="finished", note=None, duration_seconds=2 * DAY, worked_seconds=600.0
    )
    assert "Tuning completed in 0:10:00 of runs (2 days, 0:00:00 " in summary.text()
