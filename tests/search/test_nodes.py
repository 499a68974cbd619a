"""What a node adds to the speed of a run is found, told, and taken out of what is compared."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dsopt.report.compare import comparison_table
from dsopt.report.nodes import slow_nodes, slow_nodes_text
from dsopt.search.believed import Believed
from dsopt.search.comparison import comparison_step
from dsopt.search.forecast import Forecast
from dsopt.search.history import BASELINE, History, Observation
from dsopt.search.nodes import Expected, NodeEffect, effect_on, effects_by_runs_alone, node_effects, without
from dsopt.search.repeat import last_step
from dsopt.search.rounds import next_in_rounds
from dsopt.search.speeds import Shown
from dsopt.search.standing import compare, ratio_of
from dsopt.search.steps import Finish, RunReference, Wait
from dsopt.study.compared import ComparedRun
from dsopt.study.launch_noise import UNEXPLAINED, USUAL
from dsopt.study.space import Candidate
from dsopt.study.spec import Confirmation, StudySpec
from dsopt.worker.stakes import stake_of
from tests.made_up import facts, observation, spec

STUDY = spec({"zero_optimization": {"stage": [0, 1, 2]}})
SIZES = (1, 2, 4, 8)


def seconds(stage: int, size: int) -> float:
    return (0.02 + 0.02 * size) * (1.0, 1.03, 1.1)[stage]


def runs(speed_of: dict[str, float], *, noise: float = 0.004) -> History:
    """A baseline and twelve candidates, which go round all nodes in turn."""
    random, nodes = np.random.default_rng(1), list(speed_of)
    seen: list[Observation] = []
    for stage in range(3):
        for size in SIZES:
            node = nodes[(len(seen) + stage) % len(nodes)]  # no node has all runs of a size
            value = 2 * size / seconds(stage, size) * speed_of[node] * math.exp(noise * random.standard_normal())
            seen.append(observation(Candidate(stage=stage, micro_batch=size, gas=1), value, ran_on=(node,)))
    own = facts(zero_stage=0, micro_batch=1)
    value = 2 / seconds(0, 1) * speed_of[nodes[0]]
    baseline = observation(None, value, facts=own, ran_on=(nodes[0],))
    by_stage = {stage: [o for o in seen[1:] if o.candidate and o.candidate.stage == stage] for stage in range(3)}
    return History(reference=[baseline], stages=by_stage)


def effects(study: StudySpec, history: History) -> dict[str, NodeEffect]:
    known = history.facts_for(study)
    assert known is not None
    return Believed(study, known, history).nodes


@pytest.mark.parametrize("slow", ["a", "d"])
def test_a_slow_node_is_found_whether_the_baseline_was_on_it_or_not(slow: str) -> None:
    speed_of = {name: 0.7 if name == slow else 1.0 for name in "abcd"}
    found = effects(STUDY, runs(speed_of))
    behind = {name: found[name].mean - max(effect.mean for effect in found.values()) for name in found}
    assert behind[slow] == pytest.approx(math.log(0.7), abs=0.05)
    assert all(behind[name] > -0.03 for name in behind if name != slow)
    [told] = slow_nodes_text(found)
    assert told.startswith((f"Node {slow} is 3", f"Node {slow} is 2"))


def test_the_result_is_as_without_the_slow_node() -> None:
    even, uneven = (compare(STUDY, runs({**dict.fromkeys("abc", 1.0), "d": speed})) for speed in (1.0, 0.7))
    assert even is not None and uneven is not None
    assert even.best == uneven.best == "z0_gas1_tmbspg8"  # it ran on the slow one
    assert even.speedup is not None and uneven.speedup == pytest.approx(even.speedup, rel=0.04)


def test_nodes_that_differ_by_noise_alone_are_alike() -> None:
    found = effects(STUDY, runs(dict.fromkeys("abcd", 1.0)))
    assert all(abs(effect.mean) < 0.01 for effect in found.values())
    assert slow_nodes_text(found) == []


def test_one_node_has_no_effect() -> None:
    assert effects(STUDY, runs({"a": 1.0})) == {}
    assert slow_nodes_text({}) == []


def shown(name: str, scores: list[float], *ran_on: tuple[str, ...]) -> Shown:
    candidate = Candidate(stage=0, micro_batch=1, gas=1)
    variances = [0.002**2] * len(scores)
    return Shown(name=name, candidate=candidate, scores=scores, variances=variances, ran_on=ran_on, is_own=False,
                 may_win=True)  # fmt: skip


def test_of_a_comparison_runs_of_one_configuration_on_several_nodes_tell() -> None:
    seen = [shown("one", [5.0, 5.01, 4.6], ("a",), ("b",), ("c",)), shown("other", [2.0, 1.6], ("a",), ("c",))]
    found = effects_by_runs_alone(seen, {})
    assert found["c"].mean - found["a"].mean == pytest.approx(-0.4, abs=0.05)


def test_a_run_on_several_nodes_goes_at_the_pace_of_the_slowest() -> None:
    seen = [shown(f"{index}", [5.0, 4.6], ("a", "b"), ("b", "c")) for index in range(3)]
    found = effects_by_runs_alone(seen, {})
    assert found["c"].mean < found["a"].mean - 0.2
    assert effect_on(("a", "c"), found) == found["c"]
    assert effect_on((), found) == effect_on(("unknown",), found) == NodeEffect(mean=0.0, variance=0.0)


def test_one_odd_run_convicts_no_node_and_overturns_no_result() -> None:
    """The baseline and an odd run on one node, three good runs on another that is as fast."""
    own = facts(zero_stage=2, micro_batch=8)
    seen = [
        observation(Candidate(stage=stage, micro_batch=size, gas=1), 2 * size / seconds(stage, size) * share,
                    ran_on=(node,))
        for stage, size, share, node in ((0, 4, 0.65, "b"), (0, 8, 1.0, "a"), (1, 4, 1.0, "a"), (1, 8, 1.0, "a"))
    ]  # fmt: skip
    baseline = observation(None, 16 / seconds(2, 8), facts=own, ran_on=("b",))
    stages = {stage: [o for o in seen if o.candidate and o.candidate.stage == stage] for stage in range(3)}
    history = History(reference=[baseline], stages=stages)
    assert abs(effects(STUDY, history)["b"].mean) < 0.03
    result = compare(STUDY, history)
    assert result is not None and result.best == "z0_gas1_tmbspg8"
    assert result.baseline == pytest.approx(16 / seconds(2, 8), rel=0.05)  # its one run may be of a slow node
    compared = effects_by_runs_alone(
        [shown("x", [5.0, 5.0], ("b",), ("b",)), shown("y", [5.0, 4.6], ("a",), ("b",))], {}
    )
    assert abs(compared["b"].mean) < 0.03


def on_a_measured_node(*shares: float, matmul: float, copies: float = 800.0) -> History:
    """Good runs on three nodes, and some on a fourth, at these shares of the speed that they would have elsewhere."""
    usual = {"matmul_tflops": 400.0, "copy_gb_per_s": 800.0}
    of_node = {**dict.fromkeys("abc", usual), "d": {"matmul_tflops": matmul, "copy_gb_per_s": copies}}
    measured_ones = runs(dict.fromkeys("abc", 1.0))
    there = [
        observation(
            Candidate(stage=1, micro_batch=size, gas=2), 4 * size / (2 * seconds(1, size)) * share, ran_on=("d",)
        )
        for size, share in zip((4, 8, 2), shares, strict=False)
    ]
    stages = {**measured_ones.stages, 1: [*measured_ones.stages[1], *there]}
    with_rates = {stage: [replace(o, node_rates=of_node[o.ran_on[0]]) for o in seen] for stage, seen in stages.items()}
    reference = [replace(o, node_rates=of_node[o.ran_on[0]]) for o in measured_ones.reference]
    return replace(measured_ones, reference=reference, stages=with_rates)


def test_of_a_node_that_was_measured_to_be_slow_the_first_run_tells() -> None:
    assert abs(effects(STUDY, on_a_measured_node(0.7, matmul=400.0))["d"].mean) < 0.05  # one odd run convicts no node
    found = effects(STUDY, on_a_measured_node(0.7, matmul=270.0))["d"]
    assert found.mean == pytest.approx(math.log(0.7), abs=0.1)


def test_a_rate_that_steps_do_not_wait_for_convicts_no_node() -> None:
    found = effects(STUDY, on_a_measured_node(1.0, 1.0, 1.0, matmul=400.0, copies=400.0))["d"]
    assert abs(found.mean) < 0.06
    doubtful = effects(STUDY, on_a_measured_node(1.0, matmul=400.0, copies=400.0))["d"]
    assert doubtful.variance > found.variance


def test_configurations_are_eliminated_without_changing_anything() -> None:
    """As solving for the effects of configurations and nodes together, which takes seconds with a thousand."""
    random = np.random.default_rng(3)
    seen = [
        shown(f"{index}", random.normal(5, 0.01, 2).tolist(), ("ab"[index % 2],), ("abc"[index % 3],))
        for index in range(9)
    ]
    slopes = random.normal(size=(9, 2))
    expected = Expected(mean=np.full(9, 5.0), slopes=slopes, off=np.zeros(2), precision=np.eye(2))
    found = node_effects(seen, expected, {})
    runs_of = [(i, s, one.ran_on[j][0]) for i, one in enumerate(seen) for j, s in enumerate(one.scores)]
    design = np.zeros((len(runs_of), 2 + 9 + 3))
    for row, (which, _, node) in enumerate(runs_of):
        design[row, :2], design[row, 2 + which], design[row, 11 + "abc".index(node)] = slopes[which], 1, 1
    scores = np.array([score for _, score, _ in runs_of]) - 5.0
    noise = 1 / (0.002**2 + USUAL**2)
    effects = np.zeros(3)
    for _ in range(50):
        prior = np.diag([1.0, 1.0, *[(2 * UNEXPLAINED) ** -2.0] * 9, *(3 / (2 * 0.01**2 + effects**2))])
        effects = np.linalg.solve(prior + noise * design.T @ design, noise * design.T @ scores)[11:]
    dense = effects - np.sort(effects)[1]
    assert [found[name].mean for name in "abc"] == pytest.approx(dense.tolist(), abs=1e-4)


def apart(*shared: Observation) -> History:
    """The best ran on one node only, and the user's own configuration on another, 0.7 times as fast."""
    own = facts(zero_stage=0, micro_batch=1)
    baseline = observation(None, 2 / seconds(0, 1) * 0.7, facts=own, ran_on=("n1",))
    seen = [
        observation(Candidate(stage=0, micro_batch=size, gas=1), 2 * size / seconds(0, size), ran_on=("n2",))
        for size in (2, 4, 8)
    ]
    best = replace(seen[-1], round=1, ran_on=("n2",), why="it has run on n2 only")
    reference = [baseline, best, *shared]
    return History(reference=reference, stages={0: seen, 1: [], 2: []})


