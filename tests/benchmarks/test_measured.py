"""The models against GPU runs that others published: what `python -m benchmarks.measured` prints stays true."""

import csv
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.measured.__main__ import main
from benchmarks.measured.judge import Guess, fits, memory_guesses, time_guesses
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


@pytest.mark.parametrize(("after", "most"), [(1, 2), (2, 1), (3, 1)])
def test_hardly_any_run_that_ran_is_called_hopeless(after: int, most: int) -> None:
    """docs/benchmarks.md says which. The goal is none."""
    assert sum(fit.is_hopeless for fit in fits(GROUPS, after) if fit.run.outcome == "ok") <= most


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


def write_runs(folder: Path, count: int) -> None:
    """Made-up runs of one GPU, in the same schema: memory and step time are lines in the micro-batch."""
    with (DATA / "fms-acceleration.csv").open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        names, known = reader.fieldnames, next(reader)
    assert names is not None
    with (folder / "ours.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        for size in range(1, count + 1):
            seconds, peak = 0.1 + 0.05 * size, (10 + 3 * size) * 2**30
            run = {"params": 10**9, "trainable_params": 10**9, "micro_batch": size, "samples_per_step": size}
            writer.writerow(
                {**known, **run, "group": "ours/1gpu", "step_seconds": seconds, "peak_bytes": peak, "other": ""}
            )


def test_another_folder_of_the_same_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_runs(tmp_path, 8)
    monkeypatch.setattr(sys, "argv", ["measured", str(tmp_path)])
    main()
    printed = capsys.readouterr().out
    assert printed.startswith("8 runs of 1 groups\n")
    tables = {line[:26].strip(): line[26:].split() for line in printed.splitlines()}
    for figure, runs in (("peak memory after", 8), ("step time after", 8)):
        for after in (1, 2, 3):
            groups, others, mean, *_ = next(
                values for title, values in tables.items() if title.startswith(f"{figure} {after}")
            )
            assert (int(groups), int(others)) == (1, runs - after)
            assert after == 1 or float(mean) < 12, printed  # a line is nearly known after two of its points
    assert tables["after 2"][:3] == ["0", "of", "6"]  # none that ran is called hopeless
    assert "fms-acceleration" not in printed


@pytest.mark.parametrize("name", ["empty", "missing"])
def test_a_folder_without_runs_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setattr(sys, "argv", ["measured", str(tmp_path / name)])
    with pytest.raises(SystemExit, match=f"{tmp_path / name}: there are no runs"):
        main()
