"""What functions answer in an experiment that are left out there: as if they had saved, or had found nothing."""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from dsopt.probe.places import is_path, resolved

_LATEST: Final = ("latest", "latest_universal")  # which name the tag of the last one


class Done(Future[None]):
    """What `async_save` answers, in either of its forms."""

    def __init__(self) -> None:
        super().__init__()
        self.set_result(None)
        self.upload_completion = self.staging_completion = self


class Unloaded(dict[str, Any]):
    """The state that a script has saved with a checkpoint that is not loaded: what it counts begins at 0."""

    def __missing__(self, _key: str) -> int:
        return 0


class Nobody:
    """A tracker that is not there: it takes any call, and gives nothing."""

    def __getattr__(self, _name: str) -> "Nobody":
        return self

    def __call__(self, *_args: object, **_kwargs: object) -> "Nobody":
        return self

    def __getitem__(self, _key: object) -> "Nobody":
        return self

    def __setitem__(self, _key: object, _value: object) -> None:
        pass

    def __enter__(self) -> "Nobody":
        return self

    def __exit__(self, *_args: object) -> None:
        pass

    def __iter__(self) -> Iterator["Nobody"]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True


def finds(function: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a function that loads a checkpoint of DeepSpeed's, the optimizer's state with it, would find one."""
    if function == "load_state":  # of Accelerate
        folder = args[1] if len(args) > 1 else kwargs.get("input_dir")
        return is_path(folder) and "\0" not in str(folder) and os.path.exists(resolved(os.path.expanduser(str(folder))))  # noqa: PTH110, PTH111
    if function != "load_checkpoint":
        return False
    has_optimizer, is_model_alone = (
        args[index] if len(args) > index else kwargs.get(name, default)
        for index, name, default in ((4, "load_optimizer_states", True), (6, "load_module_only", False))
    )
    return bool(has_optimizer) and not is_model_alone and of_loading(args, kwargs)[1] is not None


def of_loading(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[None, Unloaded | None]:
    """What DeepSpeed's `load_checkpoint` answers: where it would load one, the script may read its state unasked."""
    folder = args[1] if len(args) > 1 else kwargs.get("load_dir")
    tag = args[2] if len(args) > 2 else kwargs.get("tag")
    if not is_path(folder):
        return None, None
    place = resolved(folder)
    names = _LATEST if tag is None else (str(tag),)
    return None, Unloaded() if any(os.path.exists(place / name) for name in names) else None  # noqa: PTH110
