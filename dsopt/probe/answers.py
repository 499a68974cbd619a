"""What functions answer in an experiment that are left out there: as if they had saved, or had found nothing."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from dsopt.probe.places import is_folder, is_path, resolved


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


def of_loading(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[None, Unloaded | None]:
    """What DeepSpeed's `load_checkpoint` answers: where the script has a checkpoint, it may read its state unasked."""
    folder = args[1] if len(args) > 1 else kwargs.get("load_dir")
    return None, Unloaded() if is_path(folder) and is_folder(resolved(folder)) else None
