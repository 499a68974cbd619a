"""What the sampler makes of the trials of a study."""

import math
import pickle
import threading

import numpy as np
import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from dsopt.optuna import XGBoostSampler
from dsopt.optuna.encoding import SearchSpace

SPACE: dict[str, BaseDistribution] = {
    "x": FloatDistribution(-5, 5), "n": IntDistribution(1, 64, log=True), "kind": CategoricalDistribution(["a", "b"]),
}  # fmt: skip
SMALL: dict[str, BaseDistribution] = {"a": IntDistribution(0, 4), "b": CategoricalDistribution([None, True, "c"])}


def study_of(seed=0, direction="minimize", **kwargs):
    return optuna.create_study(sampler=XGBoostSampler(seed=seed, **kwargs), direction=direction)


def value_of(params):
    return (params["x"] - 2) ** 2 + abs(math.log2(params["n"]) - 3) + (params["kind"] == "a")


@pytest.mark.parametrize(("direction", "sign"), [("minimize", 1), ("maximize", -1)])
def test_it_finds_the_best_of_a_mixed_space_in_both_directions(direction, sign):
    study = study_of(direction=direction)
    for _ in range(25):
        trial = study.ask(SPACE)
        study.tell(trial, sign * value_of(trial.params))
    assert sign * study.best_value < 0.3
    assert study.best_params["kind"] == "b"


def test_the_same_seed_gives_the_same_trials_and_another_one_others():
    def first(seed):
        study = study_of(seed)
        for _ in range(12):
            trial = study.ask(SPACE)
            study.tell(trial, value_of(trial.params))
        return [t.params for t in study.trials]

    assert first(1) == first(1)
    assert first(1) != first(2)


def test_no_point_of_a_small_space_is_tried_twice_while_others_are_left():
    study = study_of(direction="maximize")
    for number in range(15):
        trial = study.ask(SMALL)
        if number % 5 == 4:
            study.tell(trial, state=TrialState.FAIL)
        else:
            study.tell(trial, trial.params["a"])
    # the first trial is chosen one parameter at a time, before there is a space
    assert len({tuple(t.params.values()) for t in study.trials}) == 15
    study.tell(study.ask(SMALL), 1.0)


def test_trials_that_run_keep_others_from_their_points():
    study = study_of(n_startup_trials=4)
    for _ in range(6):
        trial = study.ask(SPACE)
        study.tell(trial, value_of(trial.params))
    at_once = [study.ask(SPACE).params for _ in range(4)]
    assert len({(p["x"], p["n"], p["kind"]) for p in at_once}) == 4
    places = np.array([[p["x"] / 10, math.log2(p["n"]) / 6, p["kind"] == "a"] for p in at_once], dtype=float)
    apart = [np.abs(one - other).sum() for i, one in enumerate(places) for other in places[:i]]
    assert min(apart) > 0.01


def test_what_a_thread_was_given_is_known_before_it_has_suggested_it():
    study = study_of(n_startup_trials=2)
    for _ in range(3):
        study.tell(study.ask(SMALL), 1.0)
    trials = [study.ask() for _ in range(8)]  # they have suggested nothing yet
    chosen = [(t.suggest_int("a", 0, 4), t.suggest_categorical("b", [None, True, "c"])) for t in trials]
    assert len(set(chosen)) == 8


def test_threads_may_share_it():
    study = study_of()
    study.optimize(lambda t: value_of({name: _suggested(t, name) for name in SPACE}), n_trials=16, n_jobs=4)
    assert len(study.trials) == 16
    assert threading.active_count() >= 1


def _suggested(trial, name):
    match SPACE[name]:
        case FloatDistribution(low=low, high=high):
            return trial.suggest_float(name, low, high)
        case IntDistribution(low=low, high=high):
            return trial.suggest_int(name, low, high, log=True)
        case CategoricalDistribution(choices=choices):
            return trial.suggest_categorical(name, choices)


def tell_infeasible(study, trial):
    trial.set_constraint("fits", 1.0)
    study.tell(trial, state=TrialState.PRUNED)


def tell_failed(study, trial):
    study.tell(trial, state=TrialState.FAIL)


def tell_pruned(study, trial):
    study.tell(trial, state=TrialState.PRUNED)


@pytest.mark.parametrize("tell", [tell_infeasible, tell_failed, tell_pruned])
def test_it_learns_where_trials_come_to_nothing(tell):
    """Nothing with x above 1 comes to anything, which is 40 % of the space."""
    study = study_of(direction="maximize")
    lost = []
    for number in range(30):
        trial = study.ask({"x": FloatDistribution(-5, 5), "y": FloatDistribution(0, 1)})
        if trial.params["x"] > 1:
            tell(study, trial)
            lost += [number]
        else:
            study.tell(trial, -abs(trial.params["x"] + 2))
    assert study.best_value > -0.2
    assert len([number for number in lost if number >= 10]) <= 4


