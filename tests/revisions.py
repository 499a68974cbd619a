"""Alembic executes the files of all revisions, dsopt's and Optuna's, for each database that is opened: here, once.

They say what to do, and do nothing by being executed. Hundreds of tests in a process would pay a quarter of a second.
"""

import functools
import tempfile
from types import ModuleType

from alembic import util
from dsopt.store.studies import Store


def execute_once() -> None:
    """From now on, in this process and in those that are forked from it."""
    load = util.load_python_file
    load_once = functools.cache(load)

    def load_python_file(folder: str, name: str) -> ModuleType:
        return load(folder, name) if name == "env.py" else load_once(folder, name)  # which runs the revisions

    util.load_python_file = load_python_file


def execute_beforehand() -> None:
    """Executes them now, for all processes that are forked from this one."""
    execute_once()
    with tempfile.TemporaryDirectory() as folder:
        Store.open(f"sqlite:///{folder}/dsopt.db", make=True).close()
