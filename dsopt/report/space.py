"""What a study may try, in words, before its first run: a space that is narrower than its user thinks says so."""

from collections.abc import Sequence

from dsopt.report.first_run import memory_lines_before
from dsopt.report.left import time_range
from dsopt.report.own_run import first_values
from dsopt.study.ds_config import get_path
from dsopt.study.own_sizes import keeps_accumulation, own_size, smallest_micro_batch
from dsopt.study.space import ACCUMULATION, ZERO
from dsopt.study.spec import StudySpec


def space_lines(spec: StudySpec) -> list[str]:
    """Stages, sizes, dimensions and the limit of a run; how to widen it, and what would help where memory is short.

    Nothing for a comparison.
    """
    if spec.compare:
        return []
    keys = dict.fromkeys(key for stage in spec.stages for key, values in spec.space(stage).knobs.items() if values[1:])
    most = spec.autotuning.tuner_num_trials
    each = " at each stage, and" if len(spec.stages) > 1 else " and"
    runs = f"{most} run{'s' * (most != 1)}{each} the"
    parts = [_stages(spec.stages), _micro_batches(spec), _accumulations(spec)]
    if spec.global_batch == "keep":
        parts[2] = "accumulation as your own global batch needs it"
    if keys:
        parts.append(f"values of {_listed([key.removeprefix(ZERO) for key in keys])}")
    lines = [f"It searches {'; '.join(parts)}; at most {runs} confirmation."]
    first = first_values(spec)
    lines += [f"Your own run, to compare with, has the first value of each list: {first}."] if first else []
    if spec.simulation is None:
        limit = time_range(spec.timeout_seconds, spec.timeout_seconds)
        lines.append(f"A run takes at most {limit} (timeout_seconds); the first one shows how long it all takes.")
    lines += [f"To try more: {wider}." for wider in [_wider(spec)] if wider]
    return lines + memory_lines_before(spec)


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
    return f"micro-batch sizes from {smallest_micro_batch(spec)}" + (f" to {most}" if most is not None else "")


def _accumulations(spec: StudySpec) -> str:
    if keeps_accumulation(spec):
        return f"accumulation {own_size(spec, ACCUMULATION)} only"
    listed = spec.accumulation_list
    return "accumulation as it pays" if listed is None else f"accumulation {_listed([str(gas) for gas in listed])}"


def _wider(spec: StudySpec) -> str:
    """What to write in DeepSpeed's configuration instead of what fixes stage and accumulation.

    The user's own run has the first value of a list.
    """
    ways = []
    stage, gas = get_path(spec.ds_config, f"{ZERO}stage"), spec.ds_config.get(ACCUMULATION)
    if isinstance(stage, int):
        ways.append(f'"stage": {[stage, *(other for other in range(4) if other != stage)]}')
    if isinstance(gas, int) and spec.global_batch != "keep":
        ways.append(f'"{ACCUMULATION}": {[gas, *(other for other in (1, 2, 4, 8) if other != gas)]}')
    return " or ".join(ways)


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
