"""A result whose figures are of one engine among several says so."""

from dataclasses import replace

from dsopt.report.unlike_runs import unlike_runs
from tests.made_up import facts, history, observation
from tests.search.test_joint import at, spec


def test_figures_of_the_first_engine_of_several_come_with_a_warning() -> None:
    """An actor and a critic: the critic alone gave 6.94 times, both together 4."""
    baseline, run = facts(), observation(at(1, 8), 2.0, facts=facts())
    assert unlike_runs(spec(), history(run, baseline=baseline)) == []
    two = replace(run, facts=replace(facts(), engines=2))
    [warning] = unlike_runs(spec(), history(two, baseline=baseline))
    assert warning.startswith(
        "WARNING: your script trains with 2 engines of DeepSpeed, and all figures are of the first"
    )
