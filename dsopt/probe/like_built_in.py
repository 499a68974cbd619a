"""A function in the place of a built-in one, which scripts treat as that."""

import functools
import os
from collections.abc import Callable
from typing import Any, Final

_SETS: Final = (os.supports_dir_fd, os.supports_effective_ids, os.supports_fd, os.supports_follow_symlinks)


class LikeBuiltIn:
    """It becomes no method where a class has it, is pickled by its name, and is in the sets that `os` has of functions.

    Args:
        original: what it stands for, under the names that this has.
        function: what it does.
    """

    def __init__(self, original: Any, function: Callable[..., object]) -> None:  # noqa: ANN401
        functools.update_wrapper(self, original)
        self._function, self._name = function, str(original.__qualname__)
        for functions in _SETS:
            if original in functions:
                functions.add(self)

    def __call__(self, *args: Any, **kwargs: Any) -> object:  # noqa: ANN401
        """Does what the function does."""
        return self._function(*args, **kwargs)

    def __reduce__(self) -> str:
        return self._name
