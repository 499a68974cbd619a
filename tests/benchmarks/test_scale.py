"""What a trial may cost the database."""

from pathlib import Path

import pytest

from benchmarks.scale import count_statements
from dsopt.worker import asking


def test_a_trial_needs_few_statements_and_commits(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The looks after workers that have died are left out: how many there are in a trial is a matter of time."""
    monkeypatch.setattr(asking, "_LOOK_SECONDS", 1e9)
    statements, commits = count_statements(tmp_path, postgres_url)
    assert 0 < statements <= 25
    assert 0 < commits <= 6
