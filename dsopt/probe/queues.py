"""What a script has read ahead with threads or processes of its own: queues, `imap` of a pool, futures.

As with the workers of a data loader, steps on what waits there are as fast as training alone, until it is used up.
"""

import collections
import contextlib
import functools
import os
import threading
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

_TAKES: Final = 16  # over which a rate is taken
_LONGEST: Final = 100  # steps that one item may feed
_OTHERS: Final = -1  # no thread's number: what any thread has taken that may be input


class Queues:
    """What Python has ready for the training, and how much of it each step takes.

    A queue that the training's own thread fills is none: others take their work from it, or what there is to log. Nor
    is one of which others take names or numbers, which say what to read. Nor is any, as long as that thread takes
    nothing: then others pass on what is no input.
    """

    def __init__(self) -> None:
        # since the last step, by thread
        self._taken: weakref.WeakKeyDictionary[Any, collections.Counter[int]] = weakref.WeakKeyDictionary()
        self._sources: weakref.WeakKeyDictionary[Any, _Source] = weakref.WeakKeyDictionary()
        self._put: weakref.WeakKeyDictionary[Any, dict[int, int]] = weakref.WeakKeyDictionary()  # by thread
        self._steps = 0
        self._fed_at: int | None = None  # the last step in which the training's thread has taken something
        self._done = _Done()

    def watch(self, module: ModuleType) -> None:
        """Hooks classes of queues. Call it with `queue`, and with `multiprocessing.queues`."""
        module.Queue.put = self._noting(module.Queue.put)
        module.Queue.get = self._counting(module.Queue.get)
        if hasattr(module, "JoinableQueue"):
            module.JoinableQueue.put = self._noting(module.JoinableQueue.put)

    def watch_pools(self, module: ModuleType) -> None:
        """Hooks what `imap` returns. Call it with `multiprocessing.pool`."""
        found = module.IMapIterator
        found.next = found.__next__ = self._counting(found.next)

    def watch_futures(self, module: ModuleType) -> None:
        """Hooks the futures of executors. Call it with `concurrent.futures._base`."""
        done, set_result, result = self._done, module.Future.set_result, module.Future.result

        @functools.wraps(set_result)
        def end(future: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            with contextlib.suppress(TypeError):  # a class of the script's own that has no hash
                done.futures.add(future)
            return set_result(future, *args, **kwargs)

        @functools.wraps(result)
        def take(future: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            found = result(future, *args, **kwargs)
            with contextlib.suppress(TypeError):
                if future in done.futures:
                    done.futures.discard(future)
                    self._count(done)
            return found

        module.Future.set_result, module.Future.result = end, take

    def waiting(self) -> int:
        """For how many further steps input waits, by what steps take; 0 if they take nothing.

        The training's thread calls this at the end of each step. A step may take nothing: what it needs may have come
        with what an earlier one took.
        """
        taken, self._taken = self._taken, weakref.WeakKeyDictionary()
        me, steps = threading.get_ident(), 0
        self._steps += 1
        with contextlib.suppress(RuntimeError):  # another thread has just added one
            for source, counts in taken.items():
                if count := max(counts[me], counts[_OTHERS]):
                    self._sources.setdefault(source, _Source()).add(self._steps, count)
                if counts[me]:
                    self._fed_at = self._steps
            if self._fed_at is None or self._steps - self._fed_at > _LONGEST:
                return 0
            for source, seen in self._sources.items():
                steps = max(steps, int(self._size(source, me) / seen.rate(self._steps)))
        return steps

    def _size(self, source: Any, me: int) -> int:  # noqa: ANN401
        """How much waits there; 0 if it is a queue that this thread fills, for the most part."""
        try:
            size = source.qsize() if hasattr(source, "qsize") else len(source._items)  # of a pool's iterator
            put = self._put.get(source, {}).get(me, 0)
            passed = size + self._sources[source].in_all
            return 0 if 2 * put >= passed else int(size)
        except Exception:  # no semaphores, or it was closed, or is a class of the script's own
            return 0

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def put(queue: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            with contextlib.suppress(TypeError):
                by = self._put.setdefault(queue, {})
                by[threading.get_ident()] = by.get(threading.get_ident(), 0) + 1
            return original(queue, *args, **kwargs)

        return put

    def _counting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def get(source: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            item = original(source, *args, **kwargs)
            self._count(source, is_input=not _is_name(item))
            return item

        return get

    def _count(self, source: Any, *, is_input: bool = True) -> None:  # noqa: ANN401
        """Notes that this thread has taken something; it may be the training's."""
        with contextlib.suppress(TypeError):  # a class of the script's own that has no hash
            counts = self._taken.setdefault(source, collections.Counter())
            counts[threading.get_ident()] += 1
            if is_input:
                counts[_OTHERS] += 1


class _Source:
    """What steps have taken from one queue."""

    def __init__(self) -> None:
        self.in_all = 0
        self._takes: collections.deque[tuple[int, int]] = collections.deque(maxlen=_TAKES)

    def add(self, step: int, items: int) -> None:
        """What a step has taken."""
        self.in_all += items
        self._takes.append((step, items))

    def rate(self, step: int) -> float:
        """Items a step, from one step that took some to the last one that did; what the first took was for it alone.

        It may have taken more, to fill what lies between.
        """
        (first, items), (last, _) = self._takes[0], self._takes[-1]
        if last > first:
            return sum(count for _, count in list(self._takes)[1:]) / (last - first)
        return items / (step - first + 1)


class _Done:
    """Futures that have a result, which nobody has taken yet."""

    def __init__(self) -> None:
        self.futures: weakref.WeakSet[Any] = weakref.WeakSet()

    def qsize(self) -> int:
        return len(self.futures)


def _is_name(item: Any) -> bool:  # noqa: ANN401
    """Whether it says what to read, and is nothing that was read: the name of a file, a number, or a pair of these."""
    return isinstance(item, str | int | os.PathLike) or (isinstance(item, tuple) and all(map(_is_name, item)))
