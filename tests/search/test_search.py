"""The search's parts: memory, micro-batch range, cost model, sampler, pruners, comparison."""

from dataclasses import replace

import numpy as np
import optuna
import pytest

from dsopt.estimates.zero_memory import device_state_bytes
from dsopt.search.cost_model import CostModel
from dsopt.search.forecast import Forecast
from dsopt.search.grid import Grid
from dsopt.search.history import History, Observation
from dsopt.search.memory import MemoryModel
from dsopt.search.micro_batch import next_micro_batch, sizes_to_explore
from dsopt.search.pruners import memory_pruner, runs_since_best
from dsopt.search.sampler import CandidateSampler, distributions
from dsopt.search.standing import compare, ratio_of
from dsopt.search.tuners import tuner_named
from dsopt.study.space import Candidate, stage_space
from dsopt.study.spec import StudySpec
from tests.made_up import GIB, facts, history, observation, spec


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


def test_the_cost_model_learns_what_is_left_over_across_stages() -> None:
    seen = [at(stage, m) for stage in (0, 1) for m in (1, 2, 4, 8, 16)]
    left = np.array([0.1 if candidate.micro_batch >= 4 else -0.1 for candidate in seen])
    model = CostModel(Grid.of(seen), left, np.ones(len(seen)))
    asked = Grid.of([at(2, 1), at(2, 8)])
    mean, spread = model.predict(asked)
    assert mean[1] > 0.02 > -0.02 > mean[0]
    assert (spread > 0).all()
    again, _ = CostModel(Grid.of(seen), left, np.ones(len(seen))).predict(asked)
    assert list(mean) == list(again)


def test_the_cost_model_says_nothing_from_a_few_runs() -> None:
    seen = [at(0, m) for m in (1, 2, 4)]
    mean, spread = CostModel(Grid.of(seen), np.array([0.1, 0.2, 0.3]), np.ones(3)).predict(Grid.of([at(1, 8)]))
    assert (mean[0], spread[0]) == (0.0, 0.0)


