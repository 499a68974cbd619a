"""Whole comparisons with the launcher that speaks the run protocol, on both databases."""

import json
import time

import pytest

from tests.conftest import SCRIPTS, Dsopt
from tests.deepspeed_results import write_experiment
from tests.studies import (
    check_nothing_lost_nothing_doubled,
    wait_until_nothing_runs,
    write_study,
)

COMMAND = [str(SCRIPTS / "deepspeed"), "--num_gpus", "2", "train.py", "--deepspeed_config", "ds.json", "--bs", "4"]
SHORT = {"start_profile_step": 3, "end_profile_step": 20, "arg_mappings": {"train_micro_batch_size_per_gpu": "--bs"}}


pytestmark = pytest.mark.slow


def config(micro_batch: int, stage: int) -> dict:
    return {"train_micro_batch_size_per_gpu": micro_batch, "zero_optimization": {"stage": stage}}


def throughput(micro_batch: int, factor: float) -> float:
    """What the launcher pretends, on two ranks."""
    return 2 * micro_batch / ((0.010 + 0.001 * micro_batch) * factor)


@pytest.fixture
def command(dsopt: Dsopt) -> Dsopt:
    """The command in a folder with a script, its configuration and one that was tuned by hand."""
    (dsopt.cwd / "train.py").write_text("raise SystemExit('the simulated launcher runs no script')\n")
    (dsopt.cwd / "ds.json").write_text(json.dumps({**config(4, 0), "autotuning": SHORT}))
    (dsopt.cwd / "hand.json").write_text(json.dumps(config(8, 2)))
    (dsopt.cwd / "too-large.json").write_text(json.dumps(config(100, 0)))
    return dsopt


def rows_of(dsopt: Dsopt, name: str) -> dict[str, dict]:
    return {row["name"]: row for row in dsopt.json("study", "show", name)["rows"]}


def test_a_finished_study_is_compared_with_what_people_would_do(dsopt: Dsopt) -> None:
    """The three columns of DeepSpeed's tutorial and its autotuner's choice, by one line; a second one shows them."""
    arg_mappings = {"train_micro_batch_size_per_gpu": "--bs"}
    write_study(
        dsopt.cwd,
        command=" ".join(COMMAND),
        autotuning={"max_train_batch_size": 32, "num_tuning_micro_batch_sizes": 1, "arg_mappings": arg_mappings},
    )
    (dsopt.cwd / "hand.json").write_text(json.dumps(config(8, 2)))
    dsopt("study", "create", "study.yaml")
    assert "has no result yet" in dsopt("compare", "simulated", code=1)
    dsopt("worker", "simulated", "--devices", "cpu:2")
    line = ["compare", "simulated", "--with", "hand-tuned=hand.json", "--devices", "cpu:2"]
    output = dsopt(*line)
    assert "| configuration | DeepSpeed | samples/s | 95 % interval | times yours |" in output
    assert "Based on 8 launches, alternating all configurations that run in each of 2 rounds." in output
    rows = rows_of(dsopt, "simulated-compare")
    assert list(rows) == ["vanilla", "yours", "hand-tuned", "dsopt"]
    expected = {"vanilla": (4, 1.2), "yours": (4, 1.0), "hand-tuned": (8, 0.95), "dsopt": (16, 0.9)}
    for name, (micro_batch, factor) in expected.items():
        row = rows[name]
        assert (row["micro_batch"], row["runs"], row["ranks"]) == (micro_batch, 2, 2)
        assert row["value"] == pytest.approx(throughput(micro_batch, factor), rel=0.01)
        assert row["interval"][0] < row["value"] < row["interval"][1]
        own = throughput(4, 1.0)
        assert row["factor"]["factor"] == pytest.approx(throughput(micro_batch, factor) / own, rel=0.01)
    assert rows["vanilla"]["zero_stage"] is None
    check_nothing_lost_nothing_doubled(dsopt, "simulated-compare")

    table = output[output.index("| configuration") :].strip()
    assert table in dsopt(*line)  # nothing is measured again
    folder = dsopt.cwd / "autotuning_results" / "simulated-compare"
    assert (folder / "summary.txt").read_text().strip() == table
    typed = (folder / "vanilla" / "cmd.txt").read_text()
    assert "--deepspeed" not in typed
    assert "--bs 4" in typed
    assert "--bs 8" in (folder / "hand-tuned" / "cmd.txt").read_text()
    assert "is a comparison" in dsopt("study", "best", "simulated-compare", code=1)
    assert "is already a comparison" in dsopt("compare", "simulated-compare", code=1)
    changed = dsopt(*line[:2], "--devices", "cpu:2", code=1)
    assert "exists with a different spec" in changed
    assert "--take-over" not in changed  # `dsopt compare` has no such option


