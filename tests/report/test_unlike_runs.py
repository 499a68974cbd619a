"""A result says what its figures are of, where that is not what a user would think."""

from dataclasses import replace

import pytest

from dsopt.report.doubts import doubts_text
from dsopt.report.unlike_runs import unlike_runs
from dsopt.search.run_quality import RunQuality
from dsopt.study.quantity import gib
from dsopt.study.space import MICRO_BATCH
from dsopt.study.step_noise import StepNoise
from tests.made_up import facts, history, observation
from tests.made_up import spec as made_up_spec
from tests.runs import engine
from tests.search.test_joint import at, spec


def quality(**changes: object) -> RunQuality:
    return RunQuality(**{"name": "z1_mbs8_gas1", "interval_percent": 1.0, "drifting": False, **changes})


def test_the_ends_of_short_epochs_are_told_where_they_cost() -> None:
    assert doubts_text([quality(short_percent=2.0)]) == []
    [warning] = doubts_text([quality(short_percent=25.0)])
    assert quality(short_percent=25.0).is_doubtful
    assert "z1_mbs8_gas1 (25 %)" in warning and "drop_last=True" in warning


def test_figures_of_the_first_engine_of_several_come_with_a_warning() -> None:
    """An actor and a critic: the critic alone gave 6.94 times, both together 4."""
    baseline, run = facts(), observation(at(1, 8), 2.0, facts=facts())
    assert unlike_runs(spec(), history(run, baseline=baseline)) == []
    two = replace(run, facts=replace(facts(), engines=2))
    [warning] = unlike_runs(spec(), history(two, baseline=baseline))
    assert warning.startswith(
        "WARNING: your script trains with 2 engines of DeepSpeed, and all figures are of the first"
    )


def test_nodes_whose_devices_have_less_memory_than_others_are_told() -> None:
    """What did not fit on the smaller one was left out, and the next best told without a word of that."""
    ran = replace(observation(at(1, 8), 2.0, facts=facts()), ran_on=("large",))
    most = facts().device_memory_bytes
    nearly, half = (
        replace(observation(at(1, 16), facts=replace(facts(), device_memory_bytes=size)), ran_on=("small",))
        for size in (int(0.97 * most), most // 2)
    )
    assert unlike_runs(spec(), history(ran, nearly, baseline=facts())) == []
    assert unlike_runs(spec(), history(ran, replace(half, ran_on=("large", "small")), baseline=facts())) == []
    [warning] = unlike_runs(spec(), history(ran, half, baseline=facts()))
    assert warning.startswith(
        f"WARNING: a device of large has {gib(most)} of memory, and one of small {gib(most // 2)}"
    )


def test_figures_of_input_that_was_read_ahead_come_with_a_warning() -> None:
    """A queue of 64 batches, filled while the script began, and runs of 50 steps: told 5.38 times, real 1.00."""
    run = observation(at(1, 8), 2.0)
    short = replace(run, quality=quality(read_ahead=65))
    [warning] = unlike_runs(spec(), history(short, baseline=facts()))
    assert warning.startswith("WARNING: your script reads its input more slowly than it trains.")
    assert "lasts for up to 65 steps" in warning and "max_steps: 100" in warning
    others = [replace(observation(at(1, size), 2.0), quality=quality()) for size in (16, 32, 64)]
    assert unlike_runs(spec(), history(short, *others, baseline=facts())) == []
    also = replace(others[0], quality=quality(read_ahead=40))
    assert unlike_runs(spec(), history(short, also, *others[1:], baseline=facts())) == [warning]


def test_steps_of_several_kinds_come_with_a_warning() -> None:
    """One text in 600 was 50 times as long: told 2.60 times, real 0.70; runs of 12 steps met none of these."""
    noise = StepNoise(deviation=0.5, correlation=0.0, steps=95)
    long, short, usual = (
        replace(observation(at(1, 8), 2.0), quality=quality(interval_percent=percent), noise=noise)
        for percent in (56.4, 8.0, 45.0)
    )
    disturbed = replace(long, noise=replace(noise, steps=7))
    assert unlike_runs(spec(), history(disturbed, short, baseline=facts())) == []
    assert unlike_runs(spec(), history(usual, short, baseline=facts())) == []
    assert unlike_runs(spec(), history(long, usual, baseline=facts())) == []
    [warning] = unlike_runs(spec(), history(long, short, baseline=facts()))
    assert warning.startswith("WARNING: in some runs steps differed much more (±56 %) than in others (±8 %).")


def test_rows_that_are_fewer_than_samples_are_told() -> None:
    own = facts(rows=2, micro_batch=4)
    [told] = unlike_runs(spec(), history(observation(at(1, 8), 2.0), baseline=own))
    assert told.startswith("Your script feeds batches of 2 rows, where its configuration says 4 samples.")
    assert unlike_runs(spec(), history(observation(at(1, 8), 2.0), baseline=facts(rows=1, micro_batch=4))) == []


def test_more_rows_than_samples_are_told_where_the_script_does_not_follow_its_configuration() -> None:
    """It had fed 32 rows where 4 samples were counted, and was told 8 times too slow without a word."""
    own, refused = facts(rows=32, micro_batch=4), observation(at(1, 8), reason="fixed_batch")
    assert unlike_runs(spec(), history(observation(at(1, 4), 2.0), baseline=own)) == []  # as of pairs, or of lengths
    [told] = unlike_runs(spec(), history(refused, baseline=own))
    assert told.startswith("Your script feeds batches of 32 rows, where its configuration says 4 samples.")
    assert "put 32 into the configuration" in told


def test_an_own_run_that_lacked_a_mapped_flag_makes_the_factor_false() -> None:
    """A study of an earlier version, whose own run was as typed; or nobody knew the ranks when it was created."""
    study = made_up_spec({MICRO_BATCH: 4}, arg_mappings={MICRO_BATCH: "--b"})
    run = observation(at(1, 8), 2.0, facts=facts(rows=8, micro_batch=8))
    [told] = unlike_runs(study, history(run, baseline=facts(rows=32, micro_batch=4)))
    assert told.startswith("WARNING: your own run was fed batches of 32 rows, where its configuration says 4 samples")
    assert "may be wrong by a factor of 8." in told
    accumulating = facts(rows=2, micro_batch=4, step_rows=4.0)  # as with the Trainer's flag: all four are fed
    assert not any(
        "compares different things" in line for line in unlike_runs(study, history(run, baseline=accumulating))
    )
    both = [observation(at(1, size), 2.0, facts=facts(rows=8, micro_batch=size)) for size in (8, 16)]
    by_chance = history(*both, baseline=facts(rows=8, micro_batch=4))  # the first dimension is a length of eight
    assert not any("compares different things" in line for line in unlike_runs(study, by_chance))
    packed = observation(at(1, 8), 2.0, facts=facts(rows=64, micro_batch=8))
    [told] = unlike_runs(study, history(packed, baseline=facts(rows=32, micro_batch=4)))
    assert "the command lacks it" in told


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ("--b 8", "your own run is one with --b 4, as your configuration says; the command has --b 8. If you train"),
        ("", "your own run is one with --b 4, as your configuration says; the command lacks it. If you train"),
        ("--b 4", None),
    ],
)
def test_a_size_that_the_own_run_had_otherwise_than_the_command_says_is_told(args: str, said: str | None) -> None:
    mappings = {MICRO_BATCH: "--b", "optimizer.params.lr": "--lr"}
    plain = made_up_spec({MICRO_BATCH: 4, "optimizer": {"params": {"lr": 1.0}}}, arg_mappings=mappings)
    study = plain.model_copy(update={"command": f"{plain.command} {args}".strip()})
    told = unlike_runs(study, history(baseline=facts(micro_batch=4)))
    assert [line.startswith(f"WARNING: {said}") for line in told] == ([True] if said else [])


