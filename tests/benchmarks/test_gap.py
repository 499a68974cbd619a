"""The benchmark of the gap between two runs, which reads it off dsopt's own workings, runs."""

import pytest

from benchmarks import gap


def test_a_study_has_gaps(capsys: pytest.CaptureFixture[str]) -> None:
    gap.main()
    assert "gaps, SQLite, model_based: p50" in capsys.readouterr().out
