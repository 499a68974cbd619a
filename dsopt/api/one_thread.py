"""Linear algebra on one thread: what dsopt calculates is small, and training needs the other processors."""

import os
import resource
import sys
from typing import Final

from dsopt.errors import DsoptError

_LEAST_BYTES: Final = 1 << 30  # of address space; dsopt takes about 0.6 GiB
_VARIABLES: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


def calculate_on_one_thread() -> None:
    """Imports NumPy so that its linear algebra has one thread, unless the user has set how many it has.

    Threads that wait for one another keep processors busy, and wait long where others need them: an overview of fifty
    studies took 53 s on a busy machine, and 6 s with one thread. The variable is not left to what dsopt starts.

    Raises:
        DsoptError: the process may have too little memory: linear algebra would wait for more, and hear no signal.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _LEAST_BYTES:
        raise DsoptError(
            f"This process may have {limit >> 20} MiB of address space (ulimit -v). "
            f"Expected at least {_LEAST_BYTES >> 20} MiB. Raise the limit: ulimit -v unlimited."
        )
    if "numpy" in sys.modules or any(name in os.environ for name in _VARIABLES):
        return
    os.environ[_VARIABLES[0]] = "1"
    try:
        import numpy  # noqa: F401 - reads the variable
    finally:
        del os.environ[_VARIABLES[0]]