def test_a_violated_constraint_is_learnt_from_its_size():
    study = study_of(direction="maximize")
    for _ in range(20):
        trial = study.ask({"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)})
        used = trial.params["x"] + trial.params["y"]
        trial.set_constraint("memory", used - 1.0)
        study.tell(trial, trial.params["x"] + 2 * trial.params["y"])
    assert study.best_value > 1.85  # at (0, 1) it is 2


def test_a_failure_is_never_given_a_value():
    from dsopt.optuna.evidence import evidence

    space = {"x": FloatDistribution(0, 1)}

    def of(state, x, **kwargs):
        return create_trial(params={"x": x}, distributions=space, state=state, **kwargs)

    trials = [
        of(TrialState.COMPLETE, 0.1, value=1.0),
        of(TrialState.COMPLETE, 0.2, value=3.0, constraints={"fits": -1.0}),
        of(TrialState.FAIL, 0.3),
        of(TrialState.PRUNED, 0.4),
        of(TrialState.PRUNED, 0.5, constraints={"fits": 2.0}),
        of(TrialState.PRUNED, 0.6, intermediate_values={0: 9.0, 3: 1.5}),
        of(TrialState.PRUNED, 0.7, intermediate_values={0: 9.0, 3: 7.5}),
        of(TrialState.COMPLETE, 0.8, value=math.inf),
    ]
    known = evidence(SearchSpace.of(space), trials, [(0.9,)], maximize=True)
    assert known.scored[:, 0].tolist() == [0.1, 0.2, 0.6, 0.7, 0.8]
    assert known.scores[:4].tolist() == [1.0, 3.0, 1.5, 3.0]  # no better than the median of those that completed
    assert np.isfinite(known.scores).all()
    assert known.ended[known.failed][:, 0].tolist() == [0.3, 0.4]
    assert (known.judged[:, 0].tolist(), (known.violations > 0).tolist()) == (
        [0.1, 0.2, 0.5, 0.8], [False, False, True, False],
    )  # fmt: skip
    assert len(known.tried) == 9


def test_a_parameter_that_only_some_trials_have_is_learnt_given_the_others():
    def objective(trial):
        if trial.suggest_categorical("kind", ["flat", "deep"]) == "flat":
            return 6.0
        return abs(trial.suggest_float("depth", 0, 10) - 7)

    study = study_of(n_startup_trials=6)
    study.optimize(objective, n_trials=40)
    assert study.best_value < 0.2


def test_a_pickled_sampler_goes_on_as_the_original():
    study = study_of()
    for _ in range(9):
        trial = study.ask(SPACE)
        study.tell(trial, value_of(trial.params))
    copy = pickle.loads(pickle.dumps(study.sampler))
    asked = study.ask(SPACE)
    study.tell(asked, state=TrialState.FAIL)
    again = copy.sample_relative(_without_last(study), asked, dict(sorted(SPACE.items())))
    assert again == asked.params


def _without_last(study):
    other = optuna.create_study()
    other.add_trials(study.trials[:-1])
    return other


@pytest.mark.parametrize(
    "distribution",
    [
        FloatDistribution(-1, 1),
        FloatDistribution(1e-7, 10, log=True),
        FloatDistribution(-10.2, 10.2, step=0.1),
        IntDistribution(-10, 11, step=3),
        IntDistribution(1, 1000, log=True),
        CategoricalDistribution(["a", None, 3]),
        FloatDistribution(2, 2),
        IntDistribution(4, 4, log=True),
    ],
)
def test_places_and_values_stand_for_each_other(distribution):
    space = SearchSpace.of({"x": distribution})
    places = np.linspace(0, 1, 53)[:, None]
    values = space.values(places)
    assert all(space.row(space.params(row)) == pytest.approx(tuple(row)) for row in values)
    assert np.allclose(space.values(space.places(values)), values)
    features = space.features(values)
    assert features.shape == (53, len(space.groups))
    assert ((features >= 0) & (features <= 1)).all()
    if math.isfinite(space.size):
        everything = space.all_values()
        assert len(everything) == space.size
        assert set(np.round(values[:, 0], 6)) <= set(np.round(everything[:, 0], 6))


def test_one_start_trial_is_the_least():
    with pytest.raises(ValueError, match="at least 1"):
        XGBoostSampler(n_startup_trials=0)
