"""What the best configuration changes, and which measured pairs tell what a change was worth."""

from dataclasses import replace

import pytest
from _pytest.python_api import ApproxBase

from dsopt.report.diff import Diff, best_diff, shown, table
from dsopt.search.facts import ModelFacts
from dsopt.search.history import History
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, NUM_GPUS, ZERO, Candidate, Setting
from tests.made_up import facts, observation, spec

STAGE, BUCKET = f"{ZERO}stage", f"{ZERO}reduce_bucket_size"
OFFLOAD = f"{ZERO}offload_optimizer"


def candidate(stage: int, micro_batch: int, *knobs: tuple[str, object], gas: int = 1) -> Candidate:
    setting: Setting = knobs
    return Candidate(stage=stage, micro_batch=micro_batch, gas=gas, knobs=setting)


def history(
    rounds: dict[Candidate | None, list[float]],
    singles: dict[Candidate, float] | None = None,
    own: ModelFacts | None = None,
    maximize: bool = True,
) -> History:
    """Confirmed configurations (None: the user's own), the first round also as the search's; and single runs."""
    reference = [
        observation(run, value, round=round_)
        for run, values in rounds.items()
        for round_, value in enumerate(values, start=1)
    ]
    runs = {run: values[0] for run, values in rounds.items() if run is not None} | (singles or {})
    if None in rounds:
        reference.append(observation(None, rounds[None][0], facts=own or facts()))
    else:
        reference += [observation(None), observation(None, 1.0, name="profile", facts=facts(zero_stage=3))]
    stages = {stage: [observation(run, v) for run, v in runs.items() if run.stage == stage] for stage in range(4)}
    return History(reference=reference, stages=stages, maximize=maximize)


def about(factor: float) -> ApproxBase:
    """What runs of two configurations say, drawn a little towards what is expected of them."""
    return pytest.approx(factor, rel=0.04)


def keys(found: Diff) -> dict[str, tuple[object, object]]:
    return {change.key: (change.old, change.new) for change in found.changes}


BEST = candidate(1, 4)
ROUNDS = {None: [100.0, 101, 99.5], BEST: [200.0, 202, 198]}


def test_pairs_tell_what_stage_and_micro_batch_are_worth() -> None:
    other_size = candidate(1, 1)
    found = best_diff(spec(), history(ROUNDS, {candidate(0, 4): 160.0, other_size: 125.0, candidate(2, 4): 150.0}))
    assert keys(found) == {MICRO_BATCH: (1, 4), STAGE: (0, 1)}
    micro_batch, stage = (change.worth for change in found.changes)
    assert stage is not None
    assert micro_batch is not None
    assert (stage.factor, stage.other) == (about(1.25), "z0_gas1_tmbspg4")
    assert (micro_batch.factor, micro_batch.other) == (about(1.6), other_size.name)
    assert stage.interval[0] < 1.25 < stage.interval[1]
    assert found.sentence().startswith("All changes together: 2.00 times the baseline (95 % interval ")
    assert "not known" not in found.sentence()
    assert [(f.key, f.old, f.new, f.because) for f in found.following] == [("train_batch_size", 2, 8, [MICRO_BATCH])]


def test_an_imported_figure_tells_no_worth() -> None:
    known = history(ROUNDS, {candidate(0, 4): 160.0})
    known = replace(known, stages={**known.stages, 0: [replace(o, imported="/r") for o in known.stages[0]]})
    assert [change.worth for change in best_diff(spec(), known).changes] == [None, None]


def test_without_pairs_only_the_whole_is_known() -> None:
    found = best_diff(spec(), history(ROUNDS, {candidate(2, 1): 90.0, candidate(0, 2): 110.0}))
    assert [change.worth for change in found.changes] == [None, None]
    assert found.sentence().endswith(
        f"The separate worths of {MICRO_BATCH} and {STAGE} are unknown: "
        "no measured trial has your value of just one of them and otherwise equals the best."
    )
    assert [line.split("  ")[-1].strip() for line in table(found)] == [
        "worth", "unknown", "unknown", f"follows from {MICRO_BATCH}",
    ]  # fmt: skip


