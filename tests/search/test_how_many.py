"""How many candidates a study has: counted as the plan then offers them."""

import pytest

from dsopt.report.left import what_is_left
from dsopt.report.summarize import summarize
from dsopt.search.how_many import Others, others_before, others_of
from dsopt.study.space import Candidate
from dsopt.study.spec import StudySpec
from tests.machines import Machine
from tests.made_up import sequential, spec

ONE = {"zero_optimization": {"stage": 3}, "gradient_accumulation_steps": 4}
SMALL = {"tuner_early_stopping": 50}


def throughput(candidate: Candidate | None) -> float:
    return float(candidate.micro_batch) if candidate is not None else 1.0


@pytest.mark.parametrize("kind", [spec, sequential])
@pytest.mark.parametrize(
    ("config", "limits", "own", "counted"),
    [
        ({**ONE, "train_micro_batch_size_per_gpu": 4}, {"max_train_micro_batch_size_per_gpu": 4}, (3, 4, 4), (0, 3)),
        ({**ONE, "train_micro_batch_size_per_gpu": [4, 2]}, {}, (3, 4, 4), (1, 1)),
        ({**ONE, "train_micro_batch_size_per_gpu": 2}, {"max_train_micro_batch_size_per_gpu": 8}, (3, 2, 4), (6, 7)),
        ({**ONE, "train_micro_batch_size_per_gpu": 2}, {"max_train_batch_size": 48}, (3, 2, 4), (4, 5)),
        ({"zero_optimization": {"stage": [0, 1]}}, {"max_train_batch_size": 8}, (0, 1, 1), (11, 11)),
    ],
)
def test_the_plan_offers_no_more_than_is_counted(kind, config: dict, limits: dict, own: tuple, counted: tuple) -> None:
    study: StudySpec = kind(config, **limits, **SMALL)
    before = others_before(study)
    assert before is not None
    assert (sum(o.usual for o in before.values()), sum(o.all for o in before.values())) == counted
    stage, micro_batch, gas = own
    machine = Machine(study, throughput, own=Candidate(stage=stage, micro_batch=micro_batch, gas=gas)).run()
    facts = machine.history.facts_for(study)
    assert facts is not None
    assert others_of(study, facts, machine.history) == before
    assert len({c for c in machine.offered if c != machine.own}) <= counted[0]
    is_worthless = all("must gain" in verdict for verdict in machine.verdicts.values())
    assert len(machine.offered) > 0 or counted[0] == 0 or is_worthless


def test_a_size_that_memory_alone_limits_is_not_counted() -> None:
    assert others_before(spec(ONE)) is None
    assert others_before(spec(ONE, max_train_micro_batch_size_per_gpu=2)) == {3: Others(usual=1, all=1)}


def test_a_study_with_one_candidate_says_so_to_its_end() -> None:
    config = {**ONE, "train_micro_batch_size_per_gpu": 4}
    study = spec(config, max_train_micro_batch_size_per_gpu=4)
    machine = Machine(study, throughput, own=Candidate(stage=3, micro_batch=4, gas=4))
    machine.reference.append(machine.observe("baseline", 0, None, "range"))
    assert what_is_left(study, machine.history) is None
    machine.run()
    assert not any(machine.stages.values())
    summary = summarize(study, machine.history, [], state="finished", note=None, duration_seconds=None)
    assert summary.sentence() == (
        "Your own configuration is the only candidate of this study, so nothing was compared with it. "
        "To try more, under another --name, write in DeepSpeed's configuration: "
        '"zero_optimization": {"stage": [3, 0, 1, 2]} or '
        '"gradient_accumulation_steps": [4, 1, 2, 8] or a larger '
        '"max_train_micro_batch_size_per_gpu" than 4, or none.'
    )
