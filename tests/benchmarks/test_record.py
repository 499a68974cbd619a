"""The grids that can be recorded: their study files are read and hold what they say."""

from pathlib import Path

import pytest

from benchmarks.record import candidates_of
from benchmarks.search.cases import GRIDS
from dsopt.study.load import load_spec


@pytest.mark.parametrize(
    ("name", "count", "stages", "keys"),
    [
        ("tiny-gpt-cpu", 64, {0, 1, 2, 3}, set()),
        ("gpt-400m-gpu", 24, {0, 2, 3}, {"--gradient_checkpointing"}),
    ],
)
def test_a_grid_is_every_combination_of_a_studys_lists(name: str, count: int, stages: set[int], keys: set[str]):
    spec, warnings = load_spec(GRIDS / name / "study.yaml")
    candidates = list(candidates_of(spec))
    assert not warnings
    assert len(candidates) == len(set(candidates)) == count
    assert {candidate.stage for candidate in candidates} == stages
    assert {key for candidate in candidates for key, _ in candidate.knobs} == keys


def test_a_grid_needs_its_sizes():
    spec, _ = load_spec(Path(__file__).parents[2] / "studies" / "tiny-gpt" / "study.yaml")
    with pytest.raises(ValueError, match="needs a list of sizes"):
        list(candidates_of(spec))
