"""Keeps a script away from the user's checkpoints: it resumes from none, and all are after it as they were.

The worker isolates flags (`study/isolation.py`). This module isolates what a script does by itself, whatever its flags:
through DeepSpeed's engine, Hugging Face's Trainer and Accelerate, `torch.distributed.checkpoint`, `torch.save` and
safetensors. A script may save files, since it may load them again; the worker removes them after the run.
"""

import builtins
import functools
import os
import pathlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import BuiltinFunctionType, ModuleType
from typing import Any, Final

from dsopt.probe.answers import finds, of_loading
from dsopt.probe.imports import after_import
from dsopt.probe.known import Known
from dsopt.probe.left_out import FOLDER, ITS_PATH, LEFT_OUT, WRITERS
from dsopt.probe.like_built_in import LikeBuiltIn
from dsopt.probe.moving import Moves
from dsopt.probe.places import is_path, place_of
from dsopt.probe.removing import REMOVERS, Removals
from dsopt.probe.saved_folder import saved_folder
from dsopt.probe.saving import Saves
from dsopt.probe.writing import WrittenFiles
from dsopt.protocol.events import EventWriter, Withheld
from dsopt.protocol.run_dir import RunDir

_REPLACERS: Final = ("serialize_file",)  # of these, what writes beside the path first
_BOARDS: Final = ("torch.utils.tensorboard.writer", "tensorboardX.writer")
_BOARD_FOLDERS: Final = ("log_dir", "logdir")  # the first argument, by either library's name
# fields of the Trainer's arguments, however they were set
_TRAINER_FIELDS: Final = {
    "save_strategy": "no",
    "load_best_model_at_end": False,
    "report_to": "none",
    "push_to_hub": False,
    "resume_from_checkpoint": None,
    "auto_find_batch_size": False,  # it would hide that a micro-batch size does not fit, and train with another
}
_TRAINER_FOLDERS: Final = ("output_dir", "logging_dir")


