"""The learning rate that goes with another batch."""

import math
import re

import pytest

from dsopt.report.batch_size import SameBatch, batch_advice, scale_rates
from dsopt.search.history import History
from dsopt.search.standing import Ratio
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from tests.made_up import facts, observation, spec


def history(**own: object) -> History:
    """A study whose baseline ran on two ranks."""
    return History(reference=[observation(None, 1.0, facts=facts(**own))], stages={})


def with_command(study: StudySpec, command: str) -> StudySpec:
    return study.model_copy(update={"command": command})


@pytest.mark.parametrize(
    ("kind", "factor", "rule"), [("AdamW", 2.0, "√(32/8) = 2"), ("SGD", 4.0, "32/8 = 4"), (None, 2.0, "√(32/8) = 2")]
)
def test_the_rate_scales_with_the_root_and_for_sgd_linearly(kind: str | None, factor: float, rule: str) -> None:
    optimizer = {"optimizer": {"type": kind, "params": {"lr": 3e-4}}} if kind else {}
    study = spec({**optimizer, "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 3e-4}}})
    best = Candidate(stage=1, micro_batch=8, gas=2)
    advice = batch_advice(study, history(micro_batch=4), best)
    assert advice is not None
    assert (advice.own, advice.best, advice.factor) == (8, 32, factor)
    assert rule in advice.text()
    assert f"scheduler.params.warmup_max_lr 0.0003 → {3e-4 * factor:.4g}" in advice.text()
    scaled, _ = scale_rates(advice, study.ds_config, study.launch)
    assert scaled["scheduler"]["params"]["warmup_max_lr"] == pytest.approx(3e-4 * factor)
    assert study.ds_config["scheduler"]["params"]["warmup_max_lr"] == 3e-4
    if kind:
        assert scaled["optimizer"]["params"]["lr"] == pytest.approx(3e-4 * factor)


def test_both_rates_of_muon_are_scaled() -> None:
    """They come before `lr`, which alone was scaled."""
    study = spec({"optimizer": {"type": "Muon", "params": {"lr": 0.02, "muon_lr": 0.02, "adam_lr": 0.001}}})
    advice = batch_advice(study, history(micro_batch=4), Candidate(stage=1, micro_batch=8, gas=2))
    assert advice is not None
    scaled, _ = scale_rates(advice, study.ds_config, study.launch)
    assert scaled["optimizer"]["params"] == {"lr": 0.04, "muon_lr": 0.04, "adam_lr": 0.002}


def test_a_rate_that_dsopt_does_not_know_is_not_called_scaled() -> None:
    study = with_command(spec(), "deepspeed t.py --lr 0.001 --deepspeed_config c.json")
    advice = batch_advice(study, history(micro_batch=4, rows=4), Candidate(stage=1, micro_batch=8, gas=2))
    assert advice is not None
    assert "was scaled" not in advice.text(applied=True)
    assert "WARNING: dsopt has changed no learning rate, because it knows none" in advice.text(applied=True)


@pytest.mark.parametrize(("rows", "micro_batch", "is_told"), [(0, 8, True), (4, 8, False), (0, 4, False)])
def test_batches_that_were_not_seen_are_said(rows: int, micro_batch: int, is_told: bool) -> None:
    best = Candidate(stage=1, micro_batch=micro_batch, gas=2)
    advice = batch_advice(spec(), history(micro_batch=4, rows=rows), best)
    assert advice is not None
    assert ("could not see the batches" in advice.text()) is is_told


@pytest.mark.parametrize(("given", "scaled"), [(" --learning_rate 1e-5", "2e-05"), ("", None)])
def test_the_trainers_rate_is_a_flag(given: str, scaled: str | None) -> None:
    """Where it is absent, nobody knows: the Trainer's own default was told of scripts that have another."""
    study = with_command(
        spec({"optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}), f"deepspeed t.py --deepspeed c.json{given}"
    )
    advice = batch_advice(study, history(), Candidate(stage=1, micro_batch=4, gas=1))
    assert advice is not None
    config, command = scale_rates(advice, study.ds_config, study.launch)
    assert config == study.ds_config
    assert command.script_value("--learning_rate") == scaled


def test_numbers_of_steps_follow_where_they_are_known() -> None:
    scheduler = {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 1000, "total_num_steps": 20_001}}
    study = with_command(
        spec({"scheduler": scheduler}, arg_mappings={"scheduler.params.total_num_steps": "--steps"}),
        "deepspeed t.py --max_steps=500 --warmup_steps 0.1 --steps 20001 --deepspeed c.json",
    )
    advice = batch_advice(study, history(micro_batch=4), Candidate(stage=1, micro_batch=16, gas=1))
    assert advice is not None
    assert (
        "The same samples then take 25 % of the steps: set numbers of steps, of warm-up too, accordingly: "
        "scheduler.params.warmup_num_steps 1000 → 250, scheduler.params.total_num_steps 20001 → 5000, "
        "--max_steps 500 → 125, --steps 20001 → 5000."
    ) in advice.text()


def test_a_schedulers_least_rate_and_its_cycles_follow_too() -> None:
    warmup = {"warmup_min_lr": 1e-5, "warmup_max_lr": 1e-3, "warmup_num_steps": 100}
    cycle = {"cycle_min_lr": 0, "cycle_first_step_size": 100, "cycle_second_step_size": 200, "decay_step_size": 0}
    study = spec({"scheduler": {"params": {**warmup, **cycle}}})
    advice = batch_advice(study, history(micro_batch=4), Candidate(stage=1, micro_batch=16, gas=1))
    assert advice is not None
    assert list(advice.rates) == ["scheduler.params.warmup_min_lr", "scheduler.params.warmup_max_lr"]
    assert list(advice.steps.values()) == [100, 100, 200]


@pytest.mark.parametrize("flags", ["", "--max_steps -1", "--max_steps x"])
def test_steps_that_are_not_known_are_not_computed(flags: str) -> None:
    study = with_command(
        spec({"scheduler": {"params": {"warmup_num_steps": "auto"}}}), f"deepspeed t.py {flags} --deepspeed c.json"
    )
    advice = batch_advice(study, history(micro_batch=4), Candidate(stage=1, micro_batch=16, gas=1))
    assert advice is not None and "of warm-up too, accordingly. " in advice.text()


def test_more_gpus_make_a_larger_batch() -> None:
    study = spec(num_gpus=[2, 8])
    best = Candidate(stage=1, micro_batch=1, gas=1, knobs=(("num_gpus", 8),))
    advice = batch_advice(study, history(), best)
    assert advice is not None
    assert advice.factor == math.sqrt(4)
    assert "--apply-lr-scaling" not in advice.text()  # there is no rate to write


def test_without_another_batch_there_is_nothing_to_say() -> None:
    assert batch_advice(spec(), history(), Candidate(stage=3, micro_batch=1, gas=1)) is None
    assert batch_advice(spec(), history(), None) is None
    unmeasured = History(reference=[observation(None)], stages={})
    assert batch_advice(spec(), unmeasured, Candidate(stage=3, micro_batch=2, gas=1)) is None


def test_a_rate_that_was_tuned_is_the_one_that_scales() -> None:
    study = spec(
        {"optimizer": {"type": "AdamW", "params": {"lr": 0.001}}},
        search={"ds_config": {"optimizer.params.lr": [0.01, 0.02]}},
    )
    best = Candidate(stage=1, micro_batch=4, gas=1, knobs=(("optimizer.params.lr", 0.01),))
    advice = batch_advice(study, history(), best)
    assert advice is not None
    assert "0.01 → 0.02" in advice.text()


def test_a_much_larger_batch_is_a_warning_and_says_what_the_own_batch_gives() -> None:
    same = Candidate(stage=1, micro_batch=4, gas=1)
    runs = [observation(same, 130.0), observation(Candidate(stage=1, micro_batch=32, gas=1), 200.0)]
    known = History(reference=[observation(None, 100.0, facts=facts(micro_batch=4))], stages={1: runs})
    advice = batch_advice(spec(), known, Candidate(stage=1, micro_batch=32, gas=1))
    assert advice is not None
    text = advice.text()
    assert "WARNING: The best trains with a global batch of 64 samples, your own with 8: 8 times as many." in text
    assert "The same samples then take 12.5 % of the steps" in text
    told = re.search(
        r"The best with your own global batch, ZeRO 1 · 4 × 1, is 1\.30 times as fast as yours "
        r"\(95 % interval (\d\.\d\d) to (\d\.\d\d)\)\.",
        text,
    )
    assert told, text
    assert 1 < float(told[1]) < 1.3 < float(told[2]) < 1.7


def test_a_gain_with_the_own_batch_that_may_be_none_is_doubted() -> None:
    ratio = Ratio(factor=1.02, interval=(0.97, 1.07))
    told = SameBatch(metric="throughput", candidate="ZeRO 1 · 4 × 1", ratio=ratio).text()
    assert told.endswith("1.02 times as fast as yours (95 % interval 0.97 to 1.07): it may be no faster.")


def test_the_batch_is_told_of_a_configuration_that_does_not_run_too() -> None:
    runs = [observation(Candidate(stage=3, micro_batch=2, gas=1), 10.0, facts=facts(zero_stage=3, micro_batch=2))]
    known = History(reference=[observation(None)], stages={3: runs})
    study = spec({"train_micro_batch_size_per_gpu": 8})
    advice = batch_advice(study, known, Candidate(stage=3, micro_batch=2, gas=1))
    assert advice is not None
    assert (advice.own, advice.best) == (16, 4)
    assert "The same samples then take 4 times as many steps" in advice.text()
    assert (
        "Nothing else was measured with your own global batch; with another --name, tune --keep-global-batch searches "
        "with it." in advice.text()
    )
