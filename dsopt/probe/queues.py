"""Queues from which the training itself takes its input: a script may read ahead with a thread or a process of its own.

As with the workers of a data loader, steps on what waits there are as fast as training alone, until it is used up.
"""

import contextlib
import functools
import threading
import weakref
from types import ModuleType
from typing import Any


class Queues:
    """The queues of Python that the main thread takes from."""

    def __init__(self) -> None:
        self._taken: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # since the last step

    def watch(self, module: ModuleType) -> None:
        """Hooks a class of queues. Call it with `queue`, and with `multiprocessing.queues`."""
        original = module.Queue.get

        @functools.wraps(original)
        def get(queue: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            item = original(queue, *args, **kwargs)
            if threading.current_thread() is threading.main_thread():
                with contextlib.suppress(TypeError):  # a class of the script's own that has no hash
                    self._taken[queue] = self._taken.get(queue, 0) + 1
            return item

        module.Queue.get = get

    def waiting(self) -> int:
        """For how many further steps input waits, by what the step that now ends has taken; 0 if it took nothing."""
        steps = 0
        for queue, taken in self._taken.items():
            try:
                steps = max(steps, queue.qsize() // taken)
            except (NotImplementedError, OSError):  # no semaphores here, or it was closed
                continue
        self._taken.clear()
        return steps
