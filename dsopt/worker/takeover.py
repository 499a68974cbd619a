"""Takes over runs of another study that would be the same in this one, so that they are not measured again."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from dsopt.errors import DsoptError
from dsopt.experiment.outcome import Measured, Slow, figures_of
from dsopt.report.readable import readable_name
from dsopt.search.facts import ModelFacts
from dsopt.search.history import History
from dsopt.search.least_memory import profile_candidate
from dsopt.search.limits import is_tried
from dsopt.search.sampler import distributions
from dsopt.store.engine import exclusive
from dsopt.store.marking import mark
from dsopt.store.reading import marks_of
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.store.takeover import EarlierRun, RunToKeep, earlier_runs, keep_taken_over
from dsopt.store.transactions import changing
from dsopt.study.candidate_run import run_config
from dsopt.study.ds_config import TRAIN_BATCH, baseline_config, offload_devices
from dsopt.study.inside import aio_inside, candidate_inside
from dsopt.study.mapped_flags import with_flags_of
from dsopt.study.own_sources import changed_files, script_source, sources_now
from dsopt.study.part import AIO, REFERENCE
from dsopt.study.same_run import other_conditions, same_run_key
from dsopt.study.space import MICRO_BATCH, Candidate
from dsopt.study.spec import StudySpec
from dsopt.worker.history import load_history


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver:
    """The result of taking over a study's runs.

    Attributes:
        taken: names of the runs that count in this study now.
        known: names of those that it already had.
        left: names of the skipped ones, each with the reason.
        labels: what people read for these names.
    """

    taken: Sequence[str]
    known: Sequence[str]
    left: Sequence[tuple[str, str]]
    labels: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """The same as data."""
        left = [{"name": name, "why": why} for name, why in self.left]
        return {"taken": list(self.taken), "known": list(self.known), "left": left}


def check_source(spec: StudySpec, source: StudySpec) -> None:
    """Refuses a study none of whose runs would be the same.

    Raises:
        DsoptError: it is the study itself, or differs in something that affects every figure.
    """
    if spec.name == source.name:
        raise DsoptError(
            f"--take-over: '{source.name}' is this study itself. Give the new study another name: --name NAME"
        )
    differing = other_conditions(spec, source)
    if differing:
        raise DsoptError(
            f"--take-over: study '{source.name}' has other values of {', '.join(differing)}, so none of its runs would "
            "be the same now. Give the same values, or leave out --take-over."
        )


def take_over(store: Store, study: StoredStudy, source: StoredStudy) -> TakenOver:
    """Takes over every run of the source's search whose configuration and command are the same in the study.

    Measured runs count as the study's own, and so do those that ran out of memory. The study tries failures again, and
    repeats the confirmation, because its runs are compared with each other. It skips runs of another version of the
    script. It cannot know whether devices, packages and data are still the same.

    Raises:
        DsoptError: the study is finished or was deleted, or `check_source`.
    """
    check_source(study.spec, source.spec)
    with exclusive(store.engine, f"study-{study.id}"):
        state = store.state(study)
        if state in ("finished", None):
            raise DsoptError(
                f"study '{study.name}' is {state or 'deleted'}: taking over runs now would change nothing."
            )
        history, facts = load_history(store, study), load_history(store, source).facts_for(study.spec)
        places = _Places(study.spec, source.spec, history, facts)
        runs, left = [], []
        tried: dict[str, Candidate | None] = {}
        for run in earlier_runs(store, source):
            stage = run.part.stage
            tried[run.name] = None if stage is None else candidate_inside(source.spec, stage, run.trial.params)
            place = places.find(run)
            if isinstance(place, str):
                left.append((run.name, place))
            else:
                runs.append(place)
                tried[place.candidate] = None if stage is None else run.part.candidate(place.params)
        runs, slower = _without_open_races(study.spec, source.spec, runs)
        kept = keep_taken_over(store, study, source, runs)
        _keep_aio(store, study, source, runs)  # an earlier try may have been killed before it did
    return TakenOver(
        taken=[run.candidate for run in kept],
        known=[run.candidate for run in runs if run not in kept],
        left=[*left, *slower],
        labels={name: readable_name(name, candidate) for name, candidate in tried.items()},
    )


class _Places:
    """Where runs of the source belong in the study."""

    def __init__(self, spec: StudySpec, source: StudySpec, history: History, facts: ModelFacts | None) -> None:
        self._spec = spec
        self._source = source
        self._history = history
        self._facts = facts
        self._script = script_source(spec)
        self._candidates = cache(self._candidates_of)

    def find(self, run: EarlierRun) -> RunToKeep | str:
        """What a run is in the study, or why the study skips it."""
        if self._script and not run.sources:
            return f"{self._spec.launch.script} may have been another one when it ran"
        changed = changed_files(run.sources, sources_now(self._spec, run.sources))
        if changed:
            return f"{changed[0]} was another one when it ran"
        metric = self._spec.autotuning.metric
        if isinstance(run.outcome, Measured | Slow) and not figures_of(run.outcome).tells(metric):
            return f"it did not measure the metric, {metric}"
        if run.part == REFERENCE:
            return self._reference(run)
        return self._candidate(run)

    def _reference(self, run: EarlierRun) -> RunToKeep | str:
        ours, theirs = (
            same_run_key(spec, profile_candidate(spec) if run.name == "profile" else None)
            for spec in (self._spec, self._source)
        )
        if ours != theirs:
            return "it would run with another configuration or command now"
        seen = run.outcome
        typed, mappings = self._source.launch, self._source.autotuning.arg_mappings
        sizes = {path: flag for path, flag in mappings.items() if path in (MICRO_BATCH, TRAIN_BATCH)}
        own = with_flags_of(typed, sizes, baseline_config(self._source.ds_config))
        # of an earlier version, it may have run as typed
        if own != typed and isinstance(seen, Measured) and 1 < seen.rows != seen.engine.micro_batch:
            size = seen.engine.micro_batch
            return f"it was fed batches of {seen.rows} rows, where its configuration says {size} samples"
        return RunToKeep(run=run, part=REFERENCE, candidate=run.name, params={}, distributions={})

    def _candidate(self, run: EarlierRun) -> RunToKeep | str:
        assert run.part.stage is not None, "a reference run is not part of the search"
        earlier = candidate_inside(self._source, run.part.stage, run.trial.params)
        if earlier is None or earlier.name != run.name:
            return "its trial has parameters that its study cannot have made"
        if earlier.stage not in self._spec.stages:
            return f"the study does not try ZeRO {earlier.stage}"
        if earlier.stage in self._history.verdicts:
            return f"the study has already closed ZeRO {earlier.stage}"
        assert self._facts is not None, "a candidate runs only after the model is known"
        candidates = self._candidates(earlier.stage, earlier.micro_batch, earlier.gas)
        candidate = candidates.get(same_run_key(self._source, earlier))
        if candidate is None:
            return "no candidate of the study has its configuration and command"
        if not is_tried(self._spec, self._facts, candidate):
            return "the study does not try its batch sizes"
        space = self._spec.space(candidate.stage, self._facts.hidden_size)
        return RunToKeep(
            run=run,
            part=run.part,
            candidate=candidate.name,
            params=candidate.params,
            distributions=distributions(space),
        )

    def _candidates_of(self, stage: int, micro_batch: int, gas: int) -> dict[str, Candidate]:
        """The study's candidates of these sizes, each by the key of its run."""
        assert self._facts is not None
        candidates = self._spec.space(stage, self._facts.hidden_size).candidates((micro_batch,), (gas,))
        return {same_run_key(self._spec, candidate): candidate for candidate in candidates}


