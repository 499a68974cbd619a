"""Why a run failed: what its ranks raised, or how it ended without an exception."""

import re
from pathlib import Path

from dsopt.experiment.contradiction import refused_sizes
from dsopt.experiment.hardware import not_its_fault
from dsopt.experiment.outcome import Failed, Infeasible, Outcome
from dsopt.experiment.plain import NO_PLAIN_STEP
from dsopt.experiment.reason import in_one_line, raised_by
from dsopt.experiment.remedy import remedy
from dsopt.experiment.rules import RunRules
from dsopt.experiment.seen import Seen
from dsopt.launch.launch import Launch
from dsopt.protocol.events import Error, Oom
from dsopt.protocol.out_of_memory import is_of_the_host

_LESS = "Offload less, use fewer data loader workers, or give the node more memory."
_STEPS_HINT = 20  # what most runs need to be measured
# what refuses in these modules before an engine exists got a configuration that it cannot use
_CONFIG_READERS = re.compile(
    r"pydantic|transformers\.integrations\.deepspeed|deepspeed\..*config"
    r"|deepspeed\.(runtime|module_inject|moe|sequence|pipe|elasticity|compression|utils\.groups)\b"
)

# modules that refuse what their stage cannot do with these settings, such as ZeRO 3 with a pipeline, whatever the sizes
_ENGINES = ("deepspeed.runtime.engine", "deepspeed.runtime.pipe.", "deepspeed.runtime.zero.", "deepspeed.runtime.bf16_")

# what raises in these modules is about training, apart from what reads files
_TRAINERS = ("deepspeed.", "torch.")
_READERS = ("torch.serialization",)

# how they do it; what a device or a library below raises is no refusal
_REFUSALS = ("AssertionError", "AttributeError", "KeyError", "NotImplementedError", "TypeError", "ValueError")
_CONFIG_REFUSALS = (*_REFUSALS, "DeepSpeedConfigError", "ValidationError", "ZeRORuntimeException")

# what they say that only this machine, or its present state, refuses
_OF_THE_MACHINE = re.compile(
    r"\b(your|this) (device|setup)\b|\b(cuda|driver)\b|\bnot (being )?installed\b|\bplease install\b", re.IGNORECASE
)
_GIVEN = re.compile(r"\[type=[^\]]*\]")  # Pydantic's echo of a value, which may have such words

# what a rank says whose peer, or whose data loader's worker, is gone
_LOST = re.compile(r"connection|\bpeer\b|socket|broken pipe|nccl|gloo|killed by signal", re.IGNORECASE)

# what a script says that was refused access
_NO_ACCESS = re.compile(
    r"\b40[13]\b|unauthori[sz]ed|forbidden|gated repo|credential|access denied|authenticat|not logged in", re.IGNORECASE
)

# what a script says that wants a folder of its own for each training
_REFUSES_FOLDER = re.compile(r"\b(dir|directory|folder|path)\b.*\b(exists|not empty)\b", re.IGNORECASE)

# deepspeed/runtime/fp16/loss_scaler.py, at ZeRO 1 and above: the loss scale is 1, and the step overflowed again
_NO_SCALE_LEFT = "Current loss scale already at minimum"


def problem(seen: Seen, last_output: str, rules: RunRules, launch: Launch) -> Outcome:
    """What the first rank that failed raised. Other ranks often fail only because that one is gone."""
    first = min(seen.problems, key=lambda p: p.time)
    oom = next((p for p in seen.problems if isinstance(p, Oom)), None)
    if oom is not None:
        told = f"rank {oom.rank}: {in_one_line(oom.message)}"
        if is_of_the_host(oom.message) and launch.devices.kind == "gpu":  # elsewhere that is the device's
            return Infeasible(reason="host_oom", message=f"the host's memory was full: {told} {_LESS} {_log(launch)}")
        return Infeasible(reason="oom", message=f"{told} {_log(launch)}")
    failed = not_its_fault(seen, launch)
    if failed is not None:
        return failed
    assert isinstance(first, Error)
    refusal = refused_sizes(first.message, rules, launch.command)
    if refusal is not None:
        return refusal
    raised = raised_by(first)
    if first.type == "SystemExit" and last_output:  # a script that ends itself has already said why, as argparse does
        raised += f" Last output: {last_output}"
    if _NO_SCALE_LEFT in first.message:
        return Infeasible(reason="overflow", message=f"{raised} {remedy('fp16')} {_log(launch)}")
    hints = _without_checkpoints(seen, launch) + _without_secrets(f"{first.type} {first.message} {last_output}", launch)
    message = f"{raised} {hints}{_refused_folder(first, launch)}{_log(launch)}"
    if _OF_THE_MACHINE.search(_GIVEN.sub("", first.message)):
        return Failed(reason="crash", message=message)
    if not seen.steps and first.origin.startswith(_ENGINES) and first.type in _REFUSALS:
        return Infeasible(reason="unsupported", message=message)
    if seen.engine is None and _CONFIG_READERS.match(first.origin) and first.type in _CONFIG_REFUSALS:
        return Infeasible(reason="invalid_config", message=message)
    return Failed(reason="crash", message=message)


