"""Asks a WSGI application as a server does."""

from collections.abc import Callable
from wsgiref.util import setup_testing_defaults

from dsopt.web.access import Application

Ask = Callable[..., tuple[str, dict[str, str], str]]  # status, headers, body


def asker(application: Application) -> Ask:
    """A function that asks for a path, with a method and further variables of the request."""

    def ask(path: str, method: str = "GET", **environ: str) -> tuple[str, dict[str, str], str]:
        asked: dict[str, object] = {"PATH_INFO": path, "REQUEST_METHOD": method, **environ}
        setup_testing_defaults(asked)
        told: list[object] = []
        answer = application(asked, lambda status, headers, _=None: told.extend([status, dict(headers)]))
        body = b"".join(answer)
        if hasattr(answer, "close"):
            answer.close()
        status, headers = told
        assert isinstance(status, str)
        assert isinstance(headers, dict)
        return status, headers, body.decode()

    return ask
