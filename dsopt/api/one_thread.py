"""Linear algebra on one thread: what dsopt calculates is small, and training needs the other processors."""

import os
import sys
from typing import Final

_VARIABLES: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


def calculate_on_one_thread() -> None:
    """Imports NumPy so that its linear algebra has one thread, unless the user has set how many it has.

    Threads that wait for one another keep processors busy, and wait long where others need them: an overview of fifty
    studies took 53 s on a busy machine, and 6 s with one thread. The variable is not left to what dsopt starts.
    """
    if "numpy" in sys.modules or any(name in os.environ for name in _VARIABLES):
        return
    os.environ[_VARIABLES[0]] = "1"
    try:
        import numpy  # noqa: F401 - reads the variable
    finally:
        del os.environ[_VARIABLES[0]]
