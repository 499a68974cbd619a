"""The user's own global batch, and a search that keeps it."""

from dataclasses import replace

import pytest

from dsopt.report.batch_size import batch_advice
from dsopt.report.own_run import unknown_batch
from dsopt.report.rows import rows_of
from dsopt.report.summarize import summarize
from dsopt.search.global_batch import configured_batch, global_batch, kept_sizes, own_batch, with_own_batch
from dsopt.search.limits import accumulations, accumulations_with, in_budget, listed_sizes
from dsopt.search.plan import next_step
from dsopt.search.standing import compare
from dsopt.search.steps import Explore
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from tests.machines import Machine
from tests.made_up import GIB, facts, history, observation, sequential, spec
from tests.runs import engine

OWN = {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 6}
FACTS = facts(micro_batch=2, gas=6)  # on two ranks: 24 samples


def keeping(study: StudySpec) -> StudySpec:
    return StudySpec.model_validate({**study.model_dump(exclude_unset=True), "global_batch": "keep"})


@pytest.mark.parametrize(
    ("ds_config", "expected"),
    [
        (OWN, 24),
        ({"train_batch_size": 40, "train_micro_batch_size_per_gpu": "auto"}, 40),
        ({"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}, 24),
        ({"train_micro_batch_size_per_gpu": 4}, 8),
    ],
)
def test_the_own_global_batch_is_what_the_configuration_says(ds_config: dict, expected: int) -> None:
    assert configured_batch(spec(ds_config), FACTS) == expected


AUTO = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto"}


@pytest.mark.parametrize(
    ("ds_config", "runs", "is_kept", "said"),
    [
        (AUTO, False, True, "a guess, 24 samples: train_micro_batch_size_per_gpu and gradient_accumulation_steps are"),
        ({**OWN, "gradient_accumulation_steps": "auto"}, False, True, "gradient_accumulation_steps is 'auto'"),
        (OWN, False, True, None),
        (AUTO, True, True, None),
        (AUTO, False, False, None),
    ],
)
def test_a_batch_that_is_guessed_is_called_so(ds_config: dict, runs: bool, is_kept: bool, said: str | None) -> None:
    profile = observation(None, 100.0, name="profile", facts=FACTS)
    own = observation(None, 100.0, facts=FACTS) if runs else observation(None)
    known = replace(history(), reference=[own, profile])
    study = spec(ds_config)
    summary = summarize(keeping(study) if is_kept else study, known, [], state="stopped", note=None, duration_seconds=1)
    told = [line for line in summary.doubt_lines() if "a guess" in line]
    assert [said in line for line in told] == ([True] if said else [])


def test_a_size_that_the_command_gives_is_known_also_if_it_is_one() -> None:
    mapped = {"train_micro_batch_size_per_gpu": "--batch", "gradient_accumulation_steps": "--gas"}
    study = spec(AUTO, arg_mappings=mapped)
    typed = study.model_copy(
        update={"command": "deepspeed --num_gpus 2 t.py --batch 1 --gas 8 --deepspeed_config c.json"}
    )
    study = StudySpec.model_validate(typed.model_dump(exclude_unset=True))
    known = replace(history(), reference=[observation(None, state="infeasible")])
    assert own_batch(study, known, facts()) == 16


def test_what_the_own_run_showed_comes_first() -> None:
    known = history(baseline=facts(micro_batch=8, gas=1))
    assert own_batch(spec(OWN), known, FACTS) == 16


@pytest.mark.parametrize("ds_config", [AUTO, {**OWN, "train_micro_batch_size_per_gpu": "auto"}])
def test_an_own_run_that_failed_tells_its_batch_by_its_engine_or_nothing_does(ds_config: dict) -> None:
    """The batch of the least-memory profile was called the user's own, and the learning rate was scaled by that."""
    small, study = facts(), spec({**ds_config, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}})
    best = Candidate(stage=1, micro_batch=4, gas=4)
    profile = observation(None, 100.0, name="profile", facts=small)
    own = observation(None, state="infeasible")
    silent = replace(history(observation(best, 120.0)), reference=[own, profile])
    assert own_batch(study, silent, small) is None
    assert batch_advice(study, silent, best) is None
    assert [row.batch for row in rows_of(study, silent, None) if row.is_own] == [None]
    said = unknown_batch(study, silent, best)
    assert said is not None
    assert "The best trains with 32 samples: compare that with yours" in said
    told = replace(silent, reference=[replace(own, engine=engine(micro_batch=4, gas=6)), profile])
    known = told.facts_for(study)
    assert known is not None
    assert own_batch(study, told, known) == 48
    advice = batch_advice(study, told, best)
    assert advice is not None
    assert (advice.own, advice.best) == (48, 32)
    assert unknown_batch(study, told, best) is None
    assert kept_sizes(keeping(study), known, ()) == {1: 24, 2: 12, 3: 8, 4: 6, 6: 4, 8: 3, 12: 2, 24: 1}


def test_a_kept_batch_leaves_its_divisors_each_with_its_accumulation() -> None:
    study = keeping(spec(OWN))
    assert kept_sizes(study, FACTS, ()) == {1: 12, 2: 6, 3: 4, 4: 3, 6: 2, 12: 1}
    assert kept_sizes(study, FACTS, (("num_gpus", 5),)) == {}
    assert kept_sizes(spec(OWN), FACTS, ()) is None
    assert listed_sizes(study, FACTS, ()) == (1, 2, 3, 4, 6, 12)
    assert in_budget(study, FACTS, (), (2, 3, 4, 5), 6) == (2,)


@pytest.mark.parametrize("make", [spec, sequential])
def test_every_run_of_such_a_search_has_it(make) -> None:  # type: ignore[no-untyped-def]
    study = keeping(make(OWN))
    known = history(baseline=FACTS)
    step = next_step(study, known)
    assert isinstance(step, Explore)
    assert {global_batch(study, FACTS, candidate) for candidate in step.candidates} == {24}


@pytest.mark.parametrize("make", [spec, sequential])
def test_a_kept_batch_has_smaller_micro_batches_where_the_own_does_not_fit_and_only_there(make) -> None:  # type: ignore[no-untyped-def]
    """It ended without an answer: "nothing in it is likely to fit"."""
    study = keeping(make({"train_micro_batch_size_per_gpu": 32, "zero_optimization": {"stage": [1, 2]}}))

    def found_by(most: int) -> tuple[str, set[int]]:
        def truth(candidate: Candidate | None) -> float | str:
            size, gas = (32, 1) if candidate is None else (candidate.micro_batch, candidate.gas)
            return "oom" if size > most else 64 / (0.02 + gas * (0.01 + 0.01 * size))

        machine = Machine(study, truth, lambda candidate: 2 * GIB + candidate.micro_batch * 48 * GIB // most // 4).run()
        result = compare(study, machine.history)
        assert result is not None
        ran = {one.micro_batch for one in machine.offered}
        assert {one.micro_batch * one.gas for one in machine.offered} == {32}
        return result.best, ran

    best, ran = found_by(8)
    assert best.endswith("gas4_tmbspg8"), ran
    best, ran = found_by(64)
    assert ran <= {32}, "smaller ones are slower wherever the own fits"


@pytest.mark.parametrize("make", [spec, sequential])
def test_a_larger_micro_batch_that_does_not_fit_is_no_reason_for_smaller_ones_than_the_own(make) -> None:  # type: ignore[no-untyped-def]
    study = keeping(make({"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 8}))

    def truth(candidate: Candidate | None) -> float | str:
        size, gas = (8, 8) if candidate is None else (candidate.micro_batch, candidate.gas)
        return "oom" if size >= 32 else 128 / (0.02 + gas * (0.01 + 0.01 * size))

    own = Candidate(stage=0, micro_batch=8, gas=8)
    machine = Machine(study, truth, lambda candidate: 2 * GIB + candidate.micro_batch * GIB // 4, own=own).run()
    assert min(one.candidate.micro_batch for one in machine.history.observations if one.candidate is not None) >= 8
    assert any(one.reason == "oom" for one in machine.history.observations) or make is spec


def test_those_with_the_own_batch_are_found_among_what_was_measured() -> None:
    same, other = Candidate(stage=1, micro_batch=4, gas=3), Candidate(stage=1, micro_batch=4, gas=6)
    known = history(observation(same, 120.0), observation(other, 150.0), baseline=FACTS)
    assert [found.candidate for found in with_own_batch(spec(OWN), known, FACTS)] == [same]


BATCH = {"train_batch_size": 64}  # on two ranks: 32 × 1


@pytest.mark.parametrize(
    ("config", "own_sizes", "tried"),
    [
        (BATCH, None, (1, 8)),
        (BATCH, (32, 1), (1, 8)),
        ({"train_micro_batch_size_per_gpu": 8}, None, (1, 2)),
        ({"train_micro_batch_size_per_gpu": "auto"}, (16, 1), (1, 4)),
        ({"train_micro_batch_size_per_gpu": "auto"}, None, (1,)),  # nobody knows their batch
        ({"train_micro_batch_size_per_gpu": 3}, None, (1,)),  # four samples do not make three
        ({**BATCH, "gradient_accumulation_steps": 2}, None, (2,)),  # it is fixed
        ({**BATCH, "gradient_accumulation_steps": [1, 2]}, None, (1, 2)),
        ({**BATCH, "gradient_accumulation_steps": [2]}, None, (2,)),
    ],
)
def test_where_the_own_sizes_do_not_run_the_accumulation_that_keeps_their_batch_is_tried(
    config: dict, own_sizes: tuple[int, int] | None, tried: tuple[int, ...]
) -> None:
    """A profile ran instead. The answer had 8 samples a step for a user who asked for 256, and was slower."""
    for gas in (1, 16):  # of the run that happens to show the model
        shown = facts(micro_batch=4, gas=gas, own_sizes=own_sizes, own_ran=False)
        if gas == 1 or own_sizes is not None or "auto" not in config.values():
            assert accumulations_with(spec(config), shown, (), 4) == tried


def test_where_the_own_sizes_run_no_other_accumulation_is_tried() -> None:
    assert accumulations_with(spec(BATCH), facts(micro_batch=32), (), 4) == (1,)


def test_the_own_batch_is_the_answer_where_its_own_micro_batch_does_not_fit() -> None:
    study = spec({**BATCH, "zero_optimization": {"stage": [1, 2]}})

    def truth(candidate: Candidate | None) -> float | str:
        if candidate is None or candidate.micro_batch > 4:
            return "oom"
        samples = 2 * candidate.micro_batch * candidate.gas
        return samples / (0.02 + candidate.gas * (0.01 + 0.01 * candidate.micro_batch))

    machine = Machine(study, truth, lambda candidate: 2 * GIB + candidate.micro_batch * 3 * GIB).run()
    result = compare(study, machine.history)
    assert result is not None and result.best.endswith("gas8_tmbspg4")
    assert {candidate.gas for candidate in machine.offered} > {1, 8}, "the own accumulation is tried all the same"


def test_each_number_of_gpus_has_its_own_accumulations() -> None:
    study = keeping(spec({"train_micro_batch_size_per_gpu": 4}, num_gpus=[1, 2]))
    known = facts(micro_batch=4)  # 8 samples on two ranks
    assert kept_sizes(study, known, (("num_gpus", 1),)) == {1: 8, 2: 4, 4: 2, 8: 1}
    assert accumulations(study, known, (("num_gpus", 1),)) == (1, 2, 4, 8)
    assert accumulations(study, known) == (1, 2, 4)