def test_models_of_several_sizes_come_with_a_warning() -> None:
    """A file that the script reads was edited: 296 and 3,232 samples/s were taken for launches of one model."""
    first = observation(at(1, 4), 1.0, facts=facts(num_params=1000), engine=engine())
    other = observation(at(1, 8), 2.0, facts=facts(num_params=8000), engine=engine())
    plain = observation(at(1, 2), 2.0, facts=facts(num_params=1001), engine=engine(framework="torch"))
    assert unlike_runs(spec(), history(first, first, plain)) == []
    [warning] = unlike_runs(spec(), history(first, other, plain))
    assert warning.startswith("WARNING: runs trained models of different sizes, from 1,000 to 8,000 parameters.")


@pytest.mark.parametrize(
    ("growths", "said"),
    [
        ([60.0, 30.0, 0.0], "WARNING: samples became longer during 2 of 3 runs, by up to 60 %."),
        ([-20.0, -40.0], "WARNING: samples became shorter during 2 of 2 runs, by up to 40 %."),
        ([60.0, 0.0, 0.0, 0.0], None),
        ([60.0, -60.0, 0.0], None),
        ([60.0], None),  # one is chance
    ],
)
def test_samples_that_grow_during_runs_come_with_a_warning(growths: list[float], said: str | None) -> None:
    known = [quality(growth_percent=growth) for growth in growths]
    runs = [replace(observation(at(1, 2**n), 2.0), quality=seen) for n, seen in enumerate(known)]
    told = unlike_runs(spec(), history(*runs))
    assert [line.startswith(said) for line in told] == [True] if said else told == []


def test_what_the_script_sets_itself_of_what_is_tuned_is_told() -> None:
    own = '{"zero_optimization.overlap_comm": false, "steps_per_print": 9}'
    run = observation(at(1, 8), 2.0, engine=engine(own_settings=own))
    tuned = made_up_spec({"zero_optimization": {"stage": 1, "overlap_comm": [False, True]}})
    assert unlike_runs(tuned, history(run)) == [
        "Your script sets zero_optimization.overlap_comm (false) itself, whatever the configuration says. "
        "dsopt tried nothing else there."
    ]
    assert unlike_runs(spec(), history(run)) == []
