"""Keeps a script from the user's checkpoints: it resumes from none, saves none and replaces no file of weights.

Flags are the worker's matter (`study/isolation.py`). This is for what a script does by itself, whatever its flags are
called: through DeepSpeed's engine, Hugging Face's Trainer and Accelerate, `torch.save` and safetensors.
"""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from dsopt.experiment.events import EventWriter, Withheld
from dsopt.experiment.rundir import RunDir
from dsopt.probe.imports import after_import

# module, class, method, and what the method answers in an experiment: as if it had saved, or had found no checkpoint
_LEFT_OUT: Final = (
    ("deepspeed.runtime.engine", "DeepSpeedEngine", "save_checkpoint", True),
    ("deepspeed.runtime.engine", "DeepSpeedEngine", "save_16bit_model", True),
    ("deepspeed.runtime.engine", "DeepSpeedEngine", "load_checkpoint", (None, None)),
    ("accelerate.accelerator", "Accelerator", "init_trackers", None),
    ("accelerate.accelerator", "Accelerator", "save_state", None),
    ("accelerate.accelerator", "Accelerator", "save_model", None),
    ("accelerate.accelerator", "Accelerator", "load_state", None),
    ("transformers.trainer", "Trainer", "save_model", None),
    ("transformers.trainer", "Trainer", "push_to_hub", None),
    ("transformers.modeling_utils", "PreTrainedModel", "save_pretrained", None),
)
# functions that write weights to a path, by the index of the path among their arguments and its name
_WRITERS: Final = (
    ("torch.serialization", "save", 1, "f"),
    ("safetensors.torch", "save_file", 1, "filename"),
    ("safetensors.torch", "save_model", 1, "filename"),
)
# fields of the Trainer's arguments, however they came about
_TRAINER_FIELDS: Final = {
    "save_strategy": "no",
    "load_best_model_at_end": False,
    "report_to": "none",
    "push_to_hub": False,
    "resume_from_checkpoint": None,
}
_TRAINER_FOLDERS: Final = ("output_dir", "logging_dir")


class Isolation:
    """Wraps what saves, loads and reports a training. For the time of one run."""

    def __init__(self, writer: EventWriter, run_dir: RunDir) -> None:
        self._writer = writer
        self._run_dir = run_dir
        self._said: set[str] = set()
        self._wrapped: list[tuple[Any, str, Any]] = []  # owner, name, the original

    def begin(self) -> None:
        """Wraps it all, what is not imported yet as soon as it is."""
        for module, owner, method, answer in _LEFT_OUT:
            after_import(module, functools.partial(self._leave_out, owner, method, answer))
        for module, function, index, name in _WRITERS:
            after_import(module, functools.partial(self._protect, function, index, name))
        after_import("transformers.training_args", self._isolate_arguments)
        after_import("transformers.trainer", self._begin_anew)

    def end(self) -> None:
        """Puts everything back."""
        for owner, name, original in reversed(self._wrapped):
            setattr(owner, name, original)
        self._wrapped.clear()

    def _leave_out(self, owner: str, method: str, answer: object, module: ModuleType) -> None:
        def around(_original: Callable[..., Any], *args: Any, **_kwargs: Any) -> object:  # noqa: ANN401
            self._say(f"{owner}.{method}", args[1] if len(args) > 1 else None)
            return answer

        self._wrap(getattr(module, owner, None), method, around)

    def _protect(self, function: str, index: int, name: str, module: ModuleType) -> None:
        def around(original: Callable[..., Any], *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
            target = args[index] if len(args) > index else kwargs.get(name)
            if isinstance(target, str | os.PathLike) and self._is_the_users(Path(target)):
                self._say(f"{module.__name__.partition('.')[0]}.{function} over a file that is there", target)
                return None
            return original(*args, **kwargs)

        original = getattr(module, function, None)
        package = sys.modules[module.__name__.partition(".")[0]]
        for holder in (module, package):  # `torch.save` is `torch.serialization.save`
            if getattr(holder, function, None) is original:
                self._wrap(holder, function, around)

    def _isolate_arguments(self, module: ModuleType) -> None:
        def around(original: Callable[..., Any], arguments: Any) -> object:  # noqa: ANN401
            for field in _TRAINER_FOLDERS:
                given = getattr(arguments, field, None)
                if field == "output_dir" or given is not None:
                    setattr(arguments, field, str(self._run_dir.own_path(field, str(given or ""))))
            for field, value in _TRAINER_FIELDS.items():
                if hasattr(arguments, field):
                    setattr(arguments, field, value)
            return original(arguments)

        self._wrap(module.TrainingArguments, "__post_init__", around)

    def _begin_anew(self, module: ModuleType) -> None:
        def around(original: Callable[..., Any], trainer: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
            given = args[0] if args else kwargs.get("resume_from_checkpoint")
            if given:
                self._say("Trainer.train(resume_from_checkpoint=…)", given)
            kwargs.pop("resume_from_checkpoint", None)
            return original(trainer, None, *args[1:], **kwargs)

        self._wrap(module.Trainer, "train", around)

    def _is_the_users(self, path: Path) -> bool:
        """Whether this is a file that is there, outside of the run's own folder."""
        return path.is_file() and not path.resolve().is_relative_to(self._run_dir.path.resolve())

    def _wrap(self, owner: Any, name: str, around: Callable[..., object]) -> None:  # noqa: ANN401 - a class or a module
        """Replaces `owner.name` by `around(original, …)`, where this version of the library has it."""
        original = getattr(owner, name, None)
        if original is None:
            return

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> object:  # noqa: ANN401
            return around(original, *args, **kwargs)

        self._wrapped.append((owner, name, original))
        setattr(owner, name, wrapper)

    def _say(self, what: str, path: object) -> None:
        """Says once in the run's log, and to the worker, what is left out."""
        if what in self._said:
            return
        self._said.add(what)
        place = "" if path is None else f" ({path})"
        print(f"dsopt: left out in an experiment: {what}{place}", file=sys.stderr, flush=True)  # noqa: T201 - its log
        self._writer.emit(Withheld(rank=self._writer.rank, what=what, path="" if path is None else str(path)))