def test_what_does_not_run_is_a_row_with_its_reason(command: Dsopt) -> None:
    """A script that calls DeepSpeed anyway, and a configuration that does not fit; the rest goes on."""
    (command.cwd / "calls_deepspeed.py").write_text("")
    vanilla = f"vanilla={COMMAND[0]} --num_gpus 2 calls_deepspeed.py --bs 4"
    output = command(
        "compare", "--rounds", "1", "--devices", "cpu:2", "--with", vanilla, "--with", "large=too-large.json",
        "--with", "hand-tuned=hand.json", "--", *COMMAND,
    )  # fmt: skip
    assert "vanilla: does not run without DeepSpeed: the script still calls deepspeed.initialize." in output
    assert "large: out of memory: rank 0: tried to allocate" in output
    rows = rows_of(command, "train-compare")
    assert [name for name, row in rows.items() if row["value"] is None] == ["vanilla", "large"]
    assert rows["hand-tuned"]["factor"]["factor"] == pytest.approx(throughput(8, 0.95) / throughput(4, 1.0), rel=0.01)


def test_a_script_that_keeps_its_batches_gives_no_figure(command: Dsopt) -> None:
    """The hand-tuned configuration says 8, and the script goes on with the 4 of the user's own."""
    command.environment["SIMULATED_ROWS"] = "4"
    options = ["--rounds", "1", "--devices", "cpu:2", "--with", "hand-tuned=hand.json"]
    output = command("compare", *options, "--", *COMMAND)
    assert "hand-tuned: does not run: the script fed batches of 4, as in your own run, although its config" in output
    values = {name: row["value"] is None for name, row in rows_of(command, "train-compare").items()}
    assert values == {"vanilla": False, "yours": False, "hand-tuned": True}


def test_a_comparison_of_nothing_that_runs_ends_with_an_error(command: Dsopt) -> None:
    command.environment["SIMULATED_FAILURES"] = "*"
    output = command("compare", "--rounds", "1", "--devices", "cpu:2", "--", *COMMAND, code=1)
    told = "error: comparison 'train-compare': no configuration could be measured. Why: dsopt study show train-compare"
    assert told in output


def test_json_is_all_that_is_printed(command: Dsopt) -> None:
    command.environment["PYTHONUNBUFFERED"] = "1"
    process = command.start("compare", "--rounds", "1", "--devices", "cpu:2", "--json", "--", *COMMAND)
    output, _ = process.communicate(timeout=120)  # both streams
    table = json.loads(output[output.index("\n{\n") :])
    assert [row["name"] for row in table["rows"]] == ["vanilla", "yours"]
    assert table["state"] == "finished"


def test_an_autotuners_choice_comes_by_import_or_as_a_folder(dsopt: Dsopt) -> None:
    for size in (4, 8):
        write_experiment(dsopt.cwd / "theirs", 0, size, 100.0 * size)
    write_study(dsopt.cwd, autotuning={"max_train_batch_size": 32, "num_tuning_micro_batch_sizes": 1})
    dsopt("study", "create", "study.yaml")
    dsopt("import", "theirs", "simulated")
    dsopt("worker", "simulated", "--devices", "cpu:2")
    options = ["--rounds", "1", "--devices", "cpu:2"]
    dsopt("compare", "simulated", *options)
    imported = rows_of(dsopt, "simulated-compare")
    assert list(imported) == ["vanilla", "yours", "autotuner", "dsopt"]
    dsopt("compare", "simulated", *options, "--name", "again", "--with", "autotuner=theirs")
    given = rows_of(dsopt, "again")
    assert list(given) == list(imported)
    sizes = ("micro_batch", "gas", "zero_stage")
    assert [imported["autotuner"][key] for key in sizes] == [given["autotuner"][key] for key in sizes]


def test_a_killed_comparison_goes_on_where_it_was(command: Dsopt) -> None:
    """Killed in the midst of its first runs; the same line goes on, and nothing is measured twice."""
    line = ["compare", "--rounds", "2", "--devices", "cpu:2", "--with", "hand-tuned=hand.json", "--", *COMMAND]
    command.environment["SIMULATED_SECONDS"] = "1"
    process = command.start(*line)
    wait_for(lambda: (command.cwd / "autotuning_results" / "vanilla" / "cmd.txt").exists())
    process.kill()
    process.communicate()
    wait_until_nothing_runs(command.cwd)
    command.environment["SIMULATED_SECONDS"] = "0"
    assert "Continuing comparison 'train-compare'." in command(*line)
    check_nothing_lost_nothing_doubled(command, "train-compare")
    runs = command.json("study", "show", "train-compare")["runs"]
    assert [run["state"] for run in runs if run["candidate"] == "vanilla"] == ["failed", "measured", "measured"]
    assert {row["runs"] for row in rows_of(command, "train-compare").values()} == {2}


def wait_for(happened) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)