def test_a_factor_is_told_of_configurations_that_shared_a_node() -> None:
    history = apart()
    known = history.facts_for(STUDY)
    assert known is not None
    step = last_step(STUDY, history, Forecast(STUDY, known, history))
    assert isinstance(step, RunReference)
    assert (step.name, step.on) == ("baseline", ("n2",))
    assert step.left_by(["n1", "n2", "never seen"]) == {"n1", "never seen"}
    assert slow_nodes(STUDY, history)[0].startswith(
        "WARNING: z0_gas1_tmbspg8 ran on n2, and your own configuration on n1"
    )
    missed = apart(replace(history.reference[0], round=1, ran_on=("n3",), why=step.why))  # nobody works on n2 any more
    step = last_step(STUDY, missed, Forecast(STUDY, known, missed))
    assert isinstance(step, RunReference)
    assert (step.name, step.on, step.why) == ("baseline", ["n2"], "it has not run where z0_gas1_tmbspg8 has")
    own = replace(history.reference[0], round=1, value=2 / seconds(0, 1), ran_on=("n2",))
    linked = apart(own)
    result = compare(STUDY, linked)
    assert result is not None and result.speedup == pytest.approx(8 * seconds(0, 1) / seconds(0, 8), rel=0.05)
    assert not any(line.startswith("WARNING") for line in slow_nodes(STUDY, linked))
    step = last_step(STUDY, linked, Forecast(STUDY, known, linked))
    assert isinstance(step, RunReference)
    assert (step.name, step.on, step.why) == (
        "z0_gas1_tmbspg8",
        ["n1"],
        "whether n1 is as fast as others is not clear",
    )
    there = replace(history.stages[0][-1], round=2, value=0.7 * 16 / seconds(0, 8), ran_on=("n1",), why=step.why)
    twice = apart(own, there)
    assert isinstance(last_step(STUDY, twice, Forecast(STUDY, known, twice)), Finish)


