"""Digests of the script's files, as a database has them."""

import json

import pytest

from dsopt.study.own_sources import sources_in


@pytest.mark.parametrize(
    "written",
    [
        "",
        "[1]",
        "{",
        json.dumps({"a.py": 1}),
        json.dumps({"\0x.py": "ab"}),
        json.dumps({"\ud800.py": "ab"}),
        "[" * 9999,
    ],
)
def test_what_others_wrote_there_is_none(written: str) -> None:
    """A name that no file can have ended each worker and each creation with a traceback."""
    assert sources_in(written) == {}
    assert sources_in(json.dumps({"dir/ä.py": "ab"})) == {"dir/ä.py": "ab"}
