"""optuna-dashboard on a storage, read-only: by itself, it has no authentication and lets anyone change everything."""

from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import optuna

Environ = dict[str, Any]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

_READING = ("GET", "HEAD", "OPTIONS")


def application(storage: optuna.storages.BaseStorage) -> Application:
    """The dashboard as a WSGI application that refuses every request that would change the storage."""
    from optuna_dashboard import wsgi

    dashboard: Application = wsgi(storage)

    def read_only(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in _READING:
            return dashboard(environ, start_response)
        start_response("405 Method Not Allowed", [("Content-Type", "application/json"), ("Allow", "GET, HEAD")])
        return [b'{"reason": "This dashboard only shows: dsopt serves it read-only."}']

    return read_only


def make_dashboard_server(storage: optuna.storages.BaseStorage, host: str, port: int) -> WSGIServer:
    """A server of the dashboard, not yet serving; port 0 picks a free one."""
    return make_server(host, port, application(storage), server_class=_ThreadingServer, handler_class=_QuietHandler)


class _ThreadingServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the standard library
        pass
