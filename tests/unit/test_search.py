"""The search's parts: memory, micro-batch range, cost model, sampler, pruners, comparison."""

import optuna
import pytest

from dsopt.search.confirm import compare
from dsopt.search.cost_model import CostModel
from dsopt.search.history import History, Observation
from dsopt.search.memory import MemoryModel
from dsopt.search.micro_batch import next_micro_batch, sizes_to_explore
from dsopt.search.pruners import EarlyStoppingPruner, MemoryPruner, runs_since_best
from dsopt.search.sampler import CandidateSampler, distributions
from dsopt.search.zero_memory import device_state_bytes
from dsopt.study.space import Candidate, stage_space
from tests.unit.made_up import GIB, facts, observation, spec


def at(stage: int, micro_batch: int) -> Candidate:
    return Candidate(stage=stage, micro_batch=micro_batch, gas=1)


def bigger(value: float, than: float, by: float) -> bool:
    return value > than * (1 + by)


def test_states_are_those_of_the_zero_paper() -> None:
    """Figure 1 of the paper: 7.5B parameters on 64 ranks take 120, 31.4, 16.6 and 1.9 GB."""
    for stage, gigabytes in enumerate((120, 31.4, 16.6, 1.9)):
        needed = device_state_bytes(stage, params=7_500_000_000, trainable=7_500_000_000, ranks=64, dtype="fp16")
        assert needed / 1e9 == pytest.approx(gigabytes, rel=0.02)


def test_frozen_parameters_have_neither_gradients_nor_optimizer_states() -> None:
    full = device_state_bytes(0, params=1000, trainable=1000, ranks=4, dtype="fp16")
    lora = device_state_bytes(0, params=1000, trainable=10, ranks=4, dtype="fp16")
    assert (full, lora) == (16000, 2000 + 140)


def test_the_memory_model_is_calibrated_on_measured_peaks() -> None:
    before = MemoryModel.fit(spec(), facts(), [])
    assert before.estimate(0, 1) == pytest.approx(4 * GIB)
    assert before.estimate(0, 3) == pytest.approx(6 * GIB)
    seen = facts(micro_batch=4, peak_memory_bytes=5.5 * GIB)
    model = MemoryModel.fit(spec(), facts(), [observation(at(0, 4), 1.0, facts=seen)])
    assert model.sample_bytes == pytest.approx(0.5 * GIB)
    assert model.largest_micro_batch(0) == 25
    assert model.fits(at(0, 25))
    assert not model.fits(at(0, 26))
    assert model.largest_micro_batch(3) == 25 + 1  # half of 1 GiB of states, at half a GiB a sample


def test_an_oom_rules_out_every_larger_micro_batch_of_the_same_settings() -> None:
    model = MemoryModel.fit(spec(), facts(), [observation(at(1, 4))])
    assert not model.fits(at(1, 4))
    assert not model.fits(at(1, 5))
    assert model.fits(at(1, 3))
    assert model.fits(at(2, 4))


def run_range(truth: dict[int, float], wall: int, *, start: int, floor: int = 1, ceiling: int | None = None):
    """Sizes in the order they are tried, where sizes of at least `wall` run out of memory."""
    measured: dict[int, float] = {}
    unrunnable: set[int] = set()
    tried = []
    while True:
        size = next_micro_batch(measured, unrunnable, start=start, floor=floor, ceiling=ceiling, is_better=bigger)
        if size is None:
            return tried
        assert size not in tried
        tried.append(size)
        if size >= wall:
            unrunnable.add(size)
        else:
            measured[size] = truth[size]


GROWING = {size: size / (size + 5) for size in range(1, 1000)}
PEAKED = {size: size / (size + 5) if size <= 16 else 0.5 for size in range(1, 1000)}


@pytest.mark.parametrize(
    ("truth", "wall", "limits", "tried"),
    [
        (GROWING, 10**6, {"start": 1, "ceiling": 8}, [1, 2, 4, 8]),
        (GROWING, 10**6, {"start": 4, "ceiling": 23}, [4, 8, 16, 23]),
        (GROWING, 24, {"start": 4}, [4, 8, 16, 32, 24, 20, 22]),
        (GROWING, 4, {"start": 16}, [16, 8, 4, 2, 3]),
        (GROWING, 1, {"start": 4}, [4, 2, 1]),
        (PEAKED, 10**6, {"start": 16}, [16, 32, 8]),
        (PEAKED, 10**6, {"start": 16, "floor": 16}, [16, 32]),
        (dict.fromkeys(range(100), 1.0), 10**6, {"start": 1}, [1, 2]),
        (GROWING, 10**6, {"start": 64, "ceiling": 32}, [32]),
    ],
)
def test_the_range_of_micro_batch_sizes(truth, wall, limits, tried) -> None:
    assert run_range(truth, wall, **limits) == tried


def test_sizes_to_explore_are_the_best_and_those_around_it() -> None:
    measured = {1: 1.0, 2: 2.0, 4: 3.0, 8: 2.5}
    assert sizes_to_explore(measured, 3, bigger) == [4, 3, 6]
    assert sizes_to_explore(measured, 5, bigger) == [4, 3, 6, 2, 8]
    assert sizes_to_explore(measured, 1, bigger) == [4]
    assert sizes_to_explore({}, 3, bigger) == []


