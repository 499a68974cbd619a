"""The tuners that dsopt is compared with, each on a small simulated case of the development seeds."""

import dataclasses

import pytest

from benchmarks.scenarios.families import draw
from benchmarks.scenarios.published import published
from benchmarks.search.deepspeed_tuner import DeepSpeedTuner
from benchmarks.search.dsopt_tuner import DsoptTuner
from benchmarks.search.machine import Simulated, seconds_to_first_step, shown
from benchmarks.search.optuna_tuners import OptunaTuner
from benchmarks.search.oracle import oracle
from benchmarks.search.space import Space

# DeepSpeed's autotuner leaves its files to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def machine() -> Simulated:
    """DeBERTa XXL on 16 GPUs of 32 GB: ZeRO 0 cannot hold it, and the others run out at different sizes."""
    return Simulated(next(s for s in published(noise=0.02) if s.name == "deberta-v2-xxlarge"))


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.search.oracle._CACHE", tmp_path_factory.mktemp("oracle"))
        yield


def test_deepspeeds_autotuner_decides_by_its_own_code(machine):
    record = DeepSpeedTuner().tune(machine, seed=0)
    assert record.error is None
    profile, *searched = record.tried
    assert (profile.phase, shown(profile.config)) == ("profile", "z3_gas1_tmbspg1")
    # the user's own knobs are dropped, as on real runs
    assert all(set(t.config["zero_optimization"]) == {"stage"} for t in searched)
    # what ran out of memory is a failed experiment to it, and it goes on
    assert record.ooms > 0
    assert {t.value is None for t in searched if t.outcome == "oom"} == {True}
    # it chooses the best by its own figures, and a stage begins where the one before it ended
    best = max((t for t in searched if t.value is not None), key=lambda t: t.value)
    assert record.choice == best.config
    ran = {stage: [t for t in searched if t.config["zero_optimization"]["stage"] == stage] for stage in (2, 3)}
    largest = max(t.config["train_micro_batch_size_per_gpu"] for t in ran[2] if t.outcome == "measured")
    assert ran[3][0].config["train_micro_batch_size_per_gpu"] == largest


def test_each_run_of_the_autotuner_begins_from_its_constants(machine):
    tuner = DeepSpeedTuner(fast=False, tuner_type="random")
    assert tuner.tune(machine, seed=1).tried == tuner.tune(machine, seed=1).tried


def test_full_mode_as_installed_launches_none_of_its_experiments(machine):
    record = DeepSpeedTuner(fast=False, tuner_type="gridsearch", mended=False).tune(machine, seed=0)
    with_knobs = [t for t in record.tried if len(t.config["zero_optimization"]) > 1]
    assert {t.outcome for t in with_knobs} == {"failed"}
    mended = DeepSpeedTuner(fast=False, tuner_type="gridsearch").tune(machine, seed=0)
    assert any(t.outcome == "measured" and len(t.config["zero_optimization"]) > 1 for t in mended.tried)


def test_a_case_that_runs_nowhere_leaves_the_users_configuration(machine):
    tiny = dataclasses.replace(machine.scenario.cluster.device, memory_bytes=2**30)
    cluster = dataclasses.replace(machine.scenario.cluster, device=tiny)
    record = DeepSpeedTuner().tune(Simulated(dataclasses.replace(machine.scenario, cluster=cluster)), seed=0)
    assert [(t.phase, t.outcome) for t in record.tried] == [("profile", "oom")]
    assert record.choice_true_throughput is None


@pytest.mark.parametrize("sampler", ["tpe", "gp", "random"])
def test_optunas_samplers_spend_their_runs_on_different_candidates(machine, sampler):
    record = OptunaTuner(sampler=sampler, runs=8).tune(machine, seed=0)
    names = [shown(t.config) for t in record.tried]
    assert len(names) == len(set(names)) == 8
    assert record.tried[0].config == Space.of(machine, fast=True).config(Space.of(machine, fast=True).own)
    assert record.choice_true_throughput >= 0.9 * record.baseline_true_throughput
    assert 0 < record.experiments_to_choice <= 8


def test_the_oracle_is_the_best_of_all_candidates(machine):
    space = Space.of(machine, fast=True)
    best = oracle(machine, fast=True)
    throughputs = [machine.true_throughput(space.config(candidate)) for candidate in space.candidates()]
    assert best.throughput == max(value for value in throughputs if value is not None)
    noisy = Simulated(dataclasses.replace(machine.scenario, noise=0.1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchmarks.search.oracle._search", None)
        assert oracle(noisy, fast=True) == best  # kept, whatever the noise
    larger = {**best.config, "train_micro_batch_size_per_gpu": space.limit + 1}
    assert machine.true_throughput(larger) is None


def test_candidates_go_as_far_as_the_lightest_knobs_allow():
    """Small buckets leave room for a micro-batch that the user's own do not: an oracle without it could be beaten."""
    machine = Simulated(next(s for s in published(noise=0.02) if s.name == "gpt2-large"))
    own, all_knobs = (Space.of(machine, fast=fast) for fast in (True, False))
    assert own.limit < all_knobs.limit
    runs = [c for c in all_knobs.candidates() if machine.true_throughput(all_knobs.config(c)) is not None]
    assert max(c.micro_batch for c in runs) == all_knobs.limit


def test_ranks_on_several_nodes_need_the_launcher(machine):
    run = machine.run(machine.baseline, launch=0)
    direct = seconds_to_first_step(run, "direct", nodes=1)
    assert seconds_to_first_step(run, "warm", nodes=1) < direct < seconds_to_first_step(run, "launcher", nodes=1)
    assert seconds_to_first_step(run, "warm", nodes=2) == seconds_to_first_step(run, "launcher", nodes=2)


def test_dsopts_runs_race_the_best_as_a_workers_do():
    machine = Simulated(draw(2293, noise=0.1))
    record = DsoptTuner().tune(machine, seed=2293)
    slow = [tried for tried in record.tried if tried.outcome == "slow"]
    assert slow
    best = max(tried.value for tried in record.tried if tried.outcome == "measured")
    assert all(tried.value < best for tried in slow)
    whole = DsoptTuner(changes={"measurement": {"race": False}}).tune(machine, seed=2293)
    assert "slow" not in {tried.outcome for tried in whole.tried}
