"""Makes a process in which a script was left ready for another run of it, or says what of the script is still there."""

import contextlib
import ctypes
import functools
import gc
import logging
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from dsopt.probe.imported import imported_modules, is_installed, is_standard
from dsopt.probe.memory import HostMemory, forget_host_peak
from dsopt.probe.orders import Left

_MOST_DEVICE_BYTES = 32 * 2**20  # what libraries keep for themselves through torch's allocator
# growth of host memory in use from one run to a later one: the larger of these; runs of their own differ by as much
_MOST_GROWTH = 0.05  # of the later run's peak
_MOST_GROWTH_BYTES = 64 * 2**20
_OTHER_THREADS = ("TMonitor", "_DummyThread")  # `tqdm` watches its bars; threads that Python has not made, but seen
_THREAD_SECONDS = 1.0  # for one that is ending, as those of queues are
_LIBC = ctypes.CDLL(None)


class Surroundings:
    """What a script may change of its process, as it is when this is made: before the first script."""

    def __init__(self) -> None:
        self._path, self._finders = list(sys.path), list(sys.meta_path)
        self._signals = {number: signal.getsignal(number) for number in signal.valid_signals()}
        self._log_handlers, self._log_level = list(logging.root.handlers), logging.root.level
        self._excepthook = sys.excepthook
        self._threads = set(threading.enumerate())
        self._children = _children()
        self._host_bytes: int | None = None
        self._caches = [found for found in gc.get_objects() if _is_zero3_cache(found)]
        gc.freeze()  # what was imported stays: to look through it for each script that is left would take a second

    def restore(self) -> None:
        """Puts back what the script has changed, and forgets the user's own modules: the next run imports them anew."""
        sys.path[:], sys.meta_path[:] = self._path, self._finders
        sys.stdout, sys.stderr, sys.excepthook = sys.__stdout__, sys.__stderr__, self._excepthook
        for number, handler in self._signals.items():
            if handler is not None and signal.getsignal(number) != handler:
                signal.signal(number, handler)
        logging.root.handlers[:] = self._log_handlers
        logging.root.setLevel(self._log_level)
        for name, file in imported_modules().items():
            is_own = file.endswith(".py") and not is_installed(file) and not is_standard(file)
            if is_own and name.partition(".")[0] not in ("dsopt", "__main__"):
                del sys.modules[name]
        if "accelerate.state" in sys.modules:  # keeps the configuration that it was first given
            state = sys.modules["accelerate.state"]
            state.AcceleratorState._reset_state(reset_partial_state=True)
            state.GradientState._reset_state()

    def refusal(self, left: Left) -> str | None:
        """Frees what the script has left. Says why this process is not like a new one after that, or None."""
        import torch

        self._let_go(torch)
        gc.collect()
        gc.collect()  # what finalizers of the first have used is freed only now
        if left.engine() is not None:
            return "DeepSpeed's engine is kept when its script is left"
        if not torch.distributed.is_initialized():
            return "the script ends its process group when it is left"
        for thread in threading.enumerate():
            if thread not in self._threads and type(thread).__name__ not in _OTHER_THREADS:
                thread.join(_THREAD_SECONDS)
                if thread.is_alive():
                    return f"the script leaves the thread {thread.name}"
        if _children() - self._children:
            return "the script leaves processes"
        return _device_refusal(torch) if torch.cuda.is_initialized() else self._host_refusal(left.reserved_bytes)

    def _let_go(self, torch: Any) -> None:  # noqa: ANN401
        """Lets go of what the collector could not, or not in order.

        Processes that load data are ended while their queues still stand. DeepSpeed's ZeRO 3 keeps modules in caches of
        its methods, and in a stack.
        """
        for found in [*self._caches, *gc.get_objects()]:
            if type(found) is torch.utils.data.dataloader._MultiProcessingDataLoaderIter:
                found._shutdown_workers()
            elif _is_zero3_cache(found):
                found.cache_clear()
        if "deepspeed.runtime.zero.parameter_offload" in sys.modules:
            sys.modules["deepspeed.runtime.zero.parameter_offload"].FWD_MODULE_STACK.clear()

    def _host_refusal(self, peak_bytes: int) -> str | None:
        """Why peaks of host memory would tell of earlier runs.

        What is freed is not all given back: the C library keeps what lies between things that stay, and what is asked
        for next may not fit there. The first run leaves also what any run has, such as process groups.
        """
        _LIBC.malloc_trim(0)
        in_use = HostMemory().in_use()
        self._host_bytes = self._host_bytes or in_use
        if in_use - self._host_bytes > max(_MOST_GROWTH_BYTES, _MOST_GROWTH * peak_bytes):
            return f"memory in use between two runs has grown by {(in_use - self._host_bytes) // 2**20} MiB"
        return None if forget_host_peak() else "this system does not forget a process's peak of memory"


def _is_zero3_cache(found: Any) -> bool:  # noqa: ANN401
    """Whether this is the cache of one of ZeRO 3's methods, which keeps modules."""
    return type(found) is functools._lru_cache_wrapper and found.__module__.startswith("deepspeed.runtime.zero")


def _device_refusal(torch: Any) -> str | None:  # noqa: ANN401
    """Why peaks of device memory would tell of earlier runs."""
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    left = torch.cuda.memory_allocated()
    if left > _MOST_DEVICE_BYTES:
        return f"{left // 2**20} MiB of the device are in use when the script is left"
    torch.cuda.reset_peak_memory_stats()
    return None


def _children() -> set[str]:
    """The pids of this process's children, whichever of its threads has started them."""
    found: set[str] = set()
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found.update((thread / "children").read_text().split())
    return found
