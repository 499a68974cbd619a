"""Figures from elsewhere: they steer the search with what they have in common taken out, and decide nothing alone."""

import math

import numpy as np
import pytest

from dsopt.report.nodes import slow_nodes
from dsopt.search.believed import Believed
from dsopt.search.history import BASELINE, Observation
from dsopt.search.joint import joint_step
from dsopt.search.standing import compare
from dsopt.search.unconfirmed import unconfirmed
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from tests.machines import Machine
from tests.made_up import GIB, facts, observation, spec

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


def test_after_three_failures_nothing_else_that_was_imported_runs() -> None:
    machine = Here(broken=tuple(candidate.name for candidate in EVERYTHING))
    for candidate in EVERYTHING:
        machine.take(imported(candidate, 1.2))
    machine.run()
    assert len([name for name in machine.ran if name != BASELINE]) == 3
    result = compare(STUDY, machine.history)
    assert result is not None and result.best == BASELINE


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
