"""Checks that a script used the sizes and the ZeRO stage that it got, and says what to do if it did not."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from dsopt.experiment.batches import SAME, elements_stay, mean_elements, usual_passes, usual_rows
from dsopt.experiment.outcome import Infeasible, InfeasibleReason
from dsopt.experiment.rules import OwnSizes, RunRules
from dsopt.experiment.seen import Seen
from dsopt.protocol.text import significant
from dsopt.study.command import LaunchCommand
from dsopt.study.own_settings import settings_in
from dsopt.study.script_flags import same_flag
from dsopt.study.space import ACCUMULATION, MICRO_BATCH

_REASONS: Mapping[str, InfeasibleReason] = {MICRO_BATCH: "fixed_batch", ACCUMULATION: "fixed_accumulation"}
_NAMES = {MICRO_BATCH: "batch size", ACCUMULATION: "number of accumulation steps"}
# transformers/integrations/deepspeed.py: a line for each value that contradicts the Trainer's
_TRAINER = "mismatch TrainingArguments"
_MISMATCH = re.compile(r"- ds (\S+)=\S+ vs hf (\S+)=(\S+)")
# deepspeed/runtime/config.py: the script sets the whole batch
_WHOLE_BATCH = "train_batch_size is not equal to micro_batch_per_gpu"
# what `fixed` writes if it knows the one flag to map
_MAPPED: Final = re.compile(r"Map it: " + re.escape('"autotuning": {"arg_mappings": {"') + r'([^"]+)": "([^"]+)"')
_FAR: Final = 8  # times the size
_MOST_UNLIKE: Final = 0.35  # of the rows, missing in steps that were fed less than most
_FEWEST_TO_COUNT: Final = 12  # steps of which that is a share


def contradiction(seen: Seen, rules: RunRules, command: LaunchCommand) -> Infeasible | None:
    """Why a run is not the candidate's, from its engine and its first batch."""
    if seen.engine is None:
        return None
    first, other = (seen.steps[0].samples, seen.steps[-1].samples) if seen.steps else (0, 0)
    if first != other:  # each step is judged when it is the last one
        return Infeasible(
            reason="invalid_config",
            message=f"the script changed its batch during the run, from {first} to {other} samples a step, so its step "
            "times do not belong together. Let it keep one size, such as without a ramp-up or set_train_batch_size.",
        )
    if rules.expected is None:
        return _other_sizes(seen, seen.engine.micro_batch, seen.engine.gas, rules, command)
    asked = (rules.expected.stage, rules.expected.micro_batch, rules.expected.gas)
    built = (seen.engine.zero_stage, seen.engine.micro_batch, seen.engine.gas)
    if asked == built:
        set_itself = settings_in(seen.engine.own_settings)
        for path in sorted(rules.varied & set_itself.keys()):
            return _fixed_setting(path, set_itself[path])
        return _other_sizes(seen, rules.expected.micro_batch, rules.expected.gas, rules, command)
    if rules.own is not None and asked[0] == built[0]:
        own_sizes = (rules.own.micro_batch, rules.own.gas)
        for key, found, given, own in zip(_REASONS, built[1:], asked[1:], own_sizes, strict=True):
            if found == own != given:
                what = f"the script built its engine with {found}, as in your own run, although {key} is {given}"
                return fixed(what, key, str(found), rules, command)
    return Infeasible(
        reason="invalid_config",
        message="the script trains with ZeRO stage {}, micro-batch {}, accumulation {}, ".format(*built)
        + "not with {}, {}, {} as configured. ".format(*asked)
        + "Let it read DeepSpeed's configuration from the command's --deepspeed_config or --deepspeed, "
        "name the flags that override it in autotuning.arg_mappings, and change no size by set_train_batch_size.",
    )


def _fixed_setting(path: str, value: object) -> Infeasible:
    return Infeasible(
        reason="fixed_setting",
        message=f"the script set {path} itself, to {json.dumps(value)}, whatever its configuration says, so this run "
        "is not the candidate's. In this study it stays as it is in your configuration. To tune it, let the script "
        "leave it to DeepSpeed's configuration, and tune in a new study.",
    )


def refused_sizes(message: str, rules: RunRules, command: LaunchCommand) -> Infeasible | None:
    """The same if the Trainer or DeepSpeed raised, because the script's sizes contradict those that it got."""
    if rules.expected is None:
        return None
    for key, argument, value in _MISMATCH.findall(message) if _TRAINER in message else ():
        if key in _REASONS:
            what = f"the Trainer refused {key}, because its own {argument} is {value}"
            return fixed(what, key, value, rules, command, flag=f"--{argument}")
    if _WHOLE_BATCH in message and rules.own is not None:
        asked, own = rules.expected.micro_batch, rules.own.micro_batch
        key, value = (MICRO_BATCH, own) if asked != own else (ACCUMULATION, rules.own.gas)
        what = "DeepSpeed refused a train_batch_size that the script sets itself"
        return fixed(what, key, str(value), rules, command)
    return None


