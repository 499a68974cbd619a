"""Who may read a dashboard: a check of the `Host:` header on loopback, a token everywhere else."""

import hmac
import html
import ipaddress
import re
import secrets
import urllib.parse
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from dsopt.errors import DsoptError

Environ = dict[str, Any]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

HEALTH_PATH: Final = "/healthz"
_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,200}")  # fits a URL and a cookie as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a request needs.

    Attributes:
        names: those that the `Host:` header may have; None: any. A page elsewhere can make its own name lead to
            127.0.0.1, and a browser then lets it read what is served there.
        token: what a reader has to show; None: nothing.
    """

    names: Collection[str] | None
    token: str | None


def access_to(host: str, address: str, token: str | None) -> Access:
    """What a request to a server needs.

    Args:
        host: where a person let the server listen.
        address: the address that it is bound to.
        token: the one to ask for. None: on loopback none, and a new one elsewhere.
    """
    if not ipaddress.ip_address(address).is_loopback:
        return Access(names=None, token=token or secrets.token_urlsafe(24))
    return Access(names={"localhost", "127.0.0.1", "::1", address, _plain(host)} - {""}, token=token)


def checked_token(token: str, name: str) -> str:
    """A token that a person gave, if it can be one. `name` says where it comes from.

    Raises:
        DsoptError: it is too short, or would not survive in a URL.
    """
    if _TOKEN.fullmatch(token) is None:
        raise DsoptError(f"{name}: a token has 16 to 200 letters, digits and '-', '_', '.' or '~'.")
    return token


def guarded(application: Application, access: Access, port: int, *, root: str = "") -> Application:
    """The application behind the checks; only `/healthz` answers to anyone, and says no more than `ok`.

    `root` is the path under which a reverse proxy shows it, whether the proxy takes that away or not.
    """
    cookie = f"dsopt_dashboard_{port}"  # cookies do not tell ports apart

    def guard(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        if root and environ["PATH_INFO"].startswith(f"{root}/"):
            environ["PATH_INFO"] = environ["PATH_INFO"][len(root) :]
        if environ["PATH_INFO"] == HEALTH_PATH and environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return _text(start_response, "200 OK", "ok\n")
        if access.names is not None and _plain(environ.get("HTTP_HOST", "")) not in access.names:
            return _text(start_response, "403 Forbidden", "This dashboard answers to localhost only.\n")
        if access.token is None or _shows(environ, access.token, cookie):
            return application(environ, start_response)
        if _same(_token_of_query(environ), access.token):
            return _remember(environ, start_response, f"{cookie}={access.token}", root)
        return _text(
            start_response,
            "401 Unauthorized",
            "This dashboard needs its token: open the address that 'dsopt dashboard' has printed.\n",
            [("WWW-Authenticate", "Bearer")],
        )

    return guard


def _shows(environ: Environ, token: str, cookie: str) -> bool:
    """Whether a request has the token, as a cookie or as a program's `Authorization: Bearer`."""
    scheme, _, given = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme.lower() == "bearer" and _same(given.strip(), token):
        return True
    # not http.cookies: another program's cookie that it cannot parse would hide ours
    pairs = (pair.strip().partition("=") for pair in environ.get("HTTP_COOKIE", "").split(";"))
    return any(name == cookie and _same(value, token) for name, _, value in pairs)


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode())


def _token_of_query(environ: Environ) -> str:
    return next((value for key, value in _query(environ) if key == "token"), "")


def _query(environ: Environ) -> list[tuple[str, str]]:
    return urllib.parse.parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True)


def _remember(environ: Environ, start_response: Callable[..., Any], cookie: str, root: str) -> Iterable[bytes]:
    """Sends the browser to the same address without the token, which then is in no history, log or link."""
    path = "/" + environ["PATH_INFO"].encode("latin-1").decode("utf-8", "replace").lstrip("/\\")  # never another host
    rest = urllib.parse.urlencode([(key, value) for key, value in _query(environ) if key != "token"])
    target = urllib.parse.quote(root + path) + (f"?{rest}" if rest else "")
    headers = [
        ("Location", target),
        ("Set-Cookie", f"{cookie}; Path=/; HttpOnly; SameSite=Lax"),
        ("Cache-Control", "no-store"),
        ("Referrer-Policy", "no-referrer"),
    ]
    return _text(start_response, "303 See Other", f"See {html.escape(target)}\n", headers)


def _text(
    start_response: Callable[..., Any], status: str, text: str, headers: Collection[tuple[str, str]] = ()
) -> Iterable[bytes]:
    body = text.encode()
    start_response(
        status, [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body))), *headers]
    )
    return [body]


def _plain(host: str) -> str:
    """The name in a `Host:` header, or as a person writes it: without port, brackets and a last dot."""
    name = host.strip().lower()
    if name.startswith("["):
        name, _, port = name[1:].partition("]")
        return name if not port or port.startswith(":") else ""
    if name.count(":") == 1:
        name = name.partition(":")[0]
    return name.removesuffix(".")
