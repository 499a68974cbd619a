"""optuna-dashboard on a storage, read-only: by itself, it has no authentication and lets anyone change everything.

What it shows of dsopt's studies, dsopt adds as it is asked for: charts of a part, and files of a trial.
"""

import gzip
import hashlib
import json
import re
import urllib.parse
from collections.abc import Callable, Iterable
from typing import Any, Final

import optuna

from dsopt.errors import DsoptError
from dsopt.store.studies import Store
from dsopt.study.part import Part
from dsopt.web.access import Application, Environ
from dsopt.web.optuna_figures import figures_of
from dsopt.web.optuna_files import OptunaFiles, UnknownScriptError
from dsopt.web.render import render
from dsopt.web.study_page import StudyPages
from dsopt.web.trial_files import TrialFiles

_HERE: Final = "/optuna"  # where dsopt shows it
_ITS_OWN: Final = "/dashboard"  # where it shows itself
PLACES: Final = (_HERE, _ITS_OWN, "/api/", "/static/", "/artifacts/", "/favicon.ico", "/csv/")  # its own addresses
_IMPORTANCES: Final = re.compile(r"/api/studies/(\d{1,18})/param_importances")
_STUDY: Final = re.compile(r"/api/studies/(\d{1,18})")
_FILE: Final = re.compile(r"/artifacts/(\d{1,18})/(\d{1,18})/([0-9a-fA-F-]{1,64})")
_SCRIPT: Final = re.compile(rb'src="(/static/[^"]+)"')
_CONDITIONS: Final = ("HTTP_IF_MODIFIED_SINCE", "HTTP_IF_NONE_MATCH", "HTTP_RANGE")  # of what dsopt changes
_JSON: Final = [("Content-Type", "application/json")]
_FILE_HEADERS: Final = [
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-cache"),
]

Start = Callable[..., Any]


def optuna_pages(store: Store, studies: StudyPages, *, root: str = "") -> Application:
    """The dashboard as a WSGI application, for requests that only read; `root` is the path that it is shown under."""
    return _Pages(store, studies, root)


