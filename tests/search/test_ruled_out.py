"""What one run has shown is not tried again at other sizes."""

from dataclasses import replace

from dsopt.search.ruled_out import ruled_out
from dsopt.study.space import Candidate
from tests.made_up import facts, history, observation, spec

KNOBS = (("zero_optimization.overlap_comm", True),)


def at(stage: int, micro_batch: int, gas: int = 1, knobs: tuple[tuple[str, bool], ...] = ()) -> Candidate:
    return Candidate(stage=stage, micro_batch=micro_batch, gas=gas, knobs=knobs)


def test_what_deepspeed_refuses_of_a_stage_and_its_settings_is_refused_at_every_size() -> None:
    refused = observation(at(2, 8, knobs=KNOBS), reason="unsupported")
    out = ruled_out(spec(), history(refused, baseline=facts()), facts())
    assert not out.allow(at(2, 4, knobs=KNOBS))
    assert out.allow(at(2, 8)) and out.allow(at(3, 8, knobs=KNOBS))


def test_after_an_end_that_came_too_early_half_as_many_samples_are_tried() -> None:
    """A script that goes through its data once does fewer steps with larger batches."""
    early = observation(at(1, 64, gas=2), state="failed", reason="no_metrics")
    out = ruled_out(spec(), history(early, baseline=facts()), facts())
    large = facts(micro_batch=90)
    assert ruled_out(spec(), history(early, baseline=large), large).allow(at(2, 90))  # as large as what ran
    assert out.allow(at(1, 64)) and out.allow(at(0, 16, gas=4))
    assert not out.allow(at(0, 65)) and not out.allow(at(1, 33, gas=2))
    alone = replace(history(early), reference=[])  # the own run was not measured
    assert ruled_out(spec(), alone, facts()).allow(at(1, 64, gas=2))
