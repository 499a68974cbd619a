"""optuna-dashboard on a storage, read-only: by itself, it has no authentication and lets anyone change everything."""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import optuna

from dsopt.web.access import Application, Environ

PLACES: Final = ("/dashboard", "/api/", "/static/", "/artifacts/", "/favicon.ico", "/csv/")  # its own addresses
_IMPORTANCES: Final = re.compile(r"/api/studies/(\d{1,18})/param_importances")


def optuna_pages(storage: optuna.storages.BaseStorage) -> Application:
    """The dashboard as a WSGI application, for requests that only read."""
    from optuna_dashboard import wsgi

    dashboard: Application = wsgi(storage)

    def pages(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path.startswith("/static/") and not _names_a_file(path):
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"There is no such file.\n"]
        asked = _IMPORTANCES.fullmatch(path)
        if asked is not None and not _has_parameters(storage, int(asked[1])):
            start_response("200 OK", [("Content-Type", "application/json")])
            return [b'{"param_importances": [[]]}']
        environ.setdefault("HTTP_ACCEPT_ENCODING", "")  # the dashboard raises KeyError without it
        return dashboard(environ, start_response)

    return pages


def _has_parameters(storage: optuna.storages.BaseStorage, study_id: int) -> bool:
    """Whether a study's trials have some: the dashboard divides by their number. A study that is gone is left to it."""
    try:
        return any(trial.params for trial in storage.get_all_trials(study_id, deepcopy=False))
    except KeyError:
        return True


def _names_a_file(path: str) -> bool:
    return not {"", ".", ".."} & set(path.removeprefix("/static/").replace("\\", "/").split("/")) and "\0" not in path