class _Pages:
    def __init__(self, store: Store, studies: StudyPages, root: str) -> None:
        from optuna_dashboard import wsgi

        self._dashboard: Application = wsgi(store.optuna_storage)
        self._storage = store.optuna_storage
        self._studies = studies
        self._root = root
        self._served = OptunaFiles(root)
        self._files = TrialFiles(store)

    def __call__(self, environ: Environ, start_response: Start) -> Iterable[bytes]:
        answer = self._route(environ, start_response)
        return [] if isinstance(answer, list) and environ["REQUEST_METHOD"] == "HEAD" else answer

    def _route(self, environ: Environ, start_response: Start) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        environ.setdefault("HTTP_ACCEPT_ENCODING", "")  # the dashboard raises KeyError without it
        if path.startswith("/static/"):
            return self._static(environ, start_response)
        for place, other in ((_HERE, _ITS_OWN), (_ITS_OWN, _HERE)):
            if path == place or path.startswith(f"{place}/"):
                return self._page(environ, start_response, place, other)
        if path == "/api/meta":
            return self._json(environ, start_response, self._meta)
        if _STUDY.fullmatch(path):
            return self._json(environ, start_response, self._study)
        if asked := _FILE.fullmatch(path):
            return self._file(start_response, int(asked[1]), int(asked[2]), asked[3])
        asked = _IMPORTANCES.fullmatch(path)
        if asked is not None and not _has_parameters(self._storage, int(asked[1])):
            start_response("200 OK", _JSON)
            return [b'{"param_importances": [[]]}']
        return self._dashboard(environ, start_response)

    def _page(self, environ: Environ, start_response: Start, place: str, other: str) -> Iterable[bytes]:
        """The page where its script works; from the other place, browsers are sent there."""
        rest = environ["PATH_INFO"].removeprefix(place)
        status, headers, content = _answer(self._dashboard, environ | {"PATH_INFO": _ITS_OWN + rest})
        is_moved = True
        if script := _SCRIPT.search(content):
            try:
                self._served.script(_answer(self._dashboard, environ | {"PATH_INFO": script[1].decode()})[2])
            except UnknownScriptError:
                if self._root:
                    return self._in_words(start_response)
                is_moved = False
        if is_moved != (place == _HERE):
            asked = environ.get("QUERY_STRING", "")
            there = f"{'../' * rest.count('/')}{other[1:]}{urllib.parse.quote(rest)}{f'?{asked}' if asked else ''}"
            start_response("302 Found", [("Location", there), ("Content-Length", "0")])
            return []
        return _send(start_response, status, headers, self._served.page(content))

    def _in_words(self, start_response: Start) -> Iterable[bytes]:
        message = (
            f"This version of optuna-dashboard cannot be shown under {self._root}. Start 'dsopt dashboard' on another "
            "port without --root-path, and open that one. dsopt was tested with optuna-dashboard 0.21."
        )
        content = render("missing", message=message, up=f"{self._root}/").encode()
        return _send(start_response, "501 Not Implemented", [("Content-Type", "text/html; charset=utf-8")], content)

    def _static(self, environ: Environ, start_response: Start) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if not _names_a_file(path):
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"There is no such file.\n"]
        if not path.endswith(".js"):
            return self._dashboard(environ, start_response)
        status, headers, content = _answer(self._dashboard, environ)
        if not status.startswith("200"):
            return _send(start_response, status, headers, content)
        try:
            compressed = self._served.script(content)
        except UnknownScriptError:
            return _send(start_response, status, headers, content)
        if "gzip" not in environ["HTTP_ACCEPT_ENCODING"]:
            return _send(start_response, status, headers, gzip.decompress(compressed))
        tag = f'"{hashlib.sha256(compressed).hexdigest()[:32]}"'
        headers += [("Content-Encoding", "gzip"), ("ETag", tag), ("Cache-Control", "no-cache")]
        if tag in environ.get("HTTP_IF_NONE_MATCH", ""):
            return _send(start_response, "304 Not Modified", headers, b"")
        return _send(start_response, status, headers, compressed)

    def _json(
        self, environ: Environ, start_response: Start, changed: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> Iterable[bytes]:
        status, headers, content = _answer(self._dashboard, environ)
        if status.startswith("200") and content:
            content = json.dumps(changed(json.loads(content))).encode()
        return _send(start_response, status, headers, content)

    def _meta(self, content: dict[str, Any]) -> dict[str, Any]:
        """What the script asks first: there are files, and below which path it finds them."""
        return content | {"artifact_is_available": True, "jupyterlab_extension_context": {"base_url": self._root}}

    def _study(self, content: dict[str, Any]) -> dict[str, Any]:
        """Charts of a part of a study, and the files of its trials; nothing of a study that is none of dsopt's."""
        name, _, part = content["name"].rpartition("/")
        try:
            page = self._studies.read(name)
        except DsoptError:
            return content
        content["plotly_graph_objects"] += [
            {"id": key, "graph_object": json.dumps(figure)} for key, figure in figures_of(page, Part(part)).items()
        ]
        for trial in [*content["trials"], *content["best_trials"]]:
            trial["artifacts"] += self._files.listed(trial)
        return content

    def _file(self, start_response: Start, study_id: int, trial_id: int, file_id: str) -> Iterable[bytes]:
        found = self._files.read(study_id, trial_id, file_id)
        if found is None:
            start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
            return [b"There is no such file, or Optuna's study is none of dsopt's.\n"]
        name, kind, content = found
        shown = f"inline; filename*=UTF-8''{urllib.parse.quote(name)}"
        headers = [("Content-Type", kind), ("Content-Disposition", shown), *_FILE_HEADERS]
        return _send(start_response, "200 OK", headers, content)


def _answer(dashboard: Application, environ: Environ) -> tuple[str, list[tuple[str, str]], bytes]:
    """What the dashboard answers: status, headers that stay true when the content is changed, content."""
    told: list[Any] = []
    whole = {key: value for key, value in environ.items() if key not in _CONDITIONS}
    whole |= {"REQUEST_METHOD": "GET", "HTTP_ACCEPT_ENCODING": ""}
    answer = dashboard(whole, lambda status, headers, _=None: told.extend([status, headers]))
    try:
        content = b"".join(answer)
    finally:
        if hasattr(answer, "close"):
            answer.close()
    status, headers = told
    gone = ("content-length", "etag", "last-modified", "accept-ranges", "content-encoding")
    return status, [(name, value) for name, value in headers if name.lower() not in gone], content


def _send(start_response: Start, status: str, headers: list[tuple[str, str]], content: bytes) -> list[bytes]:
    start_response(status, [*headers, ("Content-Length", str(len(content)))])
    return [content]


def _has_parameters(storage: optuna.storages.BaseStorage, study_id: int) -> bool:
    """Whether a study's trials have some: the dashboard divides by their number. A study that is gone is left to it."""
    try:
        return any(trial.params for trial in storage.get_all_trials(study_id, deepcopy=False))
    except KeyError:
        return True


def _names_a_file(path: str) -> bool:
    return not {"", ".", ".."} & set(path.removeprefix("/static/").replace("\\", "/").split("/")) and "\0" not in path
