"""What a parameter needs: as a run was seen to hold it, else as its data type and Adam have it."""

from dataclasses import replace

import pytest

from benchmarks.scale import outcome_of
from dsopt.estimates.zero_memory import ParamBytes
from dsopt.experiment.outcome import Measured, from_json
from dsopt.search.global_batch import batch_of_run, configured_batch
from dsopt.search.observing import _facts
from dsopt.search.sharding import sharding_of
from dsopt.search.step_features import StepFeatures
from dsopt.store.trials import _headline
from dsopt.study.space import Setting
from dsopt.study.trial_attributes import engine_attributes
from tests.made_up import facts, spec


@pytest.mark.parametrize(
    ("seen", "held"),
    [
        ({}, ParamBytes(2, 2, 12)),
        ({"weight_bytes": 4.0, "gradient_bytes": 4.0, "optimizer_bytes": 0.0}, ParamBytes(4, 4, 0)),  # plain SGD
        ({"weight_bytes": 2.0, "gradient_bytes": 4.0, "optimizer_bytes": 12.0}, ParamBytes(2, 4, 12)),
        # what studies kept before 0 meant none
        ({"weight_bytes": 0.0, "gradient_bytes": 0.0, "optimizer_bytes": 0.0}, ParamBytes(2, 2, 12)),
    ],
)
def test_no_states_are_not_the_same_as_states_that_nobody_saw(seen: dict[str, float], held: ParamBytes) -> None:
    assert facts(**seen).held == held


def test_plain_sgd_needs_no_memory_for_states() -> None:
    known = facts(weight_bytes=4.0, gradient_bytes=4.0, optimizer_bytes=0.0)
    assert sharding_of(spec(), known, 0, ()).device_bytes(known) == 8 * known.num_params
    assert sharding_of(spec(), known, 0, ()).device_bytes(facts()) == 16 * known.num_params


def test_what_autocast_computes_in_decides_how_fast_a_device_is() -> None:
    """Its weights are of fp32, for which nobody knows how fast a device is."""
    shown = {"device": "NVIDIA A100-SXM4-80GB", "dtype": "fp32", "flops_per_step": 1e12}
    assert StepFeatures(spec(), facts(**shown), 1.0)._sample_seconds() is None
    seconds = StepFeatures(spec(), facts(**shown, autocast="bf16"), 1.0)._sample_seconds()
    assert seconds == StepFeatures(spec(), facts(**{**shown, "dtype": "bf16"}), 1.0)._sample_seconds()


def test_both_pass_through_a_trial_s_attributes() -> None:
    stateless = replace(outcome_of(None), weight_bytes=4.0, gradient_bytes=4.0, optimizer_bytes=0.0, alloc_retries=2)
    for outcome, expected in ((stateless, (4.0, 4.0, 0.0, 2)), (outcome_of(None), (None, None, None, 0))):
        known = _facts({**engine_attributes(outcome.engine), **_headline(outcome)})
        assert (known.weight_bytes, known.gradient_bytes, known.optimizer_bytes, known.alloc_retries) == expected
        again = from_json({**outcome.to_json(), "state": "measured"})
        assert isinstance(again, Measured)
        assert again.optimizer_bytes == expected[2]


@pytest.mark.parametrize(
    ("ranks", "samples", "said", "shared", "replicas"),
    [
        (4, 32, 1, 1, 4),
        (4, 16, 1, 2, 2),  # two stages of a pipeline: half the global batch was told, and searched with
        (4, 8, 1, 4, 1),
        (4, 16, 4, 2, 1),  # the user's word counts
        (4, 12, 1, 1, 4),  # whatever that is
        (4, 64, 1, 1, 4),
    ],
)
def test_ranks_that_share_a_replica_show_in_the_samples_of_a_step(
    ranks: int, samples: int, said: int, shared: int, replicas: int
) -> None:
    run = outcome_of(None)
    engine = replace(run.engine, world_size=ranks, micro_batch=4, gas=2)
    figures = _headline(replace(run, measurement=replace(run.measurement, samples_per_step=samples)))
    known = _facts({**engine_attributes(engine), **figures})
    assert known.sharing == shared
    study = spec(mp_size=said)
    assert sharding_of(study, known, 1, ()).model_parallel == said  # each may have all weights
    assert batch_of_run(study, known, ()) == 4 * 2 * replicas


@pytest.mark.parametrize(
    ("configured", "chosen", "told", "samples", "batch"),
    [
        (None, (), 1, 32, 32),
        (2, (), 2, 16, 16),
        (None, (("tensor_parallel.autotp_size", 2),), 2, 16, 16),
        (None, (("tensor_parallel.autotp_size", 2),), 1, 32, 16),  # as another run shows the model
        (None, (), 2, 16, 16),  # the script asks for it
    ],
)
def test_ranks_of_autotp_share_samples_and_weights(
    configured: int | None, chosen: Setting, told: int, samples: int, batch: int
) -> None:
    """DeepSpeed counts them as ranks with samples of their own."""
    run = outcome_of(None)
    engine = replace(run.engine, world_size=4, micro_batch=4, gas=2, autotp=told)
    figures = _headline(replace(run, measurement=replace(run.measurement, samples_per_step=samples)))
    known = _facts({**engine_attributes(engine), **figures})
    assert known.sharing == 1
    study = spec({} if configured is None else {"tensor_parallel": {"autotp_size": configured}})
    assert batch_of_run(study, known, chosen) == batch
    assert sharding_of(study, known, 1, chosen).model_parallel == 32 // batch


def test_the_users_batch_is_that_of_the_samples_of_autotp() -> None:
    study = spec({"tensor_parallel": {"autotp_size": 2}, "train_batch_size": 64})
    assert configured_batch(study, facts(world_size=4)) == 32
