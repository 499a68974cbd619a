"""Imports what DeepSpeed's own autotuner has measured into a study, so that dsopt need not measure it again."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from dsopt.autotuner.candidate_of import NotInSpace, candidate_of, stage_of
from dsopt.autotuner.imported import ImportedTrial, keep_imported
from dsopt.autotuner.results import Experiment, PassedOver, read_results
from dsopt.errors import DsoptError
from dsopt.search.history import History
from dsopt.search.limits import accumulations, is_tried
from dsopt.search.sampler import distributions
from dsopt.store.engine import exclusive
from dsopt.store.stored import StoredStudy
from dsopt.store.studies import Store
from dsopt.study.own_sizes import own_size
from dsopt.study.part import Part
from dsopt.study.space import ACCUMULATION, LARGEST, StageSpace
from dsopt.study.spec import StudySpec
from dsopt.worker.history import load_history


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """An experiment that is now a trial of the study. `value` is in its metric's unit; None: out of memory."""

    name: str
    candidate: str
    state: Literal["measured", "infeasible"]
    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The result of an import.

    Attributes:
        taken: experiments that are trials now.
        known: experiments whose candidates the study already had, with the candidate's name.
        passed_over: the skipped folders, each with the reason.
    """

    taken: Sequence[Taken]
    known: Sequence[tuple[str, str]]
    passed_over: Sequence[PassedOver]

    def to_json(self) -> dict[str, Any]:
        """The same as data."""
        return {
            "taken": [asdict(taken) for taken in self.taken],
            "known": [{"name": name, "candidate": candidate} for name, candidate in self.known],
            "passed_over": [asdict(folder) for folder in self.passed_over],
        }


def import_results(store: Store, study: StoredStudy, folder: Path) -> Imported:
    """Imports the experiments in a results folder that are in the study's space.

    Raises:
        DsoptError: the folder contains no experiment, or the study is finished.
    """
    study.check_trust()
    experiments, passed_over = read_results(folder)
    with exclusive(store.engine, f"study-{study.id}"):
        state = store.state(study)
        if state is None:
            raise DsoptError(f"study '{study.name}' has been deleted in the meantime.")
        if state == "finished":
            raise DsoptError(
                f"study '{study.name}' is finished: an import would change nothing. "
                "Import into a new one: dsopt study create FILE --name NAME"
            )
        history = load_history(store, study)
        trials: dict[str, ImportedTrial] = {}
        for experiment in experiments:
            trial = _trial(study.spec, history, experiment)
            if isinstance(trial, NotInSpace):
                passed_over.append(PassedOver(name=experiment.name, why=trial.why))
            else:
                trials[experiment.name] = trial
        kept = keep_imported(store, study, list(trials.values()))
    return Imported(
        taken=[_taken(name, trial) for name, trial in trials.items() if trial in kept],
        known=[(name, trial.candidate) for name, trial in trials.items() if trial not in kept],
        passed_over=sorted(passed_over, key=lambda folder: folder.name),
    )


def _taken(name: str, trial: ImportedTrial) -> Taken:
    state: Literal["measured", "infeasible"] = "infeasible" if trial.value is None else "measured"
    return Taken(name=name, candidate=trial.candidate, state=state, value=trial.value)


def _trial(spec: StudySpec, history: History, experiment: Experiment) -> ImportedTrial | NotInSpace:
    """The trial that an experiment becomes."""
    stage = stage_of(experiment.run)
    if isinstance(stage, bool) or not isinstance(stage, int) or stage not in spec.stages:
        listed = ", ".join(str(known) for known in spec.stages)
        return NotInSpace(why=f"zero_optimization.stage is {stage}; the study tries {listed}")
    if stage in history.verdicts:
        return NotInSpace(why=f"the study has already closed ZeRO {stage}: {history.verdicts[stage]}")
    space = _space(spec, history, stage)
    if isinstance(space, NotInSpace):
        return space
    facts = history.facts_for(spec)
    if spec.global_batch == "keep" and facts is None:
        return NotInSpace(why="the study keeps your global batch, which no run has shown: import again after one has")
    gases = accumulations(spec, facts) if facts else spec.accumulation_list or (own_size(spec, ACCUMULATION),)
    ranks = spec.resources.ranks or (facts.world_size // spec.resources.nodes if facts else None)
    candidate = candidate_of(spec, space, experiment.run, gases=gases, ranks=ranks)
    if isinstance(candidate, NotInSpace):
        return candidate
    if spec.global_batch == "keep" and facts is not None and not is_tried(spec, facts, candidate):
        return NotInSpace(why="the study keeps your global batch, and its own is another one")
    if max(candidate.micro_batch, candidate.gas) > LARGEST:
        return NotInSpace(why=f"no study tries sizes above {LARGEST}")
    metric = spec.autotuning.metric
    if experiment.out_of_memory is None and metric not in experiment.figures:
        return NotInSpace(why=f"its metrics.json has no figure for the study's metric, {metric}")
    return ImportedTrial(
        part=Part.of(stage),
        candidate=candidate.name,
        params=candidate.params,
        distributions=distributions(space),
        value=None if experiment.out_of_memory else experiment.figures[metric],
        message=experiment.out_of_memory or "",
        source=str(experiment.folder),
    )


def _space(spec: StudySpec, history: History, stage: int) -> StageSpace | NotInSpace:
    """The space of a stage, once it is known: all trials of a stage must have the same choices in Optuna."""
    facts = history.facts_for(spec)
    if facts is not None:
        return spec.space(stage, facts.hidden_size)
    info = spec.autotuning.model_info
    space = spec.space(stage)
    if (info is None or info.hidden_size is None) and space.knobs != spec.space(stage, hidden_size=1).knobs:
        return NotInSpace(
            why=f"the choices at ZeRO {stage} depend on the model's hidden size; import again after the study's "
            "baseline has run, which shows it, or give autotuning.model_info"
        )
    return space