def fixed(
    what: str, key: str, value: str, rules: RunRules, command: LaunchCommand, *, flag: str | None = None
) -> Infeasible:
    """The refusal of a candidate whose script has its own size, with the line that maps its flag.

    Args:
        what: what dsopt saw.
        key: the size, by its key in DeepSpeed's configuration.
        value: the script's value.
        rules: say which flags are already mapped.
        command: the command as it was run.
        flag: the flag that sets the size, if known.
    """
    name, mapped = _NAMES[key], rules.arg_mappings.get(key)
    flags = [flag] if flag is not None else _flags_with(value, command, rules.arg_mappings)
    if mapped is not None:
        what += f" ({mapped}, which is mapped to it, has no effect)"
    typed = " and ".join(f"'{each} {value}'" for each in flags)
    if flag is not None:
        found = "Map it:"
    elif not flags:
        found = (
            "No flag of your command has that value, so it is a flag's default or fixed in the script. "
            "Let the script take it from a flag, and map that one:"
        )
    elif len(flags) == 1:
        found = f"{typed} in your command has that value. Map it:"
    else:
        found = f"{typed} in your command have that value. Map the one that sets it:"
    line = f'"autotuning": {{"arg_mappings": {{"{key}": "{flags[0] if flags else "--FLAG"}"}}}}'
    return Infeasible(
        reason=_REASONS[key],
        message=f"{what}: it has its own {name}. {found} {line} (in the study file or in DeepSpeed's "
        f"configuration), and tune in a new study. In this one the {name} stays {value}.",
    )


def mappings_in(messages: str) -> dict[str, str]:
    """The flags to map, by their keys, that refusals name; none where it was not clear which flag has the size."""
    return dict(_MAPPED.findall(messages))


def _other_sizes(seen: Seen, micro_batch: int, gas: int, rules: RunRules, command: LaunchCommand) -> Infeasible | None:
    """The refusal if what the script feeds does not follow the sizes of its engine."""
    if rules.own is not None and 0 < seen.samples < micro_batch:
        what = f"the data set has {seen.samples} samples for each rank, fewer than a micro-batch of {micro_batch}"
        return _too_few(f"{what}, so the script repeats them or feeds fewer")
    of_batch = _other_batch(seen, micro_batch, rules, command)
    of_batch = of_batch or _other_means(seen, micro_batch, gas, rules, command)
    return of_batch or _other_passes(seen, micro_batch, gas, rules, command)


def _other_batch(seen: Seen, asked: int, rules: RunRules, command: LaunchCommand) -> Infeasible | None:
    """The refusal if the batches that the script feeds do not follow the micro-batch size.

    The engine believes its configuration and would count samples that never existed. Rows are not always samples:
    sequences may be packed into one, samples come in pairs, the first dimension may be the length. So a batch is that
    of the user's own run only if it has the same rows, and, unless rows were samples there, as many elements.
    """
    own = rules.own
    if own is None or not (seen.rows and own.rows) or asked == own.micro_batch:
        return None
    are_samples = own.rows == own.micro_batch > 1
    what = f"the script fed batches of {seen.rows}"
    split = _split(seen, asked, own, rules, command) if are_samples else None
    if split is not None and seen.rows != own.rows:
        return Infeasible(reason="fixed_batch", message=f"{what}, although its configuration says {asked}: {split}")
    if seen.rows == own.rows and (are_samples or not _has_grown(seen.elements, own, asked)):
        what += f", as in {own.whose}, although its configuration says {asked}"
        refused = fixed(what, MICRO_BATCH, str(own.rows), rules, command)
        return refused if split is None else replace(refused, message=f"{refused.message} Or {split}")
    if seen.rows < asked and are_samples:
        return _too_few(f"{what}, although its configuration says {asked}")
    return None


def _split(seen: Seen, asked: int, own: OwnSizes, rules: RunRules, command: LaunchCommand) -> str | None:
    """What to do about a script that divides the mapped flag's samples among its ranks; None if it does not seem to.

    It has done so in the user's own run, too: one that fed there what its flag says has a limit of its own.
    """
    flag, ranks = rules.arg_mappings.get(MICRO_BATCH), 0 if seen.engine is None else seen.engine.world_size
    fed = ((own.rows, rules.own_flag), (seen.rows, str(asked)))
    if flag is None or ranks < 2 or any(str(rows * ranks) != typed for rows, typed in fed):
        return None
    if command.script_value(flag) != str(asked):
        return None
    return (
        f"it seems to divide {flag} {asked} among {ranks} ranks, as with Accelerate's split_batches. Let it feed that "
        f'to each rank, or, where it does not accumulate, map "train_batch_size" to {flag} in place of '
        f'"{MICRO_BATCH}", and tune in a new study. In this one the batch size stays as it is.'
    )