class Isolation:
    """Wraps the functions that save, load and report a training. They do what they did until it is activated.

    A process that imports modules beforehand makes one before it does: modules also have functions of others under
    names of their own, as defaults, and in ways that nobody finds later.
    """

    def __init__(self) -> None:
        """Wraps all of them; those of modules that are not imported yet, right after their import."""
        self._writer: EventWriter | None = None
        self._run_dir: RunDir | None = None
        self._said: set[tuple[str, bool]] = set()
        self._known = known = Known(self._say)
        moves, removals, written = Moves(known), Removals(known), WrittenFiles(known)
        self._saves = Saves(known, moves, written)
        for module, owner, method, answer in LEFT_OUT:
            after_import(module, functools.partial(self._leave_out, owner, method, answer))
        for module, holder, function, index, name in WRITERS:
            after_import(module, functools.partial(self._protect, holder, function, index, name))
        self._wrap_functions(
            (os, "replace", moves.around_move),
            (os, "rename", moves.around_move),
            (shutil, "copyfile", moves.around_copy),
            (os, "symlink", moves.around_symlink),
            (os, "link", moves.around_link),
            (os, "utime", written.around_utime),
            (os, "mkdir", removals.around_mkdir),
            (os, "rmdir", removals.around_rmdir),
            *((removing, name, removals.around_remove) for removing, name in REMOVERS),
            (builtins, "open", written.around_open),
            (os, "open", written.around_os_open),
            (os, "truncate", written.around_truncate),
        )
        if sys.version_info < (3, 11):  # since then, paths call those of `os`
            accessor: Any = vars(pathlib)["_NormalAccessor"]
            for name in ("replace", "rename", "symlink", "unlink", "mkdir", "rmdir", "link", "utime"):
                setattr(accessor, name, staticmethod(getattr(os, name)))
            accessor.open = staticmethod(builtins.open)
        after_import("tokenizers.models", self._protect_vocabularies)
        after_import("transformers.training_args", self._isolate_arguments)
        after_import("transformers.trainer", self._isolate_trainer)
        after_import("transformers.trainer_callback", self._isolate_callbacks)
        for module in _BOARDS:
            after_import(module, self._isolate_board)
        after_import("wandb", self._isolate_wandb)
        after_import("mlflow", self._isolate_mlflow)

    def activate(self, writer: EventWriter, run_dir: RunDir) -> None:
        """Isolates this process, which is a rank of a run, from now on."""
        self._known.activate(writer, run_dir)
        self._writer, self._run_dir = writer, run_dir

    def _leave_out(self, owner: str | None, function: str, answer: object, module: ModuleType) -> None:
        def around(original: Callable[..., Any], *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
            path = args[1] if len(args) > 1 else next(iter(kwargs.values()), None)
            what = f"{owner or module.__name__.rpartition('.')[0]}.{function}"
            is_given = isinstance(path, str | os.PathLike)
            self._say(what, path if is_given else None, is_there=finds(function, args, kwargs))
            if not function.startswith(("load", "get")):
                folder = saved_folder(original, args, kwargs)
                place = place_of(path) if is_given else folder
                if place is not None:
                    self._known.skips(place, folder)
            if answer is of_loading:
                return of_loading(args, kwargs)
            return path if answer is ITS_PATH else answer

        self._wrap_everywhere(module, owner, function, around)

    def _protect(self, owner: str | None, function: str, index: int, name: str, module: ModuleType) -> None:
        what = f"{owner or module.__name__.partition('.')[0]}.{function}"

        def around(original: Callable[..., Any], *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
            target = args[index] if len(args) > index else kwargs.get(name)
            if function in _REPLACERS:
                return self._saves.around_replacing_save(
                    functools.partial(save_to, original, args, kwargs), what, target
                )
            around_save = self._saves.around_save_into if name == FOLDER else self._saves.around_save
            return around_save(functools.partial(original, *args, **kwargs), what, target)

        def save_to(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], path: Any) -> object:  # noqa: ANN401
            if len(args) > index:
                return original(*args[:index], path, *args[index + 1 :], **kwargs)
            return original(*args, **{**kwargs, name: path})

        self._wrap_everywhere(module, owner, function, around)

    def _protect_vocabularies(self, module: ModuleType) -> None:
        self._wrap(module.Model, "save", self._saves.around_save_vocabulary)

    def _wrap_everywhere(
        self, module: ModuleType, owner: str | None, function: str, around: Callable[..., object]
    ) -> None:
        """Wraps a method of a class, or a function of a module under every name that other modules have for it."""
        if owner is not None:
            self._wrap(getattr(module, owner, None), function, around)
        else:
            self._wrap_functions((module, function, around))

    def _wrap_functions(self, *wanted: tuple[ModuleType, str, Callable[..., object]]) -> None:
        """Wraps functions of modules, if they have them, under every name that any module has for them."""
        wrappers = {}
        for module, function, around in wanted:
            original = getattr(module, function, None)
            if original is not None:
                wrappers[id(original)] = self._around(original, around)
        for holder_name, holder in list(sys.modules.items()):
            if not holder_name.startswith("dsopt."):  # what dsopt does itself stays as it is
                for name, value in list(getattr(holder, "__dict__", {}).items()):
                    if id(value) in wrappers:
                        setattr(holder, name, wrappers[id(value)])

    def _isolate_arguments(self, module: ModuleType) -> None:
        def around(original: Callable[..., Any], arguments: Any) -> object:  # noqa: ANN401
            if getattr(arguments, "load_best_model_at_end", False) and not arguments.metric_for_best_model:
                arguments.metric_for_best_model = "loss"  # as the Trainer has it then; callbacks ask for it
            self._isolate_folders(arguments)
            for field, value in _TRAINER_FIELDS.items():
                if hasattr(arguments, field):
                    setattr(arguments, field, value)
            return original(arguments)

        self._wrap(module.TrainingArguments, "__post_init__", around)

    def _isolate_trainer(self, module: ModuleType) -> None:
        def around_init(original: Callable[..., Any], trainer: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
            arguments = kwargs.get("args", args[1] if len(args) > 1 else None)
            if arguments is not None:
                self._isolate_folders(arguments)  # they may have been changed since
            return original(trainer, *args, **kwargs)

        def around_train(original: Callable[..., Any], trainer: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
            given = args[0] if args else kwargs.get("resume_from_checkpoint")
            if given:
                path = given if is_path(given) else None  # or True, for the last one
                self._say("Trainer.train(resume_from_checkpoint=…)", path, is_there=True)
            kwargs.pop("resume_from_checkpoint", None)
            return original(trainer, None, *args[1:], **kwargs)

        self._wrap(module.Trainer, "__init__", around_init)
        self._wrap(module.Trainer, "train", around_train)

    def _isolate_callbacks(self, module: ModuleType) -> None:
        """In Transformers 4, it insists on `load_best_model_at_end` when a training begins, which is off here."""
        self._wrap(getattr(module, "EarlyStoppingCallback", None), "on_train_begin", lambda *_args, **_kwargs: None)

    def _isolate_board(self, module: ModuleType) -> None:
        """TensorBoard would show the figures of runs among those of the user's training in the same folder."""

        def around(original: Callable[..., Any], board: Any, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
            further = {name: value for name, value in kwargs.items() if name not in _BOARD_FOLDERS}
            given = args[0] if args else next((kwargs[name] for name in _BOARD_FOLDERS if name in kwargs), None)
            folder = self._own_path("tensorboard") / Path(str(given or "runs")).name
            return original(board, str(folder), *args[1:], **further)

        self._wrap(getattr(module, "SummaryWriter", None), "__init__", around)

    def _isolate_wandb(self, module: ModuleType) -> None:
        """What a script says itself goes before `WANDB_MODE`."""

        def around(original: Callable[..., Any], *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
            return original(*args, **{**kwargs, "mode": "disabled"})

        self._wrap(module, "init", around)

    def _isolate_mlflow(self, module: ModuleType) -> None:
        def around(original: Callable[..., Any], *_args: Any, **_kwargs: Any) -> object:  # noqa: ANN401
            assert self._run_dir is not None
            return original(f"file://{self._run_dir.path}/mlruns")

        self._wrap(module, "set_tracking_uri", around)

    def _own_path(self, name: str) -> Path:
        assert self._run_dir is not None
        return self._run_dir.own_path(name, "")

    def _isolate_folders(self, arguments: Any) -> None:  # noqa: ANN401 - of the Trainer
        for field in _TRAINER_FOLDERS:
            given = getattr(arguments, field, None)
            if field == "output_dir" or given is not None:
                setattr(arguments, field, str(self._own_path(field)))

    def _wrap(self, owner: Any, name: str, around: Callable[..., object]) -> None:  # noqa: ANN401 - a class or a module
        """Replaces `owner.name` with `around(original, …)`, if this version of the library has it."""
        original = getattr(owner, name, None)
        if original is not None:
            setattr(owner, name, self._around(original, around))

    def _around(self, original: Callable[..., Any], around: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> object:  # noqa: ANN401
            return original(*args, **kwargs) if self._run_dir is None else around(original, *args, **kwargs)

        return LikeBuiltIn(original, wrapper) if isinstance(original, BuiltinFunctionType) else wrapper

    def _say(self, what: str, path: object, *, is_there: bool = False) -> None:
        """Says once, in the run's log and to the worker, what it skips, and once that there is a checkpoint to load."""
        if not self._said.isdisjoint([(what, is_there), (what, True)]):
            return
        self._said.add((what, is_there))
        place = "" if path is None else f" ({path})"
        print(f"dsopt: skipped in an experiment: {what}{place}", file=sys.stderr, flush=True)  # noqa: T201 - its log
        assert self._writer is not None
        shown = "" if path is None else str(path)
        self._writer.emit(Withheld(rank=self._writer.rank, what=what, path=shown, is_there=is_there))
