"""How dsopt starts its own programs: without the modules of the working folder, and without secrets."""

import os
import sys
from typing import Final

from dsopt.study.secrets import OWN_ACCESS, looks_secret

# `python -m` looks for modules in the working folder first, so a `json.py` there would be imported instead of Python's.
# Python 3.10 has no option that prevents only this.
_RUN: Final = """\
import sys
sys.path[:1] = [folder for folder in sys.path[:1] if folder]
import runpy
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


def own_program(module: str, *args: str, python: str | None = None) -> tuple[str, ...]:
    """The argument list that starts a module of dsopt, by default with dsopt's own Python."""
    return (python or sys.executable, "-c", _RUN, module, *args)


def own_environment() -> dict[str, str]:
    """This process's environment without what looks like a secret."""
    return {
        name: value for name, value in os.environ.items() if name not in OWN_ACCESS and not looks_secret(name, value)
    }