def test_rounds_bring_each_configuration_to_each_node() -> None:
    """Else the same node may have the same configuration in every round."""
    of_round = [observation(None, 400.0, ran_on=("n1",)), observation(Candidate(stage=1, micro_batch=4, gas=1), 400.0,
                ran_on=("n2",))]  # fmt: skip
    history = History(reference=[replace(o, round=1) for o in of_round], stages={})
    entries = [(o.name, o.candidate) for o in of_round]
    step = next_in_rounds(history, entries, 2, lambda _, names: names)
    assert isinstance(step, RunReference)
    assert (step.name, step.avoid) == (of_round[1].name, ["n2"])


def test_rounds_end_where_nothing_is_left_of_them() -> None:
    """However many were asked for."""
    asked: list[int] = []

    def none_is_kept(round_: int, _: list[str]) -> list[str]:
        asked.append(round_)
        return []

    history = History(reference=[replace(observation(None, 400.0), round=1)], stages={})
    step = next_in_rounds(history, [(history.reference[0].name, None)], 1000, none_is_kept)
    assert isinstance(step, Finish)
    assert asked == [1]


def compared(*runs: Observation) -> History:
    return History(reference=list(runs), stages={})


def test_a_comparison_of_one_round_brings_what_it_compares_to_one_node() -> None:
    study = STUDY.model_copy(
        update={"compare": [ComparedRun(name=name, command="t.py") for name in ("z1", "z2")],
                "confirmation": Confirmation(rounds=1)}
    )  # fmt: skip
    own = observation(None, 400.0, round=1, ran_on=("n1",), facts=facts())
    z1, z2 = (replace(own, name=name, value=300.0, ran_on=(node,)) for name, node in (("z1", "n2"), ("z2", "n1")))
    step = comparison_step(study, compared(own, z1, z2))
    assert isinstance(step, RunReference)
    assert (step.name, step.round, step.on) == ("z1", 2, ["n1"])
    [warning, *_] = comparison_table(study, compared(own, z1, z2), "running").nodes
    assert warning.startswith("WARNING: z1 ran on n2, and your own configuration on n1: ")
    again = replace(z1, round=2, state="running", value=None, ran_on=(), why=step.why)
    assert isinstance(comparison_step(study, compared(own, z1, z2, again)), Wait)
    linked = compared(own, z1, z2, replace(again, state="measured", value=420.0, ran_on=("n1",)))
    assert isinstance(comparison_step(study, linked), Finish)
    found = ratio_of(study, linked, "z1", BASELINE)
    assert found is not None and found.factor == pytest.approx(1.05, rel=0.02)  # as on the node that both ran on
    assert comparison_table(study, linked, "finished").rows[0].value == pytest.approx(400.0, rel=0.02)
    assert found.interval[0] > 0.85 and found.interval[1] < 1.25
    assert not any(line.startswith("WARNING") for line in comparison_table(study, linked, "finished").nodes)
    failed = replace(again, state="failed", reason="crash")
    assert isinstance(comparison_step(study, compared(own, z1, z2, failed)), Finish)  # it is not launched again
    several = [replace(o, ran_on=(o.ran_on[0], "n9")) for o in (own, z1, z2)]
    assert isinstance(comparison_step(study, compared(*several)), Finish)  # who places runs over nodes chooses these
    one = [replace(own, ran_on=("n1", "n2")), replace(z1, ran_on=("n1",))]
    assert isinstance(comparison_step(study, compared(*one, replace(z2, ran_on=("n1", "n2")))), Finish)
    unlucky = compared(own, replace(own, round=2, state="failed", reason="crash", value=None), z1, z2)
    assert isinstance(comparison_step(study, unlucky), RunReference)  # beside your own run that went well
    missed = [replace(again, state="measured", value=300.0, ran_on=("n2",), round=round_) for round_ in (2, 3, 4)]
    assert isinstance(comparison_step(study, compared(own, z1, z2, *missed)), Finish)  # nobody works on n1 any more


