"""Records, rows, figures and tables of the benchmarks, on made-up results."""

import math

import pytest

from benchmarks.search.figures import by_case, figures, geometric_mean
from benchmarks.search.records import Record, Tried
from benchmarks.search.results import Row
from benchmarks.search.tables import figure_table, tuner_table


def config(micro_batch: int) -> dict:
    return {"train_micro_batch_size_per_gpu": micro_batch}


def tried(micro_batch: int, value: float | None, phase="search", true=None) -> Tried:
    return Tried(
        config=config(micro_batch),
        phase=phase,
        outcome="oom" if value is None else "measured",
        value=value,
        cluster_seconds=10.0,
        true_throughput=value if true is None else true,
    )


def record(*runs: Tried, choice: int) -> Record:
    return Record(
        case="c", tuner="t", tried=runs, choice=config(choice), choice_true_throughput=9.0, baseline_true_throughput=4.0
    )


def row(case: str, tuner: str, **changes: object) -> Row:
    values = {
        "cases": "published", "noise": 0.02, "is_fast": True, "case": case, "tuner": tuner, "seed": 0, "choice": "z0",
        "launches": 10, "experiments": 8, "experiments_to_choice": 6, "ooms": 0, "cluster_seconds": 100.0, "share": 1.0,
        "baseline_share": 0.5, "shares": (0.5, 0.98), "seconds": (50.0, 100.0), "exceeds_batch": False, "error": None,
        "interval_holds": None, "memory_errors": (), "optimum_ruled_out": False,
    }  # fmt: skip
    return Row(**{**values, **changes})


def test_experiments_leave_baseline_and_confirmation_out():
    made = record(
        tried(1, 4.0, "baseline"), tried(2, 6.0), tried(8, None), tried(4, 9.0), tried(4, 9.1, "confirm"), choice=4
    )
    assert (made.launches, made.experiments, made.experiments_to_choice, made.ooms) == (5, 3, 3, 1)
    never = record(tried(2, 6.0), tried(3, 7.0), choice=4)
    assert never.experiments_to_choice == never.experiments == 2


def test_best_so_far_follows_the_tuners_own_figures_and_shows_the_truth():
    made = record(tried(8, None), tried(2, 6.0, true=5.0), tried(3, 5.9, true=7.0), tried(4, 9.0), choice=4)
    assert list(made.best_so_far()) == [(10.0, 4.0), (20.0, 5.0), (30.0, 5.0), (40.0, 9.0)]


def test_figures_are_ratios_of_sums_over_cases():
    rows = [
        row("a", "dsopt", experiments_to_choice=3, launches=6, cluster_seconds=30.0, share=0.99, ooms=1),
        row("a", "deepspeed", experiments_to_choice=9, launches=10, share=0.9),
        row("b", "dsopt", experiments_to_choice=1, launches=4, cluster_seconds=50.0, share=0.98),
        row("b", "deepspeed", experiments_to_choice=11, launches=15, share=1.2, exceeds_batch=True),
    ]
    found = {figure.name: figure for figure in figures(rows)}
    values = {name: figure.value for name, figure in found.items()}
    assert values["experiments until the choice was measured ÷ all of DeepSpeed's"] == pytest.approx(4 / 25)
    assert values["all launches ÷ all of DeepSpeed's"] == pytest.approx(10 / 25)
    assert values["cluster time to the answer ÷ DeepSpeed's"] == pytest.approx(0.4)
    assert values["choice ÷ oracle, geometric mean"] == pytest.approx(math.sqrt(0.99 * 0.98))
    assert values["choice ÷ oracle, worst"] == 0.98
    # a choice over the batch limit cannot be trained with, and leaves the baseline
    assert values["choice ÷ DeepSpeed's choice, worst"] == pytest.approx(0.99 / 0.9)
    assert values["launches out of memory a study"] == pytest.approx(0.5)
    # the first is as good as 0.9 after 100 s; the second has to be as good as 0.5, the user's own
    reaching = "time until the best so far is as good as DeepSpeed's choice ÷ DeepSpeed's time"
    assert values[reaching] == pytest.approx((100.0 + 50.0) / 200)
    cluster = found["cluster time to the answer ÷ DeepSpeed's"]
    assert (cluster.low, cluster.high, cluster.is_met) == (pytest.approx(0.3), pytest.approx(0.5), False)
    assert not found["launches out of memory a study"].is_met
    assert "stated 95 % intervals that hold" not in found


def test_goals_depend_on_the_noise():
    met = {}
    for noise in (0.02, 0.10):
        rows = [row("a", "dsopt", share=0.991, noise=noise), row("a", "deepspeed", noise=noise)]
        met[noise] = {figure.name: figure.is_met for figure in figures(rows)}
    assert not met[0.02]["choice ÷ oracle, geometric mean"]
    assert met[0.10]["choice ÷ oracle, geometric mean"]


def test_statements_of_a_tuner_are_figures_where_it_makes_them():
    rows = [row(case, "dsopt", interval_holds=True, memory_errors=(0.04, -0.02)) for case in "abcd"]
    rows += [row(case, "deepspeed") for case in "abcd"]
    found = {figure.name: figure.value for figure in figures(rows)}
    assert found["stated 95 % intervals that hold"] == 1.0
    assert found["mean error of predicted peak memory after three launches"] == pytest.approx(0.03)


def test_what_would_be_chosen_after_some_launches():
    one = row("a", "t", launches=3, shares=(None, 0.7, 0.9))
    assert [one.share_after(number) for number in (1, 2, 3, 10)] == [0.0, 0.7, 0.9, 0.9]


def test_tables_show_each_tuner_and_figure_once():
    rows = [row(case, tuner) for case in "ab" for tuner in ("dsopt", "deepspeed")]
    assert len(by_case(rows)) == 2
    assert len(tuner_table(rows).splitlines()) == 4
    assert "≤ 0.33" in figure_table(figures(rows))


def test_a_mean_over_a_case_without_a_running_choice_is_nothing():
    assert geometric_mean([0.5, 0.0]) == 0.0