def test_one_of_two_is_known() -> None:
    found = best_diff(spec(), history(ROUNDS, {candidate(0, 4): 160.0}))
    assert f"The worth of {MICRO_BATCH} is unknown" in found.sentence()
    assert "they need not multiply to the total" in found.sentence()


def test_a_single_change_is_worth_the_whole() -> None:
    best = candidate(0, 4)
    found = best_diff(spec(), history({None: ROUNDS[None], best: ROUNDS[BEST]}, {candidate(0, 1): 100.0}))
    [change] = found.changes
    assert change.worth is not None
    assert change.worth.other == "baseline"
    assert (change.worth.factor, change.worth.interval) == (found.comparison.speedup, found.comparison.interval)


def test_a_finalist_with_the_users_value_gives_a_worth_of_all_its_runs() -> None:
    found = best_diff(spec(), history({**ROUNDS, candidate(0, 4): [199.0, 200, 200]}))
    worth = {change.key: change.worth for change in found.changes}[STAGE]
    assert worth is not None
    assert worth.is_within_noise
    assert "within noise" in "\n".join(table(found))


def test_launches_that_differ_more_than_steps_widen_single_runs() -> None:
    noisy = {None: [100.0, 110, 95], BEST: [200.0, 188, 212]}
    alike, unlike = (
        best_diff(spec(), history(rounds, {candidate(0, 4): 160.0})).changes[1].worth for rounds in (ROUNDS, noisy)
    )
    assert alike is not None and unlike is not None
    assert unlike.interval[1] / unlike.interval[0] > 1.1 * alike.interval[1] / alike.interval[0]


def test_less_is_better_for_latency() -> None:
    slow, fast = ROUNDS[BEST], ROUNDS[None]
    study = spec(metric="latency")
    found = best_diff(study, history({None: slow, BEST: fast}, {candidate(0, 4): 125.0}, maximize=False))
    assert found.changes[1].worth is not None
    assert found.changes[1].worth.factor == about(1.25)
    assert found.comparison.speedup == pytest.approx(2.0, abs=0.03)


def test_knobs_are_keys_of_their_own() -> None:
    study = spec({"zero_optimization": {"stage": 1, "overlap_comm": [False, True]}}, fast=False)
    overlap = f"{ZERO}overlap_comm"
    best = candidate(1, 1, (BUCKET, 50), (overlap, True))
    other = candidate(1, 1, (BUCKET, 50), (overlap, False))
    found = best_diff(study, history({None: ROUNDS[None], best: ROUNDS[BEST]}, {other: 160.0}, facts(zero_stage=1)))
    assert keys(found) == {overlap: (False, True), BUCKET: (None, 50)}
    assert [change.worth and change.worth.factor for change in found.changes] == [about(1.25), None]
    assert found.following == []


def test_an_offload_section_goes_as_a_whole() -> None:
    section = {"device": ["cpu", "none"], "pin_memory": True}
    study = spec({"zero_optimization": {"stage": [1, 2], "offload_optimizer": section}})
    best, same = candidate(2, 1, (f"{OFFLOAD}.device", "none")), candidate(2, 1, (f"{OFFLOAD}.device", "cpu"))
    found = best_diff(study, history({None: ROUNDS[None], best: ROUNDS[BEST]}, {same: 100.0}, facts(zero_stage=1)))
    assert keys(found) == {STAGE: (1, 2), OFFLOAD: ({"device": "cpu", "pin_memory": True}, None)}
    assert [change.worth and change.worth.factor for change in found.changes] == [None, about(2.0)]
    assert "\n".join(table(found)).count('{"device": "cpu", "pin_memory": true}  not given') == 1


def test_switches_and_devices_stand_beside_the_configuration() -> None:
    study = spec(search={"args": {"--recompute": [None, ""], "rank": ["8", "16"]}}, num_gpus=[2, 4])
    best = candidate(0, 1, (NUM_GPUS, 4), ("--recompute", ""), ("--rank", "8"))
    without = candidate(0, 1, (NUM_GPUS, 4), ("--recompute", None), ("--rank", "8"))
    found = best_diff(study, history({None: ROUNDS[None], best: ROUNDS[BEST]}, {without: 160.0}))
    assert keys(found) == {NUM_GPUS: (2, 4), "--recompute": (None, ""), "--rank": (None, "8")}
    assert [change.worth and change.worth.factor for change in found.changes] == [None, about(1.25), None]
    assert [(f.key, f.old, f.new, f.because) for f in found.following] == [("train_batch_size", 2, 4, [NUM_GPUS])]