def test_of_many_runs_on_one_node_the_mean_has_its_uncertainty_once() -> None:
    known = {"a": NodeEffect(mean=0.0, variance=0.01**2, runs=8)}
    [one] = without([shown("x", [5.0] * 8, *[("a",)] * 8)], known)
    assert one.mean(0.0)[1] == pytest.approx(0.002**2 / 8 + 0.01**2)


def test_no_run_is_stopped_on_a_node_that_nobody_knows() -> None:
    history = runs(dict.fromkeys("abc", 1.0))
    candidate = Candidate(stage=0, micro_batch=16, gas=1)
    stakes = {node: stake_of(STUDY, candidate.name, "joint", candidate, history, (node,)) for node in "az"}
    assert {node: stake.may_stop for node, stake in stakes.items() if stake is not None} == {"a": True, "z": False}


def test_a_run_on_a_slow_node_is_not_judged_by_what_others_show() -> None:
    history = runs({**dict.fromkeys("abc", 1.0), "d": 0.7})
    candidate = Candidate(stage=0, micro_batch=16, gas=1)
    here, there = (stake_of(STUDY, candidate.name, "joint", candidate, history, (node,)) for node in "ad")
    assert here is not None and there is not None and here.best is not None and there.best is not None
    assert there.best - here.best == pytest.approx(math.log(0.7), abs=0.05)
    assert there.mean - here.mean == pytest.approx(there.best - here.best)