def only_lacks_a_save(seen: Seen, launch: Launch) -> bool:
    """Whether a script raised something of its own after a save that was skipped, such as for want of the file.

    What a device, a peer, the machine or DeepSpeed raises has nothing to do with that.
    """
    first = min(seen.problems, key=lambda p: p.time)
    return (
        any("save" in what for what in seen.unsaved)
        and all(isinstance(told, Error) for told in seen.problems)
        and isinstance(first, Error)
        and (first.origin.startswith(_READERS) or not first.origin.startswith(_TRAINERS))
        and _NO_SCALE_LEFT not in first.message
        and not_its_fault(seen, launch) is None
    )


def _without_checkpoints(seen: Seen, launch: Launch) -> str:
    """A hint for a script that asked for a checkpoint before it raised, or believed to have saved one."""
    if seen.withheld:
        what, path = seen.withheld[0]
        flag = _flag_with(launch.cwd / path, launch) if path else None
        own = "" if flag is None else f"{flag} names their folder: give each run its own with --isolate={flag}. Or let"
        return (
            f"An experiment starts without checkpoints: {what} found none. "
            f"{own or 'Let'} the script continue without one, as in its first training. "
        )
    if seen.unsaved:
        skipped = seen.unsaved[0]
        return f"An experiment saves nothing: {skipped} was skipped. Let the script bear that its file is not there. "
    return ""


def _refused_folder(first: Error, launch: Launch) -> str:
    """A hint for a script that refuses a folder which is there, maybe from an earlier run."""
    if first.type != "FileExistsError" and not _REFUSES_FOLDER.search(first.message):
        return ""
    path = re.search(r"'([^']+)'", first.message)
    flag = _flag_with(launch.cwd / path[1], launch) if path else None
    return (
        "An earlier run may have made it: what a script makes before its first step stays, unless it saves weights "
        f"there. Give each run its own folder with --isolate={flag or 'FLAG'}. "
    )


def _flag_with(path: Path, launch: Launch) -> str | None:
    """The flag of the script whose value is this path, or a folder above it."""
    values = ((flag, launch.command.script_value(flag)) for flag in launch.command.given_flags)
    return next((flag for flag, value in values if value and path.is_relative_to(launch.cwd / value)), None)


def _without_secrets(said: str, launch: Launch) -> str:
    """A hint for a script that seems to miss a variable which looks like a secret."""
    names = launch.withheld
    missed = [name for name in names if name in said] or (names if _NO_ACCESS.search(said) else [])
    if not missed:
        return ""
    return f"Runs do not get {', '.join(missed)}, which may be a secret. If the script needs it, list it in pass_env. "


def host_oom(seen: Seen, kills: int, launch: Launch) -> Infeasible | None:
    """The outcome of a run that failed while the kernel killed processes for want of host memory.

    The ranks that are left then often fail for lack of the one that is gone. What else a rank has raised is its own
    fault: others may have been killed.
    """
    if not kills or not all(isinstance(told, Error) and _LOST.search(told.message) for told in seen.problems):
        return None
    return Infeasible(
        reason="host_oom",
        message=f"the host's memory was full, and the kernel killed {kills} process{'es' if kills > 1 else ''}; "
        f"{stage_reached(seen, launch)}. {_LESS} {_log(launch)}",
    )


def ended(seen: Seen, exit_code: int, last_output: str, launch: Launch) -> Failed:
    """The launcher ended before dsopt could measure anything, and no rank said why."""
    log = launch.run_dir.stderr
    ended_well = exit_code == 0 or seen.ended  # torch may abort a process that has finished its work
    if ended_well and seen.engine is None and launch.plain is not None:
        return Failed(reason="no_metrics", message=f"{NO_PLAIN_STEP} Log: {launch.run_dir.stdout}")
    if ended_well and seen.engine is None:
        return Failed(
            reason="no_metrics",
            message=f"the script ended without calling deepspeed.initialize with an optimizer. "
            f"dsopt tunes scripts that train with DeepSpeed. Log: {launch.run_dir.stdout}",
        )
    if ended_well:
        return Failed(
            reason="no_metrics",
            message=f"the script ended after {len(seen.steps)} optimizer steps, before dsopt could measure it. "
            f"Let it train for at least {_STEPS_HINT} steps. Log: {launch.run_dir.stdout}",
        )
    if "No module named dsopt" in last_output or "No module named 'dsopt'" in last_output:
        return Failed(
            reason="crash",
            message=f"the Python that '{launch.command.program[0]}' uses cannot import dsopt. "
            f"Install dsopt in the training environment too. Log: {log}",
        )
    how = f"was ended by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
    hint = " Signal 9 is often the kernel's out-of-memory killer." if exit_code in (-9, 137) else ""
    return Failed(
        reason="crash",
        message=f"the launcher {how}; {stage_reached(seen, launch)}.{hint} Last output: {last_output} Log: {log}",
        retryable=True,
    )


def stage_reached(seen: Seen, launch: Launch) -> str:
    """How far a run got, as a clause."""
    if seen.steps and seen.engine is None:
        return f"the script had told of {len(seen.steps)} steps, and of no engine as docs/run-protocol.md has it,"
    if seen.steps:
        return f"the script had done only {len(seen.steps)} optimizer steps"
    if launch.plain is not None:
        return "the script had not done an optimizer step"
    return "the first optimizer step had not ended" if seen.engine else "the script had not built DeepSpeed's engine"


def _log(launch: Launch) -> str:
    return f"Log: {launch.run_dir.stderr}"
