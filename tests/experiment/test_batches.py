"""What a script feeds in a step must be what the engine counts: forward passes, rows, and the size of packed rows."""

from dataclasses import replace

import pytest

from dsopt.experiment.batches import gain_of_full_steps, growth, without_compilation
from dsopt.experiment.outcome import Infeasible, Measured
from dsopt.experiment.rules import OwnSizes
from dsopt.protocol.events import Batch, Step
from tests.runs import engine, outcome_of, rules, step

OWN = OwnSizes(rows=4, micro_batch=4, gas=1, elements=4 * 16, passes=1)  # the asked candidate: micro-batch 8, gas 2


def fed(count: int, passes: int, rows: int = 0) -> list[Step]:
    return [step(number, passes=passes, rows=rows) for number in range(count)]


@pytest.mark.parametrize(
    ("own", "passes", "reason"),
    [
        (OWN, 2, None),
        (OWN, 0, None),  # not seen
        (replace(OWN, passes=0), 5, None),
        (replace(OWN, passes=3), 6, None),  # three in each micro-step, as with several losses
        (replace(OWN, passes=2), 3, None),  # one for the step, and one in each micro-step
        (replace(OWN, passes=4), 2, "fixed_batch"),  # it accumulates to a batch of its own
        (replace(OWN, passes=16), 2, "few_samples"),
        (OWN, 1, "few_samples"),  # or its epochs are short
        (replace(OWN, micro_batch=8, rows=8), 1, "fixed_accumulation"),
    ],
)
def test_forward_passes_follow_the_accumulation(own: OwnSizes, passes: int, reason: str | None) -> None:
    outcome = outcome_of(engine(), *fed(40, passes), under=rules(own=own))
    assert outcome is not None
    assert getattr(outcome, "reason", None) == reason
    if isinstance(outcome, Infeasible):
        assert f"the script did {passes} forward passes in an optimizer step" in outcome.message


def test_a_script_that_goes_on_when_memory_runs_out_is_refused() -> None:
    """It throws long batches away. What it then counts is of the short ones."""
    for own in (OWN, replace(OWN, gas=2, passes=2)):
        outcome = outcome_of(engine(), *fed(40, 4), under=rules(own=own))
        assert isinstance(outcome, Infeasible)
        assert outcome.reason == "few_samples"
        assert f"4 forward passes in most optimizer steps, {own.passes} in your own run" in outcome.message


@pytest.mark.parametrize(("passes", "is_right"), [(2, True), (4, True), (3, True), (1, False)])
def test_the_users_own_run_has_at_least_the_passes_of_its_accumulation(passes: int, is_right: bool) -> None:
    outcome = outcome_of(engine(), *fed(40, passes), under=rules(own=None, expected=None))
    assert isinstance(outcome, Measured if is_right else Infeasible)


def test_passes_that_differ_from_step_to_step_are_not_held_to_anything() -> None:
    steps = [step(number, passes=number % 5 + 1) for number in range(40)]
    assert isinstance(outcome_of(engine(), *steps, under=rules(own=OWN)), Measured)


def test_steps_with_more_passes_than_most_count() -> None:
    """As where a penalty, or another model, has its turn in each fifth step."""
    steps = [step(number, 0.5 if number % 5 == 4 else 0.1, passes=3 + (number % 5 == 4)) for number in range(40)]
    outcome = outcome_of(engine(), *steps, under=rules(own=replace(OWN, passes=0)))
    assert isinstance(outcome, Measured)
    assert outcome.measurement.step_seconds > 0.15


def test_steps_that_are_fed_fewer_rows_than_they_have_micro_steps_are_refused() -> None:
    """Each second batch is the end of an epoch."""
    outcome = outcome_of(engine(), Batch(rank=0, rows=8), *fed(40, 2, rows=12), under=rules(own=OWN))
    assert isinstance(outcome, Infeasible)
    assert "fed 12 samples in most steps, where 2 of 8 belong" in outcome.message


