"""A result whose figures are of one engine among several, or of input that was read ahead, says so."""

from dataclasses import replace

from dsopt.report.unlike_runs import unlike_runs
from dsopt.search.run_quality import RunQuality
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


def test_figures_of_input_that_was_read_ahead_come_with_a_warning() -> None:
    """A queue of 64 batches, filled while the script began, and runs of 50 steps: told 5.38 times, real 1.00."""
    run = observation(at(1, 8), 2.0)
    short = replace(run, quality=RunQuality(name="z1_mbs8_gas1", interval_percent=1.0, drifting=False, read_ahead=65))
    [warning] = unlike_runs(spec(), history(short, baseline=facts()))
    assert warning.startswith("WARNING: your script reads its input more slowly than it trains.")
    assert "lasts for up to 65 steps" in warning and "max_steps: 100" in warning
