"""What a person sees in a real terminal, narrow or wide: nothing is cut, boxes close, and colour is there if wanted."""

import json
import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.api.dry import dry_run
from tests.conftest import Dsopt
from tests.terminal import Shown, run_in_terminal

WIDTHS = [60, 80, 140]


def study_in(dsopt: Dsopt, **keys: object) -> list[str]:
    """Writes a dry run, and gives the words that create it."""
    (dsopt.cwd / "dry.yaml").write_text(json.dumps(dry_run(dsopt.cwd, **keys)))
    return ["study", "create", "dry.yaml"]


def shown(dsopt: Dsopt, *words: str, width: int, **variables: str) -> Shown:
    found = run_in_terminal([*words], dsopt.cwd, {**dsopt.environment, **variables}, width=width)
    assert found.code == 0, found.text
    return found


def long_words_apart(text: str) -> set[str]:
    """The words of a text, but for what is longer than a narrow terminal."""
    return {word for word in text.split() if len(word) < min(WIDTHS)}


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut(dsopt: Dsopt, width: int) -> None:
    created = shown(dsopt, *study_in(dsopt), width=width)
    assert created.too_wide(width) == []
    assert "That is your own configuration and 1 other" in " ".join(created.text.split())
    worked = shown(dsopt, "worker", "dry", "--devices", "cpu:1", width=width)
    assert worked.too_wide(width) == []
    assert worked.has_colour
    told = " ".join(worked.text.split())
    assert "Probably at most " in told and "on the cluster, where the first would take " in told
    box = [line.rstrip() for line in worked.lines if line.startswith(("╭", "│", "╰"))]
    assert len(box) > 5
    assert {cell_len(line) for line in box} == {width}
    assert {line[-1] for line in box} == {"╮", "│", "╯"}
    one, wide = (shown(dsopt, "study", "show", "dry", "--why", width=columns) for columns in (width, 400))
    assert one.too_wide(width) == []
    for words in (("study", "best", "dry"), ("diff", "dry"), ("workers",)):
        wide_lines = shown(dsopt, *words, width=width).too_wide(width)
        assert not [line for line in wide_lines if " " in line and not line.startswith(("|", "Command: "))]
    left_out = re.search(r"A wider terminal shows .*, too\.", one.text)
    words = one.text.replace(left_out[0], "") if left_out else one.text
    assert long_words_apart(words) <= long_words_apart(wide.text)  # no word was cut in two


@pytest.mark.slow
def test_who_wants_no_colour_gets_none(dsopt: Dsopt) -> None:
    shown(dsopt, *study_in(dsopt), width=80)
    worked = shown(dsopt, "worker", "dry", "--devices", "cpu:1", width=80, NO_COLOR="1")
    assert not worked.has_colour
    assert not shown(dsopt, "study", "show", "dry", width=80, NO_COLOR="1").has_colour
    assert shown(dsopt, "study", "show", "dry", width=80).has_colour


def test_an_error_is_broken_between_words(tmp_path: Path, dsopt: Dsopt) -> None:
    found = run_in_terminal(["study", "create", str(tmp_path / "none.yaml")], tmp_path, dsopt.environment, width=60)
    assert found.code == 1
    assert all(len(line.rstrip()) <= 60 or " " not in line.strip() for line in found.lines)
