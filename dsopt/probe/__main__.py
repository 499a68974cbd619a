"""The program that wraps the user's script: sets the memory limit, hooks DeepSpeed, keeps the script away from the
user's checkpoints, runs it."""

import os
import runpy
import sys
from pathlib import Path

from dsopt.probe.device import HostDevice
from dsopt.probe.engine import EngineObserver
from dsopt.probe.imported import ImportRecord
from dsopt.probe.imports import after_import
from dsopt.probe.isolation import Isolation
from dsopt.probe.loaders import Loaders
from dsopt.probe.plain import PlainObserver
from dsopt.probe.sources import OwnFiles
from dsopt.protocol.events import End, Error, EventWriter, Oom, now
from dsopt.protocol.out_of_memory import is_out_of_memory, shown
from dsopt.protocol.run_dir import (
    COUNT_FLOPS_VARIABLE,
    DEVICE_KIND_VARIABLE,
    MEMORY_LIMIT_VARIABLE,
    PLAIN_VARIABLE,
    from_environment,
)


def main(isolation: Isolation | None = None) -> None:
    """Runs the script named in `sys.argv` as if the launcher had started it itself.

    Args:
        isolation: made before modules were imported beforehand (`warm.py`); imports then say nothing about the script.
    """
    target, is_module, argv = split_arguments(sys.argv[1:])
    run_dir = from_environment()
    if run_dir is None:
        run_script(target, is_module, argv)
        return
    limit = int(os.environ.get(MEMORY_LIMIT_VARIABLE, 0))
    if limit and os.environ.get(DEVICE_KIND_VARIABLE) == "cpu":
        HostDevice().limit_memory(limit)  # before torch is loaded
    writer = EventWriter(run_dir, int(os.environ.get("RANK", 0)))
    loaders, asked, counts = Loaders(), run_dir.ds_config, bool(os.environ.get(COUNT_FLOPS_VARIABLE))
    observer = EngineObserver(writer, memory_limit_bytes=limit, count_flops=counts, loaders=loaders, asked=asked)
    flush = observer.flush
    observer.on_engine.append(OwnFiles(writer, run_dir).tell)
    if PLAIN_VARIABLE in os.environ:
        flush = _watch_plain(writer, observer, limit, loaders).flush
    elif writer.rank == 0 and isolation is None:
        imports = ImportRecord()
        observer.on_engine.append(lambda: imports.write(run_dir))
    (isolation or Isolation()).activate(writer, run_dir)
    # Not imported here: a script may have to set variables before torch is loaded.
    loaders.activate()
    after_import("deepspeed.runtime.engine", lambda module: observer.watch(module.DeepSpeedEngine))
    after_import("deepspeed.runtime.pipe.engine", lambda module: observer.watch_pipeline(module.PipelineEngine))
    try:
        run_script(target, is_module, argv)
    except SystemExit as error:
        flush()
        is_bad = error.code not in (None, 0)
        told = Error(rank=writer.rank, type="SystemExit", message=f"exit code {error.code}", time=now())
        writer.emit(told if is_bad else End(rank=writer.rank))
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if is_out_of_memory(error):
            writer.emit(Oom(rank=writer.rank, message=shown(error), time=now()))
        else:
            kind = type(error).__name__
            message = _with_causes(error)
            writer.emit(Error(rank=writer.rank, type=kind, message=message, origin=_origin_of(error), time=now()))
        raise
    flush()
    writer.emit(End(rank=writer.rank))


def _watch_plain(
    writer: EventWriter, observer: EngineObserver, memory_limit_bytes: int, loaders: Loaders
) -> PlainObserver:
    """Watches for a training without DeepSpeed, until the script builds an engine."""
    micro_batch, gas = map(int, os.environ[PLAIN_VARIABLE].split(","))
    plain = PlainObserver(
        writer, memory_limit_bytes=memory_limit_bytes, micro_batch=micro_batch, gas=gas, loaders=loaders
    )
    plain.on_described = list(observer.on_engine)
    observer.on_engine.append(plain.stop)
    after_import("torch.nn.modules.module", plain.watch_modules)
    after_import("torch.optim.optimizer", plain.watch_optimizers)
    return plain


def _with_causes(error: BaseException) -> str:
    """What an exception says, and what those say from which it was raised: they may tell whose fault it is."""
    said, cause = str(error), error.__cause__
    seen = {id(error)}  # `raise error from error` is a circle
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if str(cause) not in said:
            said += f"\nCaused by {type(cause).__name__}: {cause}"
        cause = cause.__cause__
    return said


def _origin_of(error: BaseException) -> str:
    """The module of the innermost frame that raised the exception, such as `deepspeed.runtime.config`."""
    traceback = error.__traceback__
    name = ""
    while traceback is not None:
        name = traceback.tb_frame.f_globals.get("__name__", "")
        traceback = traceback.tb_next
    return name


def split_arguments(words: list[str]) -> tuple[str, bool, list[str]]:
    """Splits `[--local_rank=N] [-m] target [args …]` into the target, whether it is a module, and its arguments.

    The launcher puts the local rank in front; the script expects it first among its own arguments.
    """
    words = list(words)
    local_rank = [words.pop(0)] if words and words[0].startswith(("--local_rank=", "--local-rank=")) else []
    is_module = bool(words) and words[0] == "-m"
    if is_module:
        words.pop(0)
    if not words:
        raise SystemExit("usage: python -m dsopt.probe [--local_rank=N] [-m] script [arguments …]")
    return words[0], is_module, [*local_rank, *words[1:]]


def run_script(target: str, is_module: bool, argv: list[str]) -> None:
    """Runs a script or module as `__main__`, with `sys.argv` and `sys.path` as Python itself would set them."""
    if is_module:
        sys.argv = [target, *argv]
        runpy.run_module(target, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [target, *argv]
        sys.path[0] = str(Path(target).resolve().parent)
        runpy.run_path(target, run_name="__main__")


if __name__ == "__main__":
    main()
