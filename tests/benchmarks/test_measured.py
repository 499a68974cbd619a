"""The models against GPU runs that others published: what `python -m benchmarks.measured` prints stays true."""

from collections import Counter

import pytest

from benchmarks.measured.judge import Guess, memory_guesses, time_guesses
from benchmarks.measured.runs import DATA, read_groups
from benchmarks.measured.study import facts_of

GROUPS = read_groups(DATA)


def mean_error(guesses: list[Guess], figure: str = "predicted") -> float:
    sizes = Counter(guess.group for guess in guesses)
    errors = [abs(getattr(guess, figure) / guess.truth - 1) / sizes[guess.group] for guess in guesses]
    return sum(errors) / len(sizes)


def test_peak_memory_after_two_runs_of_a_group() -> None:
    guesses = list(memory_guesses(GROUPS, 2))
    assert mean_error(guesses) < 0.025
    assert mean_error(guesses) < mean_error(guesses, "line")
    sizes = Counter(guess.group for guess in guesses)
    holds = sum(1 / sizes[guess.group] for guess in guesses if guess.holds) / len(sizes)
    assert 0.93 <= holds <= 0.97


def test_peak_memory_after_one_run_whose_activations_are_known() -> None:
    assert mean_error(list(memory_guesses(GROUPS, 1, knows_activations=True))) < 0.08


def test_step_time_after_two_runs_of_a_group_without_a_pipeline() -> None:
    flat = {name: runs for name, runs in GROUPS.items() if runs[0].pipeline == 1 and "swift" not in name}
    guesses = list(time_guesses(flat, 2))
    assert mean_error(guesses) < 0.12
    assert mean_error(guesses) < mean_error(guesses, "line")


def test_every_run_has_its_group_once() -> None:
    assert sum(map(len, GROUPS.values())) == 1258  # of 1,271; the others say no micro-batch or no model size
    assert all(run.params >= run.trainable > 0 for runs in GROUPS.values() for run in runs)


@pytest.mark.parametrize(
    ("group", "bytes_of_all"),
    [
        ("Meta-Llama-3-8B/full/foak-fast-kernels-liger/bf16-autocast/4gpu", 16),
        ("Meta-Llama-3-8B/full/none/bf16/1gpu", 8),
    ],
)
def test_states_are_those_of_the_source(group: str, bytes_of_all: int) -> None:
    found = [runs for name, runs in GROUPS.items() if name.endswith(group)]
    for runs in found:
        assert sum(facts_of(runs[0]).held) == bytes_of_all
