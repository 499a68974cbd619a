"""Figures from elsewhere: they steer the search with what they have in common taken out, and decide nothing alone."""

import math

import numpy as np
import pytest

from dsopt.report.failures import has_alternatives
from dsopt.report.named import crashed
from dsopt.report.nodes import slow_nodes
from dsopt.report.stage_rows import stage_row, stages_table
from dsopt.search.believed import Believed
from dsopt.search.history import BASELINE, Observation
from dsopt.search.joint import joint_step
from dsopt.search.standing import compare
from dsopt.search.unconfirmed import unconfirmed
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from tests.machines import Machine
from tests.made_up import GIB, confirming, facts, observation, spec

SIZES = (1, 2, 4, 8, 16)
STAGES = (0, 1, 2)
STUDY = spec({"train_micro_batch_size_per_gpu": list(SIZES), "zero_optimization": {"stage": list(STAGES)}})
EVERYTHING = [Candidate(stage=stage, micro_batch=size, gas=1) for stage in STAGES for size in SIZES]
BEST = "z1_gas1_tmbspg16"


def speed(candidate: Candidate | None) -> float:
    stage, size = (0, 1) if candidate is None else (candidate.stage, candidate.micro_batch)
    return 2 * size / ((0.03 + 0.01 * size) * (1.05, 1.0, 1.1)[stage])


class Here(Machine):
    """A machine on which launches differ by half a per cent; `broken` fail on it."""

    def __init__(self, study: StudySpec = STUDY, broken: tuple[str, ...] = ()) -> None:
        random = np.random.default_rng(0)

        def truth(candidate: Candidate | None) -> float | str:
            if candidate is not None and candidate.name in broken:
                return "crash"
            return speed(candidate) * math.exp(0.005 * random.standard_normal())

        super().__init__(study, truth, ran_on=("here",), half_width=0.01, seconds=60.0)

    def take(self, seen: Observation) -> None:
        if seen.candidate is None:
            self.reference.append(seen)
        else:
            self.stages[seen.candidate.stage].append(seen)

    @property
    def ran(self) -> list[str]:
        """Names of what ran here, in the search or again."""
        return [o.name for o in self.history.everything if o.is_spent]


def imported(candidate: Candidate, times: float) -> Observation:
    return observation(candidate, speed(candidate) * times, imported=f"results/{candidate.name}", order=-1.0)


