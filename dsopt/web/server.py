"""The server of the pages."""

import socket
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from dsopt.store.studies import Store
from dsopt.web.access import access_to, guarded
from dsopt.web.app import application


class DashboardServer(ThreadingMixIn, WSGIServer):
    """A server of the pages of a storage, bound and not yet serving.

    Attributes:
        url: where a person opens it; it has the token, if one is needed.
        token: what a reader has to show, or None.
    """

    daemon_threads = True

    def __init__(self, store: Store, host: str, port: int, token: str | None = None, *, root: str = "") -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _QuietHandler)
        address = str(self.server_address[0])
        access = access_to(host, address, token)
        self.token = access.token
        self.set_app(guarded(application(store, root=root), access, self.server_port, root=root))
        everywhere = address in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound to
        name = socket.gethostname() if everywhere else f"[{host}]" if ":" in host else host
        self.url = f"http://{name}:{self.server_port}/" + (f"?token={self.token}" if self.token else "")


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the standard library
        pass
