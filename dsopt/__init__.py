"""dsopt finds the fastest DeepSpeed configuration for a training job with short, real runs.

The names here are the Python API, which `docs/api.md` describes. Each is imported when you first use it, so that
`import dsopt` alone imports neither torch nor Optuna.
"""

import importlib
from typing import TYPE_CHECKING, Any

from dsopt.errors import DsoptError
from dsopt.version import __version__

if TYPE_CHECKING:
    from dsopt.api import events
    from dsopt.api.comparing import compare
    from dsopt.api.creating import create_study
    from dsopt.api.doctor import Check, diagnose
    from dsopt.api.estimating import estimate
    from dsopt.api.exporting import export_runs
    from dsopt.api.headers import delete_study, list_studies
    from dsopt.api.issues import issue_report
    from dsopt.api.reporting import study_report
    from dsopt.api.results import Result, Run
    from dsopt.api.slurm import slurm_script
    from dsopt.api.studies import load_study, start_worker
    from dsopt.api.study import Study
    from dsopt.api.trackers import export_to
    from dsopt.api.tuning import tune
    from dsopt.api.who_works import RunInHand, WorkerInfo, drain_workers, list_workers
    from dsopt.api.workers import WorkerThread

__all__ = [
    "Check",
    "DsoptError",
    "Result",
    "Run",
    "RunInHand",
    "Study",
    "WorkerInfo",
    "WorkerThread",
    "__version__",
    "compare",
    "create_study",
    "delete_study",
    "diagnose",
    "drain_workers",
    "estimate",
    "events",
    "export_runs",
    "export_to",
    "issue_report",
    "list_studies",
    "list_workers",
    "load_study",
    "slurm_script",
    "start_worker",
    "study_report",
    "tune",
]

_PLACES = {
    "Check": "doctor",
    "Result": "results",
    "Run": "results",
    "RunInHand": "who_works",
    "Study": "study",
    "WorkerInfo": "who_works",
    "WorkerThread": "workers",
    "compare": "comparing",
    "create_study": "creating",
    "delete_study": "headers",
    "diagnose": "doctor",
    "drain_workers": "who_works",
    "estimate": "estimating",
    "export_runs": "exporting",
    "export_to": "trackers",
    "issue_report": "issues",
    "list_studies": "headers",
    "list_workers": "who_works",
    "load_study": "studies",
    "slurm_script": "slurm",
    "start_worker": "studies",
    "study_report": "reporting",
    "tune": "tuning",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - type checkers see the imports above
    """Imports a name of the API when it is first used."""
    if name == "events":
        return importlib.import_module("dsopt.api.events")
    if name not in _PLACES:
        raise AttributeError(f"module 'dsopt' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"dsopt.api.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """All names, including those not imported yet."""
    return sorted({*globals(), *__all__})