def test_the_cost_model_learns_across_stages_and_never_from_failures() -> None:
    seen = [observation(at(stage, m), 100 * m / (m + 4) * (1 + stage / 10)) for stage in (0, 1) for m in (1, 2, 4, 8)]
    failed = [observation(at(1, 16)), observation(at(1, 32), state="failed")]
    model = CostModel(seen + failed)
    assert model.is_ready
    predicted = model.predict([at(1, 1), at(1, 8), at(2, 8)])
    assert predicted[1] > 2 * predicted[0]
    assert predicted[2] == pytest.approx(predicted[1], rel=0.1)
    assert list(predicted) == list(CostModel(seen).predict([at(1, 1), at(1, 8), at(2, 8)]))
    assert not CostModel(failed).is_ready


def ask_all(tuner_type: str, observations: list[Observation]) -> list[str]:
    """The candidates of stage 1 in the order in which a sampler of that type gives them."""
    space = stage_space(1, fast=False, user_zero={})
    candidates = space.candidates([2, 8], gases=[1])
    claimed: list[Candidate] = []

    def claim(candidate: Candidate, _trial: int) -> bool:
        if candidate in claimed:
            return False
        claimed.append(candidate)
        return True

    study = optuna.create_study(direction="maximize")
    for _ in candidates:
        study.sampler = CandidateSampler(
            candidates, space, tuner_type=tuner_type, observations=observations, maximize=True, claim=claim
        )
        trial = study.ask(distributions(space))
        assert Candidate.from_params(1, trial.params) == claimed[-1]
    assert len(set(claimed)) == len(candidates)
    return [c.name for c in claimed]


def test_samplers_give_every_candidate_once_in_their_own_order() -> None:
    enumerated = [c.name for c in stage_space(1, fast=False, user_zero={}).candidates([2, 8], gases=[1])]
    seen = [observation(at(0, m), 100.0 * m) for m in (1, 2, 4, 8)]
    assert ask_all("gridsearch", seen) == enumerated
    assert ask_all("random", seen) not in (enumerated, sorted(enumerated))
    assert ask_all("random", seen) == ask_all("random", seen)
    assert all("tmbspg8" in name for name in ask_all("model_based", seen)[:9])


def test_the_memory_pruner_refuses_what_cannot_fit() -> None:
    pruner = MemoryPruner(MemoryModel.fit(spec(), facts(), []), stage=0)
    study = optuna.create_study(pruner=pruner)
    space = stage_space(0, fast=True, user_zero={})
    study.enqueue_trial(at(0, 64).params)
    assert study.ask(distributions(space)).should_prune()
    study.enqueue_trial(at(0, 2).params)
    assert not study.ask(distributions(space)).should_prune()


def test_patience_counts_runs_after_the_best_and_only_those() -> None:
    values = [10.0, 12.0, 11.0, None, 11.5]
    runs = [observation(at(1, m + 1), value) for m, value in enumerate(values)]
    refused = observation(at(1, 99), reason="predicted_oom")
    running = observation(at(1, 98), state="running", reason=None)
    history = History(reference=[], stages={1: [*runs, refused, running]})
    assert runs_since_best(history, history.stages[1]) == 3
    study = optuna.create_study()
    trial = optuna.trial.create_trial(state=optuna.trial.TrialState.RUNNING)
    assert EarlyStoppingPruner(history, 1, patience=3).prune(study, trial)
    assert not EarlyStoppingPruner(history, 1, patience=4).prune(study, trial)
    slower = History(reference=[], stages={1: runs[:3]}, maximize=False)
    assert runs_since_best(slower, slower.stages[1]) == 2


def confirmed(table: dict[str, list[float]], maximize: bool = True) -> History:
    runs = [
        observation(None, value, name=name, round=round_)
        for name, values in table.items()
        for round_, value in enumerate(values, start=1)
    ]
    first = observation(None, table["baseline"][0]) if "baseline" in table else observation(None, None)
    return History(reference=[first, *runs], stages={}, maximize=maximize)


def test_the_speedup_and_its_interval_come_from_the_rounds() -> None:
    result = compare(confirmed({"baseline": [100, 110, 105], "fast": [200, 222, 209], "other": [190, 210, 199]}))
    assert result is not None
    assert result.best == "fast"
    assert result.speedup == pytest.approx(2.004, abs=0.01)
    assert result.interval is not None
    # all three became faster together from round to round: that is no noise of theirs
    assert 1.95 < result.interval[0] < result.speedup < result.interval[1] < 2.06


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    import numpy as np

    generator = np.random.default_rng(3)
    covered = 0
    for _ in range(400):
        rounds = generator.normal(0, 0.05, 3)
        table = {
            name: list(np.exp(np.log(mean) + rounds + generator.normal(0, 0.03, 3)))
            for name, mean in (("baseline", 100.0), ("fast", 150.0), ("other", 120.0))
        }
        result = compare(confirmed(table))
        assert result is not None
        assert result.interval is not None
        covered += result.interval[0] <= 1.5 <= result.interval[1]
    assert 0.92 <= covered / 400 <= 0.98


def test_less_is_better_for_latency() -> None:
    result = compare(confirmed({"baseline": [200, 202, 201], "fast": [100, 101, 101]}, maximize=False))
    assert result is not None
    assert result.best == "fast"
    assert result.speedup == pytest.approx(2.0, abs=0.02)


@pytest.mark.parametrize(
    ("table", "best", "speedup"),
    [
        ({"baseline": [100, 101, 99], "slow": [90, 91, 89]}, "baseline", 1.0),
        ({"fast": [90, 91, 89]}, "fast", None),
        ({"baseline": [100]}, "baseline", 1.0),
    ],
)
def test_without_a_faster_one_or_without_a_baseline(table, best, speedup) -> None:
    result = compare(confirmed(table))
    assert result is not None
    assert (result.best, result.speedup, result.interval) == (best, speedup, None)


def test_nothing_measured_is_no_result() -> None:
    assert compare(History(reference=[observation(None, None)], stages={})) is None