def test_runs_whose_nodes_nobody_knows_say_nothing_of_nodes() -> None:
    history = runs({"a": 1.0, "b": 0.7})
    unknown = {stage: [replace(o, ran_on=()) for o in seen] for stage, seen in history.stages.items()}
    assert effects(STUDY, replace(history, stages=unknown, learnt={})) == {}


def repeated(history: History, *, node: str) -> History:
    """The same with the best launched once more."""
    best = next(o for o in history.stages[0] if o.name == "z0_gas1_tmbspg8")
    again = replace(best, round=1, ran_on=(node,))
    return replace(history, reference=[*history.reference, again], learnt={})


def test_the_best_is_launched_on_another_node_before_it_is_the_result() -> None:
    history = runs(dict.fromkeys("abcd", 1.0))
    known = history.facts_for(STUDY)
    assert known is not None
    step = last_step(STUDY, history, Forecast(STUDY, known, history))
    assert isinstance(step, RunReference)
    assert (step.name, step.on) == ("baseline", ("d",))
    going = replace(history.reference[0], round=1, ran_on=(), state="running", value=None, facts=None)
    meanwhile = replace(history, reference=[*history.reference, going], learnt={})
    step = last_step(STUDY, meanwhile, Forecast(STUDY, known, meanwhile))
    assert isinstance(step, RunReference)  # two nodes are at it at once
    assert (step.name, step.on, step.why) == ("z0_gas1_tmbspg8", ["a"], "it has run on d only")
    then = repeated(meanwhile, node="a")
    assert isinstance(last_step(STUDY, then, Forecast(STUDY, known, then)), Wait)
    own = replace(history.reference[0], round=1, value=history.reference[0].value, ran_on=("d",))
    for node, done in (("d", False), ("a", True)):
        then = repeated(replace(history, reference=[*history.reference, own], learnt={}), node=node)
        step = last_step(STUDY, then, Forecast(STUDY, known, then))
        assert (not isinstance(step, RunReference) or not (step.avoid or step.on)) == done
    failed = observation(None, None, ran_on=("a",))  # your own configuration runs out of memory
    profile = replace(history.reference[0], name="profile")
    without_own = replace(history, reference=[failed, profile], learnt={})
    step = last_step(STUDY, without_own, Forecast(STUDY, known, without_own))
    assert isinstance(step, RunReference) and step.why == "it has run on d only"
    alone = runs({"a": 1.0})
    step = last_step(STUDY, alone, Forecast(STUDY, known, alone))
    assert isinstance(step, RunReference) and (step.name, step.avoid, step.on) == ("baseline", (), ())