def test_flags_that_repeat_the_configuration_follow_it() -> None:
    study = spec(
        {MICRO_BATCH: "auto", ACCUMULATION: "auto", "train_batch_size": "auto"},
        arg_mappings={MICRO_BATCH: "--per_device_train_batch_size"},
    )
    found = best_diff(study, history(ROUNDS))
    assert keys(found) == {MICRO_BATCH: (1, 4), STAGE: (0, 1)}
    assert [(f.key, f.old, f.new) for f in found.following] == [
        ("train_batch_size", 2, 8),
        ("--per_device_train_batch_size", None, "4"),
    ]


def test_a_flag_that_contradicted_the_configuration_has_changed_before() -> None:
    study = spec({MICRO_BATCH: 1}, arg_mappings={MICRO_BATCH: "--per_device_train_batch_size"})
    study = study.model_copy(update={"command": f"{study.command} --per_device_train_batch_size 8"})
    (batch, flag) = best_diff(study, history(ROUNDS)).following
    assert (batch.key, flag.key, flag.old, flag.new) == ("train_batch_size", "--per_device_train_batch_size", "1", "4")


def test_what_only_stage_3_fills_in_follows_the_stage() -> None:
    study = spec({"zero_optimization": {"stage": [3, 2], "stage3_prefetch_bucket_size": "auto"}})
    best = candidate(2, 4)
    known = history({None: ROUNDS[None], best: ROUNDS[BEST]}, {candidate(3, 4): 160.0}, facts(zero_stage=3))
    found = best_diff(study, known)
    assert {change.key: change.worth and change.worth.factor for change in found.changes} == {
        MICRO_BATCH: None,
        STAGE: about(1.25),
    }
    assert [(f.key, f.because) for f in found.following] == [
        (f"{ZERO}stage3_prefetch_bucket_size", (STAGE,)),
        ("train_batch_size", [MICRO_BATCH]),
    ]


def test_a_batch_that_stays_the_same_is_no_change() -> None:
    study = spec({MICRO_BATCH: 2, ACCUMULATION: [2, 1], "train_batch_size": 8})
    best = candidate(0, 4, gas=1)
    found = best_diff(study, history({None: ROUNDS[None], best: ROUNDS[BEST]}, own=facts(micro_batch=2, gas=2)))
    assert keys(found) == {MICRO_BATCH: (2, 4), ACCUMULATION: (2, 1)}
    assert found.following == []


def test_a_best_that_is_the_users_own() -> None:
    found = best_diff(spec(), history({None: [100.0, 101], BEST: [90.0, 91]}))
    assert (found.changes, found.following, table(found)) == ([], [], [])
    assert found.sentence() == "Nothing to change: your own configuration is the best."


def test_there_is_no_whole_when_the_users_own_does_not_run() -> None:
    study = spec({MICRO_BATCH: 8, "zero_optimization": {"stage": 1}})
    best = candidate(1, 4)
    found = best_diff(study, history({best: ROUNDS[BEST]}))
    assert keys(found) == {MICRO_BATCH: (8, 4)}
    assert found.sentence().startswith("No speed-up can be given, because your configuration does not run.")
    assert [(f.key, f.old, f.new) for f in found.following] == [("train_batch_size", 16, 8)]
    assert found.to_json()["comparison"]["speedup"] is None


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("--recompute", None, "not given"),
        ("--recompute", "", "given"),
        ("--rank", "8", "8"),
        (BUCKET, 50_000_000, "50000000"),
        (f"{ZERO}overlap_comm", True, "true"),
        ("data_types.grad_accum_dtype", "", '""'),
    ],
)
def test_values_read_as_they_are_written(key: str, value: object, text: str) -> None:
    assert shown(key, value) == text
