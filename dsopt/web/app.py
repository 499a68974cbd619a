"""What is at which address. No request changes anything."""

import hashlib
import threading
import urllib.parse
from collections.abc import Callable, Iterable
from importlib import resources
from typing import Any, Final

from dsopt.errors import DsoptError
from dsopt.store.studies import Store
from dsopt.store.trouble import database_error
from dsopt.web.access import Application, Environ
from dsopt.web.histories import Histories
from dsopt.web.metrics import metrics_text
from dsopt.web.optuna_pages import PLACES, optuna_pages
from dsopt.web.overview import Overview
from dsopt.web.render import render
from dsopt.web.study_page import StudyPages

_READING: Final = ("GET", "HEAD", "OPTIONS")
_MOST_ROWS: Final = 100
_HTML: Final = "text/html; charset=utf-8"
_ASSETS: Final = {
    "style.css": "text/css; charset=utf-8",
    "optuna.css": "text/css; charset=utf-8",
    "refresh.js": "text/javascript; charset=utf-8",
}
_HEADERS: Final = [
    ("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
     "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
]  # fmt: skip


def application(store: Store, *, root: str = "") -> Application:
    """All pages of a storage as a WSGI application; `root` is the path under which a reverse proxy shows them."""
    return _Pages(store, root)


class _Pages:
    def __init__(self, store: Store, root: str) -> None:
        self._store, self._root = store, root
        self._assets = {name: resources.files("dsopt.web").joinpath(name).read_bytes() for name in _ASSETS}
        self._lock = threading.Lock()
        self._incarnation = store.incarnation()
        self._begin()

    def _begin(self) -> None:
        """Makes what remembers what it has read of the storage."""
        histories = Histories(self._store)
        self._overview = Overview(self._store, histories)
        self._studies = StudyPages(self._store, histories)
        self._optuna = optuna_pages(self._store, self._studies, root=self._root)

    def _look_whether_restored(self) -> None:
        """Forgets everything once a backup was restored: earlier figures would stand beside later ones."""
        found = self._store.incarnation()
        with self._lock:
            if found != self._incarnation:
                self._store.forget()
                self._begin()
                self._incarnation = found

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if method not in _READING:
            start_response("405 Method Not Allowed", [("Content-Type", "application/json"), ("Allow", "GET, HEAD")])
            return [b'{"reason": "This dashboard only shows: dsopt serves it read-only."}']
        asked = environ.get("QUERY_STRING", "").split("&")
        try:
            self._look_whether_restored()
            if path.startswith(PLACES):
                return self._optuna(environ, start_response)
            status, kind, body = self._answer(
                path, is_part="part=1" in asked, most=None if "all=1" in asked else _MOST_ROWS
            )
        except Exception as error:
            words = database_error(error)
            if words is None:
                raise
            start_response("503 Service Unavailable", [("Content-Type", "text/plain; charset=utf-8"), *_HEADERS])
            return [f"The database cannot be used now: {words}\n".encode()]
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = [("Content-Type", kind), ("ETag", tag), ("Cache-Control", "no-cache"), *_HEADERS]
        if status.startswith("200") and tag in _tags(environ):
            start_response("304 Not Modified", headers)
            return [b""]
        start_response(status, [*headers, ("Content-Length", str(len(body)))])
        return [b"" if method == "HEAD" else body]

    def _answer(self, path: str, *, is_part: bool, most: int | None) -> tuple[str, str, bytes]:
        """Status, type and content of an address.

        Args:
            path: the address.
            is_part: whether only what changes on the page is wanted.
            most: how many rows of what was tried to show; None: all.
        """
        if path == "/":
            return "200 OK", _HTML, render("overview", is_part=is_part, page=self._overview.read()).encode()
        if path == "/metrics":
            return "200 OK", "text/plain; version=0.0.4; charset=utf-8", metrics_text(self._overview.read()).encode()
        first, _, rest = path.lstrip("/").partition("/")
        if first == "assets" and rest in _ASSETS:
            return "200 OK", _ASSETS[rest], self._assets[rest]
        name = urllib.parse.unquote(rest.encode("latin-1").decode("utf-8", "replace"))
        if first == "study" and name and "\0" not in name:
            try:
                page = self._studies.read(name)
            except DsoptError as error:
                return "404 Not Found", _HTML, render("missing", is_part=is_part, message=str(error), up="../").encode()
            return "200 OK", _HTML, render("study", is_part=is_part, page=page, most=most, up="../").encode()
        message = "There is no such page."
        up = "../" * path.lstrip("/").count("/")
        return "404 Not Found", _HTML, render("missing", is_part=is_part, message=message, up=up or "./").encode()


def _tags(environ: Environ) -> list[str]:
    """The tags that a browser has; a proxy that compresses makes weak ones of them."""
    return [tag.strip().removeprefix("W/") for tag in environ.get("HTTP_IF_NONE_MATCH", "").split(",")]