def test_the_last_step_of_an_epoch_is_left_out() -> None:
    """The Trainer steps at its end, with fewer micro-steps; a data loader's last batch may be smaller."""
    steps = fed(40, passes=2, rows=16)
    for last in (9, 19, 29):
        steps[last] = step(last, 0.02, passes=1, rows=8)
    steps[39] = step(39, 0.05, passes=2, rows=9)
    outcome = outcome_of(engine(), *steps, under=rules(own=OWN))
    assert isinstance(outcome, Measured)
    assert outcome.measurement.step_seconds == pytest.approx(0.1)
    assert outcome.skipped_share == 0
    assert (outcome.passes, outcome.skipped) == (2, ())


@pytest.mark.parametrize(
    ("own", "batch", "is_refused"),
    [
        (OWN, Batch(rank=0, rows=8, elements=8 * 16), False),
        (OWN, Batch(rank=0, rows=8, elements=8 * 99), False),  # of other lengths
        (OWN, Batch(rank=0, rows=5, elements=5 * 16), True),  # the data set has no more
        (replace(OWN, rows=8), Batch(rank=0, rows=16), False),  # two rows a sample
        (replace(OWN, rows=16), Batch(rank=0, rows=64), False),  # each with each
        (replace(OWN, rows=97), Batch(rank=0, rows=113, elements=113 * 8), False),  # the first dimension is the length
        (replace(OWN, rows=1), Batch(rank=0, rows=1, elements=2 * 64), False),  # packed
        (replace(OWN, rows=1), Batch(rank=0, rows=1, elements=74), False),  # packed, of short samples
        (replace(OWN, rows=1), Batch(rank=0, rows=1, elements=64), True),  # one row, whatever it is told
        (replace(OWN, rows=1, micro_batch=1), Batch(rank=0, rows=1, elements=90), True),  # of another length
        (replace(OWN, rows=1, micro_batch=1), Batch(rank=0, rows=1, elements=300), False),
        (replace(OWN, rows=6, micro_batch=1), Batch(rank=0, rows=6, elements=64), True),  # what an earlier run showed
        (replace(OWN, rows=0), Batch(rank=0, rows=7), False),  # not seen
        (replace(OWN, rows=8), Batch(rank=0, rows=8, elements=64), True),  # a batch of its own, of just this size
        (replace(OWN, rows=16), Batch(rank=0, rows=16, elements=128), False),  # the first dimension is the length
        (replace(OWN, rows=1, micro_batch=1), Batch(rank=0, rows=3, elements=80), False),  # packed into three
    ],
)
def test_batches_follow_the_micro_batch_size(own: OwnSizes, batch: Batch, is_refused: bool) -> None:
    outcome = outcome_of(engine(), batch, under=rules(own=own))
    assert isinstance(outcome, Infeasible) is is_refused


def test_batches_of_many_sizes_are_not_held_to_anything() -> None:
    steps = [step(number, passes=2, rows=10 + number) for number in range(40)]
    outcome = outcome_of(engine(), Batch(rank=0, rows=8), *steps, under=rules(own=None, expected=None))
    assert isinstance(outcome, Measured)
    assert outcome.rows == 0


TOKENS = [16, 32, 18, 16, 30, 102, 42, 25, 20, 51]  # rows of about 1024 tokens
VARYING = replace(OWN, rows=0, step_elements=1024.0)