def taken_over(candidate: Candidate | None, times: float) -> Observation:
    ran = candidate or Candidate(stage=0, micro_batch=1, gas=1)
    known = facts(zero_stage=ran.stage, micro_batch=ran.micro_batch, activation_bytes=ran.micro_batch * GIB // 64)
    return observation(
        candidate, speed(candidate) * times, taken_over="old", ran_on=("here",), facts=known, order=-1.0,
        half_width=0.01, seconds=60.0,
    )  # fmt: skip


@pytest.mark.parametrize("times", [0.7, 1.0, 1.2, 1.5])
def test_the_best_that_was_imported_is_measured_before_anything_is_called_the_fastest(times: float) -> None:
    """All of the space was imported, and the user asks for no rounds."""
    machine = Here()
    for candidate in EVERYTHING:
        machine.take(imported(candidate, times))
    machine.run()
    result = compare(STUDY, machine.history)
    assert result is not None and result.best == BEST
    assert result.value == pytest.approx(speed(Candidate(stage=1, micro_batch=16, gas=1)), rel=0.02)
    assert len(machine.ran) <= 7


def test_figures_that_are_too_good_make_a_study_no_dearer() -> None:
    """Half of the space was imported: without what the figures have in common, all that is left looks better."""
    alone, machine = Here().run(), Here()
    for candidate in EVERYTHING:
        if candidate.micro_batch <= 4:
            machine.take(imported(candidate, 1.4))
    machine.run()
    result = compare(STUDY, machine.history)
    assert result is not None and result.best == BEST
    assert len(machine.ran) <= len(alone.ran) + 2
    [told] = slow_nodes(STUDY, machine.history)
    assert told.startswith("The figures imported from results are about ") and "% better than the same" in told


def test_an_imported_figure_of_the_users_own_configuration_tells_how_good_the_others_are() -> None:
    machine = Here()
    for candidate in EVERYTHING[:2]:
        machine.take(imported(candidate, 1.3))
    machine.reference.append(machine.observe(BASELINE, 0, None, "range"))
    known = machine.history.facts
    assert known is not None
    [effect] = Believed(STUDY, known, machine.history).elsewhere.values()
    assert effect.mean == pytest.approx(math.log(1.3), abs=0.08) and math.sqrt(effect.variance) < 0.12


def test_what_was_imported_and_fails_here_leaves_the_result_as_it_is() -> None:
    machine = Here(broken=(BEST, "z0_gas1_tmbspg16"))
    for candidate in EVERYTHING:
        machine.take(imported(candidate, 1.2))
    machine.run()
    assert unconfirmed(machine.history) is None
    result = compare(STUDY, machine.history)
    assert result is not None and result.best == "z2_gas1_tmbspg16"
    rows = [stage_row(STUDY, stage, machine.history) for stage in STAGES]
    assert not {row.best_exp_name for row in rows} & {BEST, "z0_gas1_tmbspg16"}
    *_, last = stages_table(rows, maximize=True).splitlines()
    assert "z2_gas1_tmbspg16" in last and "imported" not in last


def test_what_crashes_here_alike_rules_out_what_else_was_imported() -> None:
    machine = Here(broken=tuple(candidate.name for candidate in EVERYTHING))
    for candidate in EVERYTHING:
        machine.take(imported(candidate, 1.2))
    machine.run()
    assert len([name for name in machine.ran if name != BASELINE]) <= 8
    result = compare(STUDY, machine.history)
    assert result is not None and result.best == BASELINE
    assert not has_alternatives(STUDY, machine.history)  # nothing can be said of what nobody measured here
    assert len(crashed(machine.history)) == len(machine.ran) - machine.ran.count(BASELINE)


def test_a_first_run_here_confirms_nothing_that_was_found_before() -> None:
    """Three that were best failed when they ran again, and something else that was imported ran once."""
    machine = Here()
    machine.reference.append(machine.observe(BASELINE, 0, None, "range"))
    for candidate in EVERYTHING[7:10]:
        machine.take(machine.observe(candidate.name, 0, candidate, "range"))
    machine.take(imported(EVERYTHING[0], 1.2))
    machine.reference.append(machine.observe(EVERYTHING[0].name, 1, EVERYTHING[0], "range"))
    machine.truth = lambda candidate: "crash"
    machine.reference += [machine.observe(one.name, 1, one, "range") for one in EVERYTHING[7:10]]
    assert unconfirmed(machine.history) is not None


@pytest.mark.parametrize("has_own", [False, True])
@pytest.mark.parametrize("times", [0.65, 1.0, 1.5])
def test_what_was_taken_over_from_a_faster_or_slower_machine_is_compared_as_it_would_run_here(
    times: float, has_own: bool
) -> None:
    machine = Here()
    for candidate in [None, *EVERYTHING[::2]] if has_own else EVERYTHING[::2]:
        machine.take(taken_over(candidate, times))
    machine.run()
    result = compare(STUDY, machine.history)
    assert result is not None
    true = {candidate.name: speed(candidate) for candidate in EVERYTHING} | {BASELINE: speed(None)}
    assert true[result.best] >= 0.97 * true[BEST]
    assert result.interval is not None
    assert result.interval[0] <= true[result.best] / true[BASELINE] <= result.interval[1]
    assert len(machine.ran) <= 8


def test_the_best_from_elsewhere_runs_here_though_its_figure_looks_slower() -> None:
    """All but the user's own was taken over, from a machine of which nothing here tells how fast it was."""
    machine = Here()
    for candidate in EVERYTHING[1:3]:
        machine.take(taken_over(candidate, 0.4))
    for stage in STAGES:
        machine.verdicts[stage] = "explored"
    machine.run()
    assert machine.ran.count("z0_gas1_tmbspg4") >= 1
    result = compare(STUDY, machine.history)
    assert result is not None and result.best == "z0_gas1_tmbspg4"


def test_patience_counts_what_was_imported_by_what_it_would_be_here() -> None:
    """Two runs here were better than all before them; by the figures of another tuner, neither was."""
    study = spec({"train_micro_batch_size_per_gpu": list(SIZES)}, tuner_early_stopping=2)
    machine = Here(study)
    machine.reference.append(machine.observe(BASELINE, 0, None, "range"))
    for size in (1, 2, 4):
        machine.take(imported(Candidate(stage=0, micro_batch=size, gas=1), 2.0))
    for size in (8, 16):
        candidate = Candidate(stage=0, micro_batch=size, gas=1)
        machine.take(machine.observe(candidate.name, 0, candidate, "range"))
    known = machine.history.facts_for(study)
    assert known is not None
    step = joint_step(study, machine.history, known, lambda candidate: False)
    assert "without a better one" not in str(step)


@pytest.mark.parametrize(
    "broken", [(BEST, "z1_gas1_tmbspg8", "z0_gas1_tmbspg16"), tuple(c.name for c in EVERYTHING[:5])]
)
def test_crashes_of_some_leave_the_others_that_were_imported(broken: tuple[str, ...]) -> None:
    """After three of them the user's own was called the fastest."""
    machine = Here(broken=broken)
    for candidate in EVERYTHING:
        machine.take(imported(candidate, 1.25))
    machine.run()
    result = compare(STUDY, machine.history)
    true = {candidate.name: speed(candidate) for candidate in EVERYTHING if candidate.name not in broken}
    assert result is not None and true[result.best] == max(true.values())


def test_where_the_users_own_does_not_run_what_was_imported_does() -> None:
    """`model_info` replaces a profile, and there is nothing but what was imported."""
    info = {"num_params": GIB // 16, "activation_mem_per_gpu": GIB // 64}
    content = STUDY.model_dump(exclude_unset=True)
    study = StudySpec.model_validate({**content, "autotuning": {"model_info": info}, "memory_per_device": "16GiB"})
    machine = Here(study)
    truth = machine.truth
    machine.truth = lambda candidate: "oom" if candidate is None else truth(candidate)
    for candidate in EVERYTHING:
        machine.take(imported(candidate, 1.2))
    machine.run()
    assert machine.message == ""
    result = compare(study, machine.history)
    assert result is not None and result.best == BEST


def test_rounds_are_of_all_that_may_be_best_of_what_was_imported() -> None:
    """The one with the best figure elsewhere is not the best here."""
    study = confirming(STUDY, finalists=2, rounds=2)
    machine = Here(study)
    for candidate in EVERYTHING:
        machine.take(imported(candidate, 1.4 if candidate.name == "z2_gas1_tmbspg8" else 1.1))
    machine.run()
    result = compare(study, machine.history)
    assert result is not None and result.best == BEST
    assert machine.ran.count(BEST) == 2 and machine.ran.count(BASELINE) == 2  # each in a round, beside the other


@pytest.mark.parametrize("rounds", [None, {"finalists": 1, "rounds": 2}])
def test_what_was_taken_over_and_crashes_here_is_never_the_result(rounds: dict | None) -> None:
    """The rounds made another one the best that had never run here, and would not."""
    study = STUDY if rounds is None else confirming(STUDY, **rounds)
    machine = Here(study, broken=("z0_gas1_tmbspg16", "z2_gas1_tmbspg16"))
    truth = machine.truth
    machine.truth = lambda c: 0.75 * truth(c) if c is not None and c.name == BEST else truth(c)  # type: ignore[operator]
    for candidate in [None, *EVERYTHING]:
        if candidate is None or candidate.micro_batch == 16:
            machine.take(taken_over(candidate, 1.3))
    for stage in STAGES:
        machine.verdicts[stage] = "explored"
    machine.run()
    result = compare(study, machine.history)
    assert result is not None and result.best == BEST
    assert result.speedup == pytest.approx(0.75 * speed(EVERYTHING[9]) / speed(None), rel=0.03)


def test_stages_stay_open_until_figures_from_elsewhere_can_be_compared() -> None:
    """Taken over at two thirds of their speed here, they made the first run here look best, and its stage with it."""
    machine = Here()
    machine.take(taken_over(None, 0.65))
    for candidate in (EVERYTHING[1], EVERYTHING[3]):
        machine.take(taken_over(candidate, 0.65))
    machine.run()
    result = compare(STUDY, machine.history)
    assert result is not None and result.best == BEST


def test_what_was_imported_ran_here_and_then_failed_is_not_confirmed() -> None:
    machine = Here()
    machine.reference.append(machine.observe(BASELINE, 0, None, "range"))
    best = EVERYTHING[9]
    machine.take(imported(best, 1.2))
    machine.reference.append(machine.observe(best.name, 1, best, "range"))
    machine.truth = lambda candidate: "crash"
    machine.reference.append(machine.observe(best.name, 2, best, "range"))
    assert unconfirmed(machine.history) is not None


def test_the_users_own_runs_no_more_after_three_further_failures() -> None:
    machine = Here()
    truth, seen = machine.truth, []

    def failing(candidate: Candidate | None) -> float | str:
        seen.append(candidate)
        if candidate is None:
            return "oom" if seen.count(None) > 1 else 200.0
        return 200.0 * float(truth(candidate)) / speed(candidate)  # all alike, so that another run is worth much

    machine.truth = failing
    machine.run()
    assert seen.count(None) <= 4
    assert unconfirmed(machine.history) is not None