def linked_once(*more: Observation) -> History:
    """Two nodes, of which `nb` is slow; only the best ran on both, and your own configuration on the slow one."""
    seen = [
        observation(Candidate(stage=stage, micro_batch=size, gas=1),
                    2 * size / seconds(stage, size) * (0.7 if node == "nb" else 1.0), ran_on=(node,))
        for stage, size, node in ((0, 8, "nb"), (1, 8, "nb"), (1, 4, "nb"))
    ]  # fmt: skip
    own = observation(None, 0.7 * 2 / seconds(0, 1), facts=facts(zero_stage=0, micro_batch=1), ran_on=("nb",))
    link = replace(seen[0], round=1, value=16 / seconds(0, 8), ran_on=("na",), why="it has run on nb only")
    stages = {stage: [o for o in seen if o.candidate and o.candidate.stage == stage] for stage in range(3)}
    return History(reference=[own, link, *more], stages=stages)


def test_a_node_that_may_be_slow_is_made_sure_of_by_a_second_configuration() -> None:
    again = replace(linked_once().reference[0], round=1)
    history = linked_once(again)
    known = history.facts_for(STUDY)
    assert known is not None
    assert max(effect.variance for effect in effects(STUDY, history).values()) > 0.05**2
    step = last_step(STUDY, history, Forecast(STUDY, known, history))
    assert isinstance(step, RunReference)
    assert (step.name, step.on, step.why) == ("baseline", ["na"], "whether na is as fast as others is not clear")
    own = replace(history.reference[0], round=2, value=2 / seconds(0, 1), ran_on=("na",), why=step.why)
    linked = linked_once(again, own)
    assert effects(STUDY, linked)["nb"].mean == pytest.approx(math.log(0.7), abs=0.05)
    result = compare(STUDY, linked)
    assert result is not None and result.speedup == pytest.approx(8 * seconds(0, 1) / seconds(0, 8), rel=0.05)
    then = last_step(STUDY, linked, Forecast(STUDY, known, linked))
    assert not isinstance(then, RunReference) or then.why != step.why


def test_two_configurations_that_are_slower_on_a_node_convict_it_however_noisy_they_are() -> None:
    both = [
        replace(shown(name, [level, level + math.log(0.7)], ("a",), ("b",)), variances=[0.04**2] * 2)
        for name, level in (("x", 7.0), ("y", 7.1))
    ]
    assert effects_by_runs_alone(both, {})["b"].mean == pytest.approx(math.log(0.7), abs=0.05)
