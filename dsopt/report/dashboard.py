"""optuna-dashboard on a storage, read-only: by itself, it has no authentication and lets anyone change everything."""

import re
import socket
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

import optuna

from dsopt.report.dashboard_access import Application, Environ, access_to, guarded

_IMPORTANCES = re.compile(r"/api/studies/(\d{1,18})/param_importances")
_READING = ("GET", "HEAD", "OPTIONS")


class DashboardServer(ThreadingMixIn, WSGIServer):
    """A server of a dashboard, bound and not yet serving.

    Attributes:
        url: where a person opens it; it has the token, if one is needed.
        token: what a reader has to show, or None.
    """

    daemon_threads = True

    def __init__(self, storage: optuna.storages.BaseStorage, host: str, port: int, token: str | None = None) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _QuietHandler)
        address = str(self.server_address[0])
        access = access_to(host, address, token)
        self.token = access.token
        self.set_app(guarded(application(storage), access, self.server_port))
        everywhere = address in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound to
        name = socket.gethostname() if everywhere else f"[{host}]" if ":" in host else host
        self.url = f"http://{name}:{self.server_port}/" + (f"?token={self.token}" if self.token else "")


def application(storage: optuna.storages.BaseStorage) -> Application:
    """The dashboard as a WSGI application that refuses every request that would change the storage."""
    from optuna_dashboard import wsgi

    dashboard: Application = wsgi(storage)

    def read_only(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in _READING:
            start_response("405 Method Not Allowed", [("Content-Type", "application/json"), ("Allow", "GET, HEAD")])
            return [b'{"reason": "This dashboard only shows: dsopt serves it read-only."}']
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

    return read_only


def _has_parameters(storage: optuna.storages.BaseStorage, study_id: int) -> bool:
    """Whether a study's trials have some: the dashboard divides by their number. A study that is gone is left to it."""
    try:
        return any(trial.params for trial in storage.get_all_trials(study_id, deepcopy=False))
    except KeyError:
        return True


def _names_a_file(path: str) -> bool:
    return not {"", ".", ".."} & set(path.removeprefix("/static/").replace("\\", "/").split("/")) and "\0" not in path


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the standard library
        pass
