"""Tells a person's webhook or command that a study has ended, or that a worker cannot go on."""

import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from typing import Final
from urllib.parse import urlsplit

from dsopt.errors import DsoptError
from dsopt.protocol.text import plain_text
from dsopt.version import __version__

_ANSWER_SECONDS: Final = 10.0
_COMMAND_SECONDS: Final = 60.0
_SHELL: Final = "/bin/sh"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_PLAIN: Final = re.compile(r"\s*([\w./+-]+)(?=\s|$)")  # a first word that a shell takes as it is
_EXPECTED: Final = "Expected an http:// or https:// URL, or a command."


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """What is sent, as JSON.

    Attributes:
        study: the study's name; None if the worker ended before it had one.
        state: `finished`, `unconfirmed`, `stopped`, or `stuck`: the worker ended with an error.
        sentence: the result or the error, in words.
        factor: how many times as good as the user's own configuration the best is; None if that is not known.
        interval: the 95 % interval of `factor`; None if it is not known.
        own_global_batch, best_global_batch: samples of a step; None if they are the same, or not known.
        storage: URL of the database, without the password; None if it is not valid.
        node: the machine that sends this.
    """

    study: str | None
    state: str
    sentence: str
    factor: float | None = None
    interval: tuple[float, float] | None = None
    own_global_batch: int | None = None
    best_global_batch: int | None = None
    storage: str | None
    node: str


class NotDelivered(Exception):  # noqa: N818 - an expected outcome, which is told in one line
    """A notification did not arrive; the message says whereto, and why."""


def check_target(what: str, origin: str) -> None:
    """Refuses what can never be told anything, before any work begins.

    Args:
        what: an http(s) URL, or a command of a shell.
        origin: where a person wrote it, such as `--notify`.

    Raises:
        DsoptError: it is neither, or the shell does not know the command.
    """
    if not what.strip():
        raise DsoptError(f"{origin}: is empty. {_EXPECTED}")
    if "\0" in what:
        raise DsoptError(f"{origin}: contains a NUL byte. {_EXPECTED}")
    scheme = _SCHEME.match(what)
    if scheme is None and not what.lower().startswith(("http:", "https:")):
        _check_command(what, origin)
    elif scheme is None:
        raise DsoptError(f"{origin}: '{what[:20]}…' lacks the // of a URL. {_EXPECTED}")
    elif scheme[1].lower() not in ("http", "https"):
        raise DsoptError(f"{origin}: dsopt does not speak '{scheme[1]}://'. {_EXPECTED}")
    else:
        _check_url(what, origin)


def send(what: str, notification: Notification) -> None:
    """Sends a notification to an http(s) URL or a command; waits for at most ten or sixty seconds.

    Raises:
        NotDelivered: it did not arrive.
    """
    content = json.dumps(asdict(notification), ensure_ascii=False).encode(errors="replace")
    if _SCHEME.match(what):
        _post(what, content)
    else:
        _run(what, content)


def node_name() -> str:
    """The name of this machine."""
    return socket.gethostname()


def _check_url(url: str, origin: str) -> None:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise DsoptError(f"{origin}: is not a valid URL: {error}. Expected http://HOST[:PORT]/…") from None
    if not host or re.search(r"[^\x21-\x7e]", url):
        reason = "has no host" if not host else "contains a space or a character that is not ASCII"
        raise DsoptError(f"{origin}: the URL {reason}. Expected http://HOST[:PORT]/…")
    if parts.username is not None or parts.password is not None:
        raise DsoptError(
            f"{origin}: the URL of {host} contains a user or a password, which dsopt does not send. Use a command: "
            "curl --fail --user USER:PASSWORD --data @- URL"
        )


def _check_command(command: str, origin: str) -> None:
    checked = subprocess.run([_SHELL, "-n", "-c", command], capture_output=True, text=True, check=False)
    if checked.returncode:
        raise DsoptError(f"{origin}: the shell does not understand the command: {checked.stderr.strip()}. {_EXPECTED}")
    first = _PLAIN.match(command)
    if first is not None:
        look = [_SHELL, "-c", 'command -v "$1"', _SHELL, first[1]]
        if subprocess.run(look, capture_output=True, check=False).returncode:
            raise DsoptError(f"{origin}: there is no command '{first[1]}' here. {_EXPECTED}")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected POST would become a GET without the document."""

    def redirect_request(self, *_: object) -> None:
        return None


def _post(url: str, content: bytes) -> None:
    """Posts the document. A thread ends the waiting: what a socket waits for has no limit as a whole."""
    host = urlsplit(url).netloc  # the rest of a webhook's URL is often its secret
    headers = {"Content-Type": "application/json", "User-Agent": f"dsopt/{__version__}"}
    request = urllib.request.Request(url, content, headers, method="POST")  # noqa: S310 - checked: http or https
    trouble = [f"no answer within {_ANSWER_SECONDS:.0f} s"]

    def post() -> None:
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=_ANSWER_SECONDS):
                trouble.clear()
        except urllib.error.HTTPError as error:
            with error:
                trouble[:] = [f"the answer was {error.code} {error.reason}"]
        except urllib.error.URLError as error:
            trouble[:] = [str(getattr(error.reason, "strerror", None) or error.reason)]
        except Exception as error:  # an answer that is not HTTP, a proxy's own errors
            trouble[:] = [f"{type(error).__name__}: {error}"]

    posting = threading.Thread(target=post, name="dsopt-notify", daemon=True)
    posting.start()
    posting.join(_ANSWER_SECONDS)
    for what in tuple(trouble):  # as it is now: the thread may still empty it
        raise NotDelivered(f"{host}: {_line(what)}")


def _run(command: str, content: bytes) -> None:
    """Runs the command with the document on stdin. It may leave processes behind, but not after the limit."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said:
        given.write(content)
        given.seek(0)
        try:
            process = subprocess.Popen(
                [_SHELL, "-c", command], stdin=given, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as error:
            raise NotDelivered(f"the command cannot be started: {error.strerror}") from None
        try:
            code = process.wait(_COMMAND_SECONDS)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise NotDelivered(f"the command took more than {_COMMAND_SECONDS:.0f} s and was ended") from None
            raise
        if code:
            said.seek(0)
            last = said.read()[-2000:].decode(errors="replace").strip().splitlines()[-1:]
            how = f"exited with {code}" if code > 0 else f"was ended by signal {-code}"
            raise NotDelivered(_line(": ".join([f"the command {how}", *last])))


def _line(text: str) -> str:
    return " ".join(plain_text(text).split())[:300]