@pytest.mark.parametrize(
    ("own", "rows", "elements", "is_refused"),
    [
        (VARYING, TOKENS, 1024, True),  # four times the samples, and as many tokens
        (VARYING, [4 * count for count in TOKENS], 4096, False),
        (VARYING, TOKENS, 4096, False),  # the first dimension is the length
        (replace(VARYING, rows=16), [16], 1030, True),  # a batch of its own, of other lengths
        (replace(VARYING, rows=16), [16], 1500, False),  # the length, beside a mask
        (replace(VARYING, rows=1), [1], 1030, True),  # one sample, of any length
        (replace(VARYING, rows=1), [1], 4096, False),  # packed into one row
        (replace(VARYING, step_elements=0.0), TOKENS, 1024, False),  # not seen
        (replace(VARYING, micro_batch=8), TOKENS, 1024, False),  # the same size
        (replace(VARYING, micro_batch=64), TOKENS, 1024, True),  # a quarter of the samples
        (replace(VARYING, micro_batch=64), [count // 4 for count in TOKENS], 256, False),
    ],
)
def test_batches_of_many_sizes_follow_on_average(
    own: OwnSizes, rows: list[int], elements: int, is_refused: bool
) -> None:
    steps = [step(number, passes=2, rows=rows[number % len(rows)], elements=2 * elements) for number in range(40)]
    outcome = outcome_of(engine(), Batch(rank=0, rows=own.rows or 16), *steps, under=rules(own=replace(own, passes=1)))
    assert getattr(outcome, "reason", None) == ("fixed_batch" if is_refused else None)


@pytest.mark.parametrize(("samples", "is_refused"), [(0, False), (8, False), (7, True)])
def test_a_data_set_has_a_micro_batch(samples: int, is_refused: bool) -> None:
    """As with accelerate, which repeats samples until a batch is full."""
    outcome = outcome_of(engine(), Batch(rank=0, rows=8, samples=samples), under=rules(own=OWN))
    assert isinstance(outcome, Infeasible) is is_refused
    if isinstance(outcome, Infeasible):
        assert "the data set has 7 samples for each rank" in outcome.message


def test_steps_on_batches_that_were_read_ahead_are_warm_up() -> None:
    """Sixteen batches wait; then the loader takes twice as long as the model."""
    steps = [step(number, 0.1 if number < 8 else 0.2, passes=2) for number in range(40)]
    outcome = outcome_of(engine(), Batch(rank=0, rows=8, ready=16), *steps[:15], under=rules(own=OWN))
    assert outcome is None
    outcome = outcome_of(engine(), Batch(rank=0, rows=8, ready=16), *steps, under=rules(own=OWN))
    assert isinstance(outcome, Measured)
    assert (outcome.measurement.warmup_steps, outcome.measurement.step_seconds) == (8, pytest.approx(0.2))


@pytest.mark.parametrize(("every", "least", "is_refused"), [(2, 4, True), (8, 4, False), (2, 15, False)])
def test_a_candidate_whose_epochs_are_a_few_steps_is_refused(every: int, least: int, is_refused: bool) -> None:
    """By the rows that are missing: a last batch that is nearly full is a batch."""
    steps = [step(number, passes=2, rows=least if number % every == 1 else 16) for number in range(40)]
    outcome = outcome_of(engine(), Batch(rank=0, rows=8), *steps, under=rules(own=OWN))
    assert isinstance(outcome, Infeasible) is is_refused
    if isinstance(outcome, Infeasible):
        assert "of 40 steps were fed less than the others" in outcome.message
    own = outcome_of(engine(), Batch(rank=0, rows=8), *steps, under=rules(own=None, expected=None))
    assert isinstance(own, Measured)


@pytest.mark.parametrize(
    ("lengths", "grown"),
    [
        ([16] * 30, 1.0),
        ([16 + 2 * number for number in range(30)], 2.6),
        ([74 - 2 * number for number in range(30)], 1 / 2.6),
        ([16 + number * 7919 % 31 for number in range(30)], 1.0),  # of all lengths
        ([16, 32], 1.0),
        ([0] * 30, 1.0),
    ],
)
def test_a_trend_of_the_samples_is_seen(lengths: list[int], grown: float) -> None:
    steps = [step(number, rows=8, elements=8 * length) for number, length in enumerate(lengths)]
    assert growth(steps) == pytest.approx(grown, rel=0.05)


@pytest.mark.parametrize(
    ("rows", "took", "gain"),
    [
        ([120, 120, 10] * 4, [1.0, 1.0, 1.0] * 4, 0.44),  # 120 samples a second are told, 83 are true
        ([120, 120, 10] * 4, [1.0, 1.0, 0.1] * 4, 0.008),
        ([120] * 12, [1.0] * 12, 0.0),
        ([120, 120, 0] * 4, [1.0] * 12, 0.0),  # of one nobody knows
    ],
)
def test_how_much_better_figures_are_without_the_ends_of_epochs(
    rows: list[int], took: list[float], gain: float
) -> None:
    """The factor that was told lay outside of what all steps of the same runs showed."""
    steps = [step(number, rows=one, passes=1) for number, one in enumerate(rows)]
    assert gain_of_full_steps(steps, took, range(len(steps))) == pytest.approx(gain, abs=0.001)
    assert gain_of_full_steps(steps, took, [2, 5]) == 0.0  # none of those is full, or all are


def shaped(lengths: list[int], *, stalls: bool, again: bool = False) -> list[Step]:
    """Steps of batches padded to these lengths; `stalls`: something is compiled for 2 s in the first of each."""
    seen: set[int] = set()
    steps = []
    for number, length in enumerate(lengths):
        is_slow = stalls and (again or length not in seen)
        seen.add(length)
        seconds = 0.05 + 0.001 * length + 2.0 * is_slow
        steps.append(replace(step(number, passes=1, rows=4), elements=4 * length, seconds=seconds))
    return steps


LENGTHS = [8, 16, 24, 8, 8, 16, 32, 8, 24, 16, 8, 32, 8, 8, 16, 8, 40, 8, 16, 24, 8, 48]


def test_what_is_compiled_for_each_shape_is_in_no_figure() -> None:
    """In one launch it was warm-up, in another it counted: the own run had twice its speed, and stayed the best."""
    found = without_compilation(shaped(LENGTHS, stalls=True))
    assert found == pytest.approx({i: 0.05 + 0.001 * LENGTHS[i] for i in (0, 1, 2, 6, 16, 21)})
    assert without_compilation(shaped(LENGTHS, stalls=False)) == {}
    assert without_compilation(shaped(LENGTHS, stalls=True, again=True)) == {}
    assert without_compilation(shaped([8] * 20, stalls=True)) == {}  # warm-up, as of any
    assert without_compilation(shaped(list(range(8, 40)), stalls=True)) == {}  # no shape comes again
    rare = [*shaped(LENGTHS, stalls=True), replace(step(22, passes=1, rows=4), elements=4 * 480, seconds=1.2)]
    assert without_compilation(rare).keys() == found.keys()  # a long text takes longer
    unseen = [replace(each, elements=0) for each in shaped(LENGTHS, stalls=True)]
    assert without_compilation(unseen) == {}


def test_batches_of_a_number_of_tokens_have_other_rows_and_as_many_elements() -> None:
    """A line through them has no slope, and its fit warned of that."""
    rows = [length // 8 for length in LENGTHS]
    steps = [replace(s, rows=r, elements=960) for s, r in zip(shaped(LENGTHS, stalls=True), rows, strict=True)]
    assert without_compilation(steps).keys() == {0, 1, 2, 6, 16, 21}


def test_files_that_are_read_again_and_again_count() -> None:
    """One for each of several batches of a length in a row: the first of each waits."""
    blocks = [length for _ in range(3) for length in (8, 16, 24, 32) for _ in range(5)]
    waits = [replace(each, seconds=0.6 if i % 5 == 0 else 0.1) for i, each in enumerate(shaped(blocks, stalls=False))]
    for count in (12, 20, 22, 60):
        assert without_compilation(waits[:count]) == {}


@pytest.mark.parametrize("size", [2, 5])
def test_a_run_with_stalls_measures_what_one_without_does(size: int) -> None:
    told = []
    for stalls in (True, False):
        outcome = outcome_of(
            engine(micro_batch=4, gas=1),
            *shaped((LENGTHS[:-1] * size)[:100], stalls=stalls),
            under=rules(own=None, expected=None),
        )
        assert isinstance(outcome, Measured), outcome
        told.append(outcome.measurement.step_seconds)
    assert told[0] == pytest.approx(told[1], rel=0.05)
