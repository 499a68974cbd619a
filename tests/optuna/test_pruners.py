"""The pruners: tables of what is known and asked, and what Optuna demands of every pruner."""

import pickle

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from dsopt.optuna import MemoryPruner, PatiencePruner

GIB = 2**30
SPACE = {
    "batch": IntDistribution(1, 1024),
    "length": IntDistribution(1, 8192),
    "offload": CategoricalDistribution([False, True]),
}


def known(batch, peak=None, *, length=128, offload=False, state=TrialState.COMPLETE, violated=None):
    """A trial that has ended: `peak` in GiB; `violated`: name of a constraint."""
    return create_trial(
        params={"batch": batch, "length": length, "offload": offload},
        distributions=SPACE,
        state=state,
        value=1.0 if state == TrialState.COMPLETE else None,
        user_attrs={} if peak is None else {"peak_memory_bytes": int(peak * GIB)},
        constraints={} if violated is None else {violated: 1.0},
    )


def oom(batch, **kwargs):
    return known(batch, state=TrialState.PRUNED, violated="fits", **kwargs)


def refused(pruner, trials, params):
    study = optuna.create_study(pruner=pruner)
    study.add_trials(trials)
    study.enqueue_trial(params)
    trial = study.ask(SPACE)
    assert trial.params == params
    return trial.should_prune()


def asked(batch, length=128, offload=False):
    return {"batch": batch, "length": length, "offload": offload}


@pytest.mark.parametrize(
    ("trials", "params", "expected"),
    [
        ([], asked(64), False),
        ([oom(32)], asked(32), True),
        ([oom(32)], asked(64), True),
        ([oom(32)], asked(31), False),
        ([oom(32)], asked(64, length=64), False),  # smaller in another size
        ([oom(32)], asked(32, length=256), True),
        ([oom(32)], asked(64, offload=True), False),  # with another setting
        ([known(32, state=TrialState.FAIL)], asked(64), False),  # for whatever reason
        ([known(32, state=TrialState.PRUNED)], asked(64), False),
        ([known(8, 4.0), known(16, 8.0)], asked(64), True),  # the line is at 32 GiB
        ([known(8, 4.0), known(16, 8.0)], asked(32), False),  # 16 GiB: at the limit, not clearly above
        ([known(8, 4.0)], asked(64), False),  # one point has no line
        ([known(8, 4.0), known(8, 4.1)], asked(64), False),
        ([known(8, 8.0), known(16, 4.0)], asked(64), False),  # a line that falls tells nothing
        ([known(8, 17.0)], asked(8), True),
        ([known(8, 2.0, length=64), known(8, 4.0, length=128), known(4, 2.0)], asked(32, length=256), True),
        ([known(8, 4.0, offload=True), known(16, 8.0, offload=True)], asked(64), False),
    ],
)
def test_memory(trials, params, expected):
    pruner = MemoryPruner(["batch", "length"], limit_bytes=16 * GIB)
    assert refused(pruner, trials, params) is expected


def test_without_a_limit_only_what_ran_out_of_memory_tells():
    assert not refused(MemoryPruner(["batch"]), [known(8, 40.0), known(16, 80.0)], asked(64))
    assert refused(MemoryPruner(["batch"]), [oom(8)], asked(64))


def test_a_named_constraint_is_the_only_one_that_tells():
    slow = known(8, violated="slow")
    assert refused(MemoryPruner(["batch"]), [slow], asked(64))
    assert not refused(MemoryPruner(["batch"], constraint="fits"), [slow], asked(64))
    assert refused(MemoryPruner(["batch"], constraint="fits"), [oom(8)], asked(64))


