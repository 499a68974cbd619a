"""optuna-dashboard's own page and script as they are served: under a path, and without buttons that change things.

Its script is built for `/dashboard` at the root of a server. The addresses in it become those where dsopt
shows it. A version whose script has other addresses is not guessed at.
"""

import gzip
import html
import threading
from typing import Final

# addresses in the script, and those that dsopt has for them
_ADDRESSES: Final = (
    (b'url_prefix:"/dashboard"', b'url_prefix:"%s/optuna"'),
    (b".baseURL}/api/", b".baseURL}%s/api/"),
    (b"`/csv/", b"`%s/csv/"),
    (b"`/artifacts/", b"`%s/artifacts/"),
)
_SCRIPT: Final = b'src="/static/'
_HEAD: Final = b"</head>"
_BODY: Final = b"<body>"


class UnknownScriptError(Exception):
    """The script has none of the addresses that it is known to have."""


class OptunaFiles:
    """Changes what optuna-dashboard serves to browsers.

    Args:
        root: the path under which everything is served, such as `/dsopt`; empty: the root of the server.
    """

    def __init__(self, root: str) -> None:
        self._root = root.encode()
        self._scripts: dict[bytes, bytes] = {}
        self._lock = threading.Lock()

    def page(self, content: bytes) -> bytes:
        """The page that loads the script, with a sentence that nothing can be changed, and without such buttons."""
        root = html.escape(self._root.decode()).encode()
        style = b'<link rel="stylesheet" href="%s/assets/optuna.css"><link rel="icon" href="data:,">' % root
        note = (
            b'<p id="dsopt-read-only">Read-only: nothing can be changed here. <a href="%s/">Back to dsopt</a></p>'
        ) % root
        found = content.replace(_SCRIPT, b'src="%s/static/' % root)
        return found.replace(_HEAD, style + _HEAD, 1).replace(_BODY, _BODY + note, 1)

    def script(self, content: bytes) -> bytes:
        """The script, compressed, with the addresses that dsopt has.

        Raises:
            UnknownScriptError: this version has other addresses.
        """
        with self._lock:
            if content not in self._scripts:
                self._scripts = {content: gzip.compress(_moved(content, self._root), 5, mtime=0)}
            return self._scripts[content]


def _moved(script: bytes, root: bytes) -> bytes:
    for known, moved in _ADDRESSES:
        if known not in script:
            raise UnknownScriptError(known.decode())
        script = script.replace(known, moved % root)
    return script