def ask_all(tuner_type: str, observations: list[Observation]) -> list[str]:
    """The candidates of stage 1 in the order in which a sampler of that type gives them."""
    space = stage_space(1, fast=False, user_zero={})
    candidates = space.candidates([2, 8], gases=[1])
    claimed: list[Candidate] = []
    study = optuna.create_study(direction="maximize")
    known = facts(activation_bytes=GIB // 4)
    forecast = Forecast(spec(), known, history(*observations)) if tuner_type == "model_based" else None
    for _ in candidates:
        study.sampler = CandidateSampler(
            [candidate for candidate in candidates if candidate not in claimed], space, tuner=tuner_named(tuner_type),
            observations=observations, maximize=True, forecast=forecast,
        )  # fmt: skip
        claimed.append(Candidate.from_params(1, study.ask(distributions(space)).params))
    assert len(set(claimed)) == len(candidates)
    return [c.name for c in claimed]


def test_samplers_give_every_candidate_once_in_their_own_order() -> None:
    enumerated = [c.name for c in stage_space(1, fast=False, user_zero={}).candidates([2, 8], gases=[1])]
    seen = [observation(at(0, m), 100.0 * m) for m in (1, 2, 4)]
    assert ask_all("gridsearch", seen) == enumerated
    assert ask_all("random", seen) not in (enumerated, sorted(enumerated))
    assert ask_all("random", seen) == ask_all("random", seen)
    assert all("tmbspg8" in name for name in ask_all("model_based", seen)[:3])


def test_the_memory_pruner_refuses_what_cannot_fit() -> None:
    pruner = memory_pruner(MemoryModel(spec(), facts(), history()), stage=0)
    study = optuna.create_study(pruner=pruner)
    space = stage_space(0, fast=True, user_zero={})
    study.enqueue_trial(at(0, 64).params)
    assert study.ask(distributions(space)).should_prune()
    study.enqueue_trial(at(0, 2).params)
    assert not study.ask(distributions(space)).should_prune()


def test_patience_counts_runs_after_the_best_and_only_those() -> None:
    values = [10.0, 12.0, 11.0, None]
    slow = observation(at(1, 50), state="slow", reason="slow", value_so_far=9.0)
    runs = [*(observation(at(1, m + 1), value) for m, value in enumerate(values)), slow]
    refused = observation(at(1, 99), reason="predicted_oom")
    running = observation(at(1, 98), state="running", reason=None)
    known = [replace(o, trial=number) for number, o in enumerate([*runs, refused, running])]
    history = History(reference=[], stages={1: known})
    assert runs_since_best(history, history.stages[1]) == 3
    slower = History(reference=[], stages={1: runs[:3]}, maximize=False)
    assert runs_since_best(slower, slower.stages[1]) == 2


SIZES = {"baseline": 1, "fast": 8, "other": 4, "slow": 2}


def launched(table: dict[str, list[float]], **autotuning: object) -> tuple[StudySpec, History]:
    """A study whose configurations were launched so often, with these figures."""
    study, reference, stages = spec(**autotuning), [], {stage: [] for stage in range(4)}
    for name, values in table.items():
        candidate = None if name == "baseline" else at(0, SIZES.get(name, 1))
        for round_, value in enumerate(values):
            run = observation(candidate, value, name=name, round=round_, facts=facts(micro_batch=SIZES.get(name, 1)))
            (stages[0] if candidate and not round_ else reference).append(run)
    if "baseline" not in table:
        reference.insert(0, observation(None, None))
    return study, History(reference=reference, stages=stages, maximize=study.autotuning.maximize)


def test_the_speedup_and_its_interval_come_from_all_runs() -> None:
    result = compare(*launched({"baseline": [100, 101, 100], "fast": [200, 202, 201], "other": [190, 191, 190]}))
    assert result is not None
    assert (result.best, result.runs) == ("fast", 9)
    assert result.speedup == pytest.approx(2.0, abs=0.03)
    assert result.interval is not None
    assert 1.9 < result.interval[0] < result.speedup < result.interval[1] < 2.1


@pytest.mark.parametrize(("noise", "least"), [(0.007, 0.95), (0.03, 0.75)])
def test_the_interval_covers_the_truth_about_as_often_as_it_says(noise: float, least: float) -> None:
    """With three launches of each; where they differ by far more than usual, that is seen late."""
    generator = np.random.default_rng(3)
    covered = 0
    for _ in range(100):
        table = {
            name: list(np.exp(np.log(mean) + generator.normal(0, noise, 3)))
            for name, mean in (("baseline", 100.0), ("fast", 150.0), ("other", 120.0))
        }
        result = ratio_of(*launched(table), "fast", "baseline")
        assert result is not None
        covered += result.interval[0] <= 1.5 <= result.interval[1]
    assert covered / 100 >= least


def test_the_best_is_certain_where_it_is_clearly_ahead_and_not_where_two_are_alike() -> None:
    clear = compare(*launched({"baseline": [100], "fast": [130], "other": [110]}))
    assert clear is not None
    assert clear.probability is not None
    assert clear.regret is not None
    assert clear.probability > 0.95
    assert clear.regret < 0.002
    alike = compare(*launched({"baseline": [100, 101], "fast": [120, 121], "other": [120.5, 120]}))
    assert alike is not None
    assert alike.probability is not None
    assert 0.4 < alike.probability < 0.85


def test_a_run_that_is_less_sure_of_its_figure_counts_for_less() -> None:
    study, table = launched({"baseline": [100, 100, 100], "fast": [120, 120, 90]})
    runs = [replace(o, half_width=0.4 if o.value == 90 else 0.02) for o in table.reference]
    weighted = compare(study, replace(table, reference=runs, learnt={}))
    assert weighted is not None
    assert weighted.speedup == pytest.approx(1.2, abs=0.02)


def test_less_is_better_for_latency() -> None:
    result = compare(*launched({"baseline": [200, 202, 201], "fast": [100, 101, 101]}, metric="latency"))
    assert result is not None
    assert result.best == "fast"
    assert result.speedup == pytest.approx(2.0, abs=0.04)


@pytest.mark.parametrize(
    ("table", "best", "speedup"),
    [
        ({"baseline": [100, 101, 99], "slow": [90, 91, 89]}, "baseline", 1.0),
        ({"fast": [90, 91, 89]}, "fast", None),
        ({"baseline": [100]}, "baseline", 1.0),
    ],
)
def test_without_a_faster_one_or_without_a_baseline(table, best, speedup) -> None:
    result = compare(*launched(table))
    assert result is not None
    assert (result.best, result.speedup, result.interval) == (best, speedup, None)


def test_nothing_measured_is_no_result() -> None:
    assert compare(spec(), History(reference=[observation(None, None)], stages={})) is None


def test_the_users_own_configuration_under_another_name_is_not_a_second_one() -> None:
    """Its trial has the figure of the baseline's run: it is no rival, and no further run."""
    own = at(0, SIZES["baseline"])
    result = compare(*launched({"baseline": [100], own.name: [100], "other": [90]}))
    assert result is not None
    assert (result.best, result.runs) == ("baseline", 2)
