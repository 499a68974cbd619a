"""What a study may try, in words, before its first run: a space that is narrower than its user thinks says so."""

from collections.abc import Sequence
from typing import Final

from dsopt.report.first_run import memory_lines_before
from dsopt.report.left import time_range
from dsopt.report.own_run import first_values
from dsopt.search.how_many import others_before
from dsopt.study.ds_config import TRAIN_BATCH, get_path
from dsopt.study.own_sizes import keeps_accumulation, own_size, smallest_micro_batch
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, ZERO
from dsopt.study.spec import StudySpec

_FEW: Final = 8  # candidates; with so few, what limits their sizes is worth a word


def space_lines(spec: StudySpec) -> list[str]:
    """Stages, sizes, dimensions and the limit of a run; how to widen it, and what would help where memory is short.

    Nothing for a comparison.
    """
    if spec.compare:
        return []
    keys = dict.fromkeys(key for stage in spec.stages for key, values in spec.space(stage).knobs.items() if values[1:])
    parts = [_stages(spec.stages), _micro_batches(spec), _accumulations(spec)]
    if spec.global_batch == "keep":
        parts[2] = "accumulation as your own global batch needs it"
    if keys:
        parts.append(f"values of {_listed([key.removeprefix(ZERO) for key in keys])}")
    lines = [f"It searches {'; '.join(parts)}{_runs(spec)}"]
    first = first_values(spec)
    lines += [f"Your own run, to compare with, has the first value of each list: {first}."] if first else []
    if spec.simulation is None:
        limit = time_range(spec.timeout_seconds, spec.timeout_seconds)
        lines.append(f"A run takes at most {limit} (timeout_seconds); the first one shows how long it all takes.")
    lines += filter(None, [wider(spec)])
    return lines + memory_lines_before(spec)


def _runs(spec: StudySpec) -> str:
    """How many candidates there are, where the study limits them, and how many runs that is at most."""
    each, others = spec.autotuning.tuner_num_trials, others_before(spec)
    if others is None:
        places = " at each stage, and" if len(spec.stages) > 1 else " and"
        return f"; at most {_counted(each, 'run')}{places} what runs again."
    usual, every = (sum(counts) for counts in zip(*((o.usual, o.all) for o in others.values()), strict=True))
    if not usual:
        alone = ". Your own configuration is the only candidate"
        if not every:
            return f"{alone}, so there is nothing to compare it with."
        return f"{alone}, unless it runs out of memory: then dsopt tries up to {every} with smaller micro-batch sizes."
    counted = str(every) if usual == every else f"{usual} to {every}"
    most = sum(min(each, stage.all) for stage in others.values())
    candidates = f"{counted} other candidate{'s' * (every != 1)}"
    return f". That is your own configuration and {candidates}: at most {_counted(most, 'run')} and what runs again."


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def _stages(stages: Sequence[int]) -> str:
    if len(stages) == 1:
        return f"ZeRO {stages[0]} only"
    if len(stages) > 2 and list(stages) == list(range(stages[0], stages[-1] + 1)):
        return f"ZeRO {stages[0]} to {stages[-1]}"
    return f"ZeRO {_listed([str(stage) for stage in stages])}"


def _micro_batches(spec: StudySpec) -> str:
    listed, most = spec.micro_batch_list, spec.autotuning.max_train_micro_batch_size_per_gpu
    if listed is not None:
        return f"micro-batch size{'s' if listed[1:] else ''} {_listed([str(size) for size in listed])}"
    least = smallest_micro_batch(spec)
    if most is not None and least >= most:
        return f"micro-batch size {most}"
    return f"micro-batch sizes from {least}" + (f" to {most}" if most is not None else "")


def _accumulations(spec: StudySpec) -> str:
    if keeps_accumulation(spec):
        return f"accumulation {own_size(spec, ACCUMULATION)} only"
    listed = spec.accumulation_list
    if listed is not None:
        return f"accumulation {_listed([str(gas) for gas in listed])}"
    fills = ", and the one that fills max_train_batch_size" if spec.autotuning.max_train_batch_size is not None else ""
    return f"your own accumulation{fills}"


def wider(spec: StudySpec) -> str:
    """What to write instead of what fixes stage, accumulation, or sizes; empty if nothing does.

    The user's own run has the first value of a list. Limits of sizes are named where few candidates are left.
    """
    ways = []
    stage, gas = get_path(spec.ds_config, f"{ZERO}stage"), spec.ds_config.get(ACCUMULATION)
    if isinstance(stage, int):
        ways.append(f'"zero_optimization": {{"stage": {[stage, *(other for other in range(4) if other != stage)]}}}')
    if gas is None and not keeps_accumulation(spec) and TRAIN_BATCH not in spec.ds_config:
        gas = 1  # DeepSpeed's own
    if isinstance(gas, int) and spec.global_batch != "keep":
        ways.append(f'"{ACCUMULATION}": {[gas, *(other for other in (1, 2, 4, 8) if other != gas)]}')
    others = others_before(spec)
    are_few = others is not None and sum(stage.usual for stage in others.values()) <= _FEW
    if are_few:
        ways += _wider_sizes(spec)
    told = [f"write in DeepSpeed's configuration: {' or '.join(ways)}"] if ways else []
    if are_few and spec.global_batch == "keep":
        told.append("do without --keep-global-batch (global_batch: keep)")
    return f"To try more, under another --name, {', or '.join(told)}." if told else ""


def _wider_sizes(spec: StudySpec) -> list[str]:
    """How to try more micro-batch sizes than the study allows."""
    if spec.micro_batch_list is not None:
        return [f'more sizes in "{MICRO_BATCH}": {spec.ds_config[MICRO_BATCH]}']
    limits = ("max_train_micro_batch_size_per_gpu", "max_train_batch_size")
    given = {key: getattr(spec.autotuning, key) for key in limits}
    return [f'a larger "{key}" than {value}, or none' for key, value in given.items() if value is not None]


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