def _other_means(seen: Seen, micro_batch: int, gas: int, rules: RunRules, command: LaunchCommand) -> Infeasible | None:
    """The refusal if the elements of batches do not follow the micro-batch size, where rows cannot tell.

    Batches of many sizes may be those of a number of tokens. Rows that are the user's own, and no samples there, may be
    a batch of the script's own or the length. One row may hold all samples of a batch, or be the only one.
    """
    own, steps = rules.own, seen.steps
    if own is None or micro_batch == own.micro_batch or not own.step_elements or not mean_elements(steps):
        return None
    are_rows_own = 0 < seen.rows == own.rows
    if not are_rows_own and own.rows and usual_rows(steps) >= 0:
        return None
    before, ratio = own.step_elements / own.gas * gas, micro_batch / own.micro_batch
    if not elements_stay(steps, before, ratio, may_grow_otherwise=are_rows_own and own.rows > 1):
        return None
    now, then = (significant(elements / gas, 3) for elements in (mean_elements(steps), before))
    what = f"the script fed {now} elements a micro-step, about as many as in {own.whose} ({then}), although its "
    what += f"configuration says {significant(ratio, 3)} times as many samples"
    return fixed(what, MICRO_BATCH, str(own.micro_batch), rules, command)


def _has_grown(elements: int, own: OwnSizes, asked: int) -> bool:
    """Whether a batch of as many rows has other elements, as its size lets expect; true if that was not seen.

    Samples differ in length, so where they are packed into one row, only sizes that are far from each other say how
    many there must be.
    """
    if not (elements and own.elements and own.micro_batch):
        return True
    ratio, growth = asked / own.micro_batch, elements / own.elements
    if own.rows > 1 or 1 / _FAR < ratio < _FAR:
        return abs(growth - 1) > SAME
    return growth >= math.sqrt(ratio) if ratio > 1 else growth <= math.sqrt(ratio)


def _too_few(what: str) -> Infeasible:
    """The refusal of a run that was fed fewer samples than its engine counts."""
    return Infeasible(
        reason="few_samples",
        message=f"{what}. Its figures would be of samples that were never there. Perhaps the data set has too few, or "
        "the script accumulates by itself: use one that is large enough, and let DeepSpeed's configuration decide.",
    )


def _other_passes(seen: Seen, micro_batch: int, gas: int, rules: RunRules, command: LaunchCommand) -> Infeasible | None:
    """The refusal if steps have other forward passes, or fewer rows, than accumulation and the own run let expect.

    A script may do several passes for one micro-step, as with two losses, or some for each step. One that accumulates
    by itself, or steps at the end of each epoch, feeds fewer samples than the engine counts. One that goes on when
    memory runs out leaves out the long ones.
    """
    passes, own = usual_passes(seen.steps), rules.own
    if seen.engine is None or seen.engine.framework != "deepspeed" or passes <= 0:
        return None
    rows = usual_rows(seen.steps)
    fewer = [step.rows for step in seen.steps if 0 < step.rows < rows and step.passes == passes]
    lacking = sum(1 - of_it / rows for of_it in fewer)  # in steps
    if own is not None and len(seen.steps) >= _FEWEST_TO_COUNT and lacking > _MOST_UNLIKE * len(seen.steps):
        of = f"{len(fewer)} of {len(seen.steps)} steps"
        return _too_few(f"{of} were fed less than the others, as at the ends of short epochs")
    if seen.rows == micro_batch > 1 and passes == gas and 0 < rows < passes * micro_batch:
        return _too_few(f"the script fed {rows} samples in most steps, where {passes} of {micro_batch} belong")
    if own is None or not own.passes:
        needed = gas if own is None else 0
    else:
        needed, most = sorted((own.passes * gas // own.gas, own.passes + gas - own.gas))
        if passes > most:
            return Infeasible(
                reason="few_samples",
                message=f"the script did {passes} forward passes in most optimizer steps, {own.passes} in {own.whose}. "
                "So it throws batches away, as one that goes on when memory runs out, and the others are no fair "
                "sample. Let it raise the error.",
            )
    if passes >= needed:
        return None
    what = f"the script did {passes} forward passes in an optimizer step, where accumulation {gas} needs {needed}"
    if own is not None and passes * micro_batch == own.passes * own.micro_batch and micro_batch != own.micro_batch:
        what += f", and so fed as many samples as in {own.whose}, with {own.micro_batch}"
        return fixed(what, MICRO_BATCH, str(own.micro_batch), rules, command)
    if own is not None and own.micro_batch == micro_batch and passes == own.passes:
        return fixed(f"{what}, as many as in {own.whose}", ACCUMULATION, str(own.gas), rules, command)
    return _too_few(what)


def _flags_with(value: str, command: LaunchCommand, mappings: Mapping[str, str]) -> list[str]:
    """The script's unmapped flags that have this value; only those that name a batch, if any does."""
    flags = [
        flag
        for flag in command.given_flags
        if command.script_value(flag) == value and not any(same_flag(flag, mapped) for mapped in mappings.values())
    ]
    return [flag for flag in flags if "batch" in flag] or flags
