"""Collects everything that is wrong with one study, so that a person reads all of it at once."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType

from typing_extensions import ParamSpec, Self

from dsopt.errors import DsoptError

_P = ParamSpec("_P")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """One thing to correct.

    Attributes:
        message: file, key, value, what was expected and what to do.
        about: keys that it makes doubtful, such as `autotuning.metric`.
    """

    message: str
    about: tuple[str, ...] = ()


class MistakesError(DsoptError):
    """What to correct in a study. A single mistake reads as it is; several are numbered, one a line."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        messages = [mistake.message for mistake in mistakes]
        listed = "\n".join(f"{number}. {message}" for number, message in enumerate(messages, 1))
        super().__init__(messages[0] if len(messages) == 1 else f"{len(messages)} mistakes:\n{listed}")
        self.mistakes = tuple(mistakes)


class Mistakes:
    """The mistakes found so far. As a context it raises all of them at its end, including one that ended it early.

    A wrong value makes later checks of it meaningless. So each mistake says which keys it makes doubtful, and each
    check names the keys that it reads. It runs only if none of them is doubtful, nor anything above or inside them.
    """

    def __init__(self) -> None:
        self._found: dict[str, Mistake] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, DsoptError):
            self.take(error)
        elif error is not None:
            return
        self.end_if_any()

    def add(self, message: str, *about: str) -> None:
        """Keeps a mistake, once."""
        self._found.setdefault(message, Mistake(message=message, about=about))

    def take(self, error: DsoptError, about: Iterable[str] = ()) -> None:
        """Keeps what a check raised; it is about these keys unless it names others itself."""
        for one in error.mistakes if isinstance(error, MistakesError) else [Mistake(message=str(error))]:
            self.add(one.message, *(one.about or about))

    @contextmanager
    def kept(self, *about: str) -> Iterator[None]:
        """Keeps what the block raises and continues after it; it is about these keys unless it names others itself."""
        try:
            yield
        except DsoptError as error:
            self.take(error, about)

    def is_doubtful(self, *keys: str) -> bool:
        """Whether a mistake is about one of these keys, or about anything above or inside it."""
        doubtful = [f"{key}." for mistake in self._found.values() for key in mistake.about]
        asked = [f"{key}." for key in keys]
        return any(one.startswith(other) or other.startswith(one) for one in doubtful for other in asked)

    def check(
        self, reads: Sequence[str], check: Callable[_P, list[str] | None], *args: _P.args, **kwargs: _P.kwargs
    ) -> list[str]:
        """Runs a check that reads these keys, unless one of them is doubtful, and keeps what it raises.

        Returns:
            The check's warnings; none if it found a mistake or did not run.
        """
        warnings = None
        if not self.is_doubtful(*reads):
            with self.kept(*reads):
                warnings = check(*args, **kwargs)
        return warnings or []

    def end_if_any(self) -> None:
        """Raises MistakesError if there are any."""
        if self._found:
            raise MistakesError(list(self._found.values())) from None

    def end_if_doubtful(self, *keys: str) -> None:
        """Raises MistakesError if one of these keys is doubtful: nothing else can be checked without it."""
        if self.is_doubtful(*keys):
            self.end_if_any()