def _without_open_races(
    spec: StudySpec, source: StudySpec, runs: Sequence[RunToKeep]
) -> tuple[list[RunToKeep], list[tuple[str, str]]]:
    """Leaves out runs that were stopped as slower than a best which the study does not have: one may be its own best.

    So may one whose best was told as a slower node would have shown it.
    A sequential search takes none of them, because it finds ranges of sizes with runs that were measured to the end.
    """
    metric, sign = spec.autotuning.metric, 1.0 if spec.autotuning.maximize else -1.0
    values = [
        sign * known.run.outcome.metric(metric)
        for known in runs
        if known.part != REFERENCE and isinstance(known.run.outcome, Measured)
    ]
    is_same_race = spec.is_joint and metric == source.autotuning.metric
    is_same_race = is_same_race and len({known.run.ran_on for known in runs}) == 1
    best = max(values, default=-math.inf) if is_same_race else -math.inf
    kept, left = [], []
    for known in runs:
        outcome = known.run.outcome
        if isinstance(outcome, Slow) and best < sign * outcome.best:
            left.append((known.candidate, "it was stopped as slower than a run that was not taken over"))
        else:
            kept.append(known)
    return kept, left


def _keep_aio(store: Store, study: StoredStudy, source: StoredStudy, runs: Sequence[RunToKeep]) -> None:
    """Copies the `aio` section with which the source's runs offloaded to a disk, so that the study's own use it too."""
    ours, theirs = (marks_of(store, one, REFERENCE) for one in (study, source))
    aio = aio_inside(theirs.get(AIO))
    if aio is not None and AIO not in ours and any(_offloads(study.spec, known) for known in runs):
        with changing(store.engine, study.id) as connection:
            mark(connection, study, REFERENCE, {AIO: dict(aio)})


def _offloads(spec: StudySpec, known: RunToKeep) -> bool:
    """Whether a run offloads to a disk; the profile does not count."""
    return "nvme" in offload_devices(run_config(spec, known.part.candidate(known.params)))