def test_a_model_of_ones_own_is_asked_as_well():
    class AtMost:
        def fits(self, params):
            return params["batch"] <= 100

    assert refused(MemoryPruner(model=AtMost()), [], asked(101))
    assert not refused(MemoryPruner(model=AtMost()), [oom(8)], asked(100))
    assert refused(MemoryPruner(["batch"], model=AtMost()), [oom(8)], asked(100))


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: MemoryPruner(), "names of parameters"),
        (lambda: MemoryPruner(["batch"], limit_bytes=0), "above 0"),
        (lambda: PatiencePruner(0), "at least 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(build, told):
    with pytest.raises(ValueError, match=told):
        build()


def test_a_size_that_is_no_number_is_refused_by_name():
    with pytest.raises(ValueError, match="'offload' is False"):
        refused(MemoryPruner(["offload"]), [oom(8)], asked(8))


def test_a_peak_that_is_no_number_is_refused_by_name():
    text = known(4, 1.0)
    text.set_user_attr("peak_memory_bytes", "4 GiB")
    with pytest.raises(ValueError, match="trial 0 has '4 GiB' as 'peak_memory_bytes'"):
        refused(MemoryPruner(["batch"], limit_bytes=16 * GIB), [text], asked(8))


def ended(value=None, state=TrialState.COMPLETE, **kwargs):
    return create_trial(state=state, value=value, **kwargs)


def spent(results, direction="minimize", **kwargs):
    """The largest patience that these trials have spent."""
    study = optuna.create_study(direction=direction)
    study.add_trials(results)
    trial = study.ask()
    frozen = study.get_trials(deepcopy=False)[trial.number]
    return max((n for n in range(1, 20) if PatiencePruner(n, **kwargs).prune(study, frozen)), default=0)


FAILED = ended(state=TrialState.FAIL)
NOT_RUN = ended(state=TrialState.PRUNED)
OUT_OF_MEMORY = ended(state=TrialState.PRUNED, constraints={"fits": 1.0})
STOPPED = ended(state=TrialState.PRUNED, intermediate_values={0: 0.1})


@pytest.mark.parametrize(
    ("results", "direction", "expected"),
    [
        ([], "minimize", 0),
        ([ended(3.0), ended(2.0), ended(2.0), ended(5.0)], "minimize", 2),
        ([ended(3.0), ended(2.0), ended(2.0), ended(5.0)], "maximize", 0),
        ([ended(3.0), FAILED, OUT_OF_MEMORY, STOPPED, NOT_RUN], "minimize", 3),
        ([FAILED, FAILED], "minimize", 2),
        ([ended(3.0), ended(1.0, constraints={"fits": 0.5}), ended(2.0)], "minimize", 0),
        ([ended(3.0), ended(1.0, constraints={"fits": 0.5})], "minimize", 1),
        ([ended(3.0), ended(1.0, constraints={"fits": -0.5}), ended(2.0)], "minimize", 1),
    ],
)
def test_patience(results, direction, expected):
    assert spent(results, direction) == expected


def test_who_counts_can_be_said_and_the_others_may_still_be_the_best():
    results = [ended(3.0), ended(9.0), ended(1.0, user_attrs={"imported": True}), ended(2.0), ended(8.0)]
    assert spent(results, counts=lambda trial: "imported" not in trial.user_attrs) == 2
    assert spent(results[:2], counts=lambda trial: False) == 0


@pytest.mark.parametrize("build", [lambda: MemoryPruner(["batch"], limit_bytes=GIB), lambda: PatiencePruner(2)])
class TestEveryPruner:
    """What Optuna's own tests ask of pruners; it has no test case to inherit for them."""

    @pytest.mark.parametrize("direction", ["minimize", "maximize"])
    def test_the_first_trial_is_not_pruned(self, build, direction):
        study = optuna.create_study(direction=direction, pruner=build())
        trial = study.ask(SPACE)
        assert not trial.should_prune()
        trial.report(1.0, 0)
        assert not trial.should_prune()

    @pytest.mark.parametrize("n_jobs", [1, 4])
    def test_it_works_in_optimize_with_threads_and_a_database(self, build, n_jobs, tmp_path):
        study = optuna.create_study(pruner=build(), storage=f"sqlite:///{tmp_path}/study.db")

        def objective(trial):
            trial.suggest_int("batch", 1, 64)
            if trial.should_prune():
                raise optuna.TrialPruned
            return 1.0

        study.optimize(objective, n_trials=8, n_jobs=n_jobs)
        assert {t.state for t in study.trials} <= {TrialState.COMPLETE, TrialState.PRUNED}

    def test_it_changes_nothing_and_can_be_pickled(self, build):
        study = optuna.create_study(pruner=pickle.loads(pickle.dumps(build())))
        study.add_trials([known(8, 0.5), known(16, 0.6), oom(32)])
        trial = study.ask(SPACE)
        before = study.trials
        assert trial.should_prune() == trial.should_prune()
        assert study.trials == before


def test_patience_refuses_several_objectives():
    study = optuna.create_study(directions=["minimize", "maximize"], pruner=PatiencePruner(1))
    with pytest.raises(ValueError, match="several objectives"):
        study.pruner.prune(study, create_trial(state=TrialState.RUNNING))
