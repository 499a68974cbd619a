"""What looks like a secret: by its name or its form; and references such as `$HF_TOKEN`.

A study keeps the reference. The worker that launches a run puts in the value, from its own environment.
"""

import base64
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote

from dsopt.protocol.secret_names import is_secret_name

HIDDEN: Final = "***"
STORAGE_VARIABLE: Final = "DSOPT_STORAGE"  # may hold the database's password
STORAGE_FILE_VARIABLE: Final = "DSOPT_STORAGE_FILE"  # names a file that holds it, as containers get it
KEYS_VARIABLE: Final = "DSOPT_KEYS"
TOKEN_FILE_VARIABLE: Final = "DSOPT_DASHBOARD_TOKEN_FILE"  # noqa: S105 - a name
NOTIFY_VARIABLE: Final = "DSOPT_NOTIFY"  # a webhook's URL is often its secret
OWN_ACCESS: Final = frozenset(
    {STORAGE_VARIABLE, STORAGE_FILE_VARIABLE, KEYS_VARIABLE, TOKEN_FILE_VARIABLE, NOTIFY_VARIABLE}
)
SHORTEST: Final = 6  # shorter values are too common to search for everywhere

# names that say it; of others, such as `--text_key`, only a value that looks random is a secret
_STRONG: Final = re.compile(
    r"(?<![a-z])tokens?$|(?:api|access|secret|private|encryption|signing|license|account|master|ssh)[_-]?key|secret"
    r"|passw|pwd|passphrase|credential|webhook|auth[_-]?(?:token|key|code)|(?<![a-z])(?:pass|pw|passcode|creds?|jwt|bearer)$",
    re.IGNORECASE,
)
_STRONG_VARIABLE: Final = re.compile(r"(?:^|_)(?:PAT|AUTH|COOKIES?)$")  # of a flag, it may be a pattern or a kind
_FRACTION: Final = re.compile(r"[+-]?(?:\d*\.\d+|\d+\.?)(?:e[+-]?\d+)?", re.IGNORECASE)
_RANDOM: Final = re.compile(r"(?=[^\s]*\d)(?=[^\s]*[A-Za-z])[A-Za-z0-9_+/=.:-]{16,}")
_COUNTS: Final = re.compile(r"tokens|keys", re.IGNORECASE)  # how many, if the value is a number
_MARK: Final = re.compile(r"<[^<>]*>|\[[A-Z_]+\]")  # a special token of a tokenizer
_SWITCHES: Final = frozenset(["", "true", "false", "yes", "no", "on", "off", "none", "null", "auto", "disabled"])

TOKENS: Final[tuple[re.Pattern[str], ...]] = tuple(
    re.compile(pattern)
    for pattern in (
        # Databricks, npm, Replicate, SendGrid, Weights & Biases' new ones
        r"\b(?:dapi[0-9a-f]{16,}|npm_\w{16,}|r8_\w{16,}|SG\.[\w.-]{16,}|wandb_v1_\w{8,})",
        # Hugging Face, OpenAI and like it, GitHub, GitLab, AWS, Slack, Google, JSON web tokens
        r"\bhf_[A-Za-z0-9]{8,}",
        r"\bsk-[A-Za-z0-9_-]{8,}",
        r"\b(?:gh[pousr]_|github_pat_|glpat-)[A-Za-z0-9_-]{8,}",
        r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}",
        r"\bxox[a-z]-[A-Za-z0-9-]{8,}",
        r"\bAIza[A-Za-z0-9_-]{20,}",
        r"\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+",
        # in a header, and in a URL
        r"(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{8,}",
        r"(?i:(?<=[?&]token=)|(?<=access_token=)|(?<=security-token=)|(?<=[?&]sig=)|(?<=[?&-]signature=))[^&\s'\"]{6,}",
        r"(?:(?<=https://)|(?<=http://))(?=[A-Za-z_]*\d)(?=\d*[A-Za-z])\w{16,}(?=@)",
        # Slack, Discord, Telegram
        r"(?:(?<=hooks\.slack\.com/services/)|(?<=/api/webhooks/)|(?<=api\.telegram\.org/bot))[\w/:-]{6,}",
    )
)
_PASSWORD_IN_URL: Final = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@]*:([^\s'\"]+)@")
# in a connection string, as of Azure's storage, ODBC and libpq: several pairs, one of which says it
_PAIRS: Final = re.compile(r"\w\s*=[^=].*\w\s*=", re.DOTALL)
_PAIR: Final = re.compile(
    r"""(?<![a-z])(?:(?:account[_-]?key|shared[_-]?access[_-]?key)=|(?:(?:passw(?:or)?d|pwd|passphrase)="""
    r"""|(?:secret|api[_-]?key|access[_-]?key)=(?=\S{0,200}\d))(?![/~.]))(?![<$*{])([^\s"'\\,;&|)\]}]{6,})""",
    re.IGNORECASE,
)
_AUTHORIZATION: Final = re.compile(
    r"""\b(authorization\\*["']?\s*[:=]\s*\\*["']?(?:[a-z]+\s+)?)(?=\S{0,200}[\d=])[a-z0-9._~+/=-]{6,}""", re.IGNORECASE
)
# secrets by what stands in front of them, and what is shown: in a URL, in a header, after a name that says it
FORMS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    # a password may contain an @ or a / that was not written as %40 or %2F
    (re.compile(r"(\b[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@'\"]*:)[^\s'\"]+@"), rf"\1{HIDDEN}@"),
    (re.compile(r"\b((?:bearer|basic)\s+)(?=[^\s]*[\d=])[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE), rf"\1{HIDDEN}"),
    (
        re.compile(
            r"""((?<![a-z])(?:password|passwd|pwd|passphrase|secret|api[_-]?key|(?:shared[_-]?)?access[_-]?key"""
            r"""|account[_-]?key)\\*["']?\s*[:=]\s*\\*["']?)[^\s"'\\,;&|)\]}]{6,}""",
            re.IGNORECASE,
        ),
        rf"\1{HIDDEN}",
    ),
    (_AUTHORIZATION, rf"\1{HIDDEN}"),
)
_PRIVATE_KEY: Final = "PRIVATE KEY-----"  # in PEM, also within a cloud's JSON of credentials
_LONG: Final = re.compile(r"[A-Za-z0-9+/_=-]{16,}")  # as in a key; not words
_LINE_END: Final = re.compile(r"\\n|\n")  # as it is, or as JSON writes it
_REFERENCE: Final = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


def looks_secret(name: str, value: str) -> bool:
    """Whether a variable or flag with this value holds a secret, by its name or by its value."""
    if any(form.search(value) for form in (*TOKENS, _PASSWORD_IN_URL, _AUTHORIZATION)) or _PRIVATE_KEY in value:
        return True
    if _PAIRS.search(value) and _PAIR.search(value):
        return True
    if not is_secret_name(name) or value.lower() in _SWITCHES or _MARK.fullmatch(value):
        return False
    if _STRONG.search(name) is None and _STRONG_VARIABLE.search(name) is None:
        return _RANDOM.fullmatch(value) is not None and not _is_path(value)
    is_fraction = not value.isdecimal() and _FRACTION.fullmatch(value) is not None
    is_count = value.isdecimal() and (len(value) < SHORTEST or _COUNTS.search(name) is not None)
    return not (is_count or is_fraction) and not _is_path(value)


def _is_path(value: str) -> bool:
    """Whether a value only says where something is."""
    try:
        return value.startswith(("/", "./", "~/")) and Path(value).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False


def shown_settings(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Settings as JSON for others: hides the values of keys whose names suggest a secret, and well-known tokens."""
    if isinstance(value, Mapping):
        return {
            key: HIDDEN if is_secret_name(str(key)) and not _are_numbers(inner) else shown_settings(inner)
            for key, inner in value.items()
        }
    if isinstance(value, str):
        return hidden(value, ())
    return [shown_settings(inner) for inner in value] if isinstance(value, list) else value


def _are_numbers(value: object) -> bool:
    """Whether a value counts something, such as `max_tokens`."""
    values = value if isinstance(value, list) else [value]
    return bool(values) and all(
        isinstance(one, int | float) or (isinstance(one, str) and one.isdecimal() and len(one) < SHORTEST)
        for one in values
    )


def references(text: str) -> list[str]:
    """The variables that a text refers to as `$NAME` or `${NAME}` and whose names suggest a secret."""
    return [name for match in _REFERENCE.finditer(text) if is_secret_name(name := match[1] or match[2])]


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with the values of what it refers to; references without a value stay."""

    def value_of(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return values.get(name, match[0]) if is_secret_name(name) else match[0]

    return _REFERENCE.sub(value_of, text)


def without_references(text: str) -> str:
    """The text without what it refers to."""
    return filled(text, dict.fromkeys(references(text), ""))


def quoted(word: str) -> str:
    """A word for a shell, as `shlex.quote` does it, but so that the shell fills in the references."""
    pieces, end = [], 0
    for match in _REFERENCE.finditer(word):
        if is_secret_name(match[1] or match[2]):
            pieces += [word[end : match.start()], match[0]]
            end = match.end()
    pieces.append(word[end:])
    if len(pieces) == 1:
        return shlex.quote(word)
    return "".join(
        f'"{piece}"' if index % 2 else shlex.quote(piece) if piece else "" for index, piece in enumerate(pieces)
    )


def secret_values(environment: Mapping[str, str], further: Iterable[str] = ()) -> list[str]:
    """The values to hide of an environment, longest first: those that look secret, and `further`.

    Of a value with several lines, such as a key, each that looks random is one, too. Programs print them in many ways.
    """
    whole = {*further, *(value for name, value in environment.items() if looks_secret(name, value))}
    found = {*whole}
    for value in whole:
        passwords = [match[1] for match in _PASSWORD_IN_URL.finditer(value)]
        keys = [match[1] for match in _PAIR.finditer(value) if _RANDOM.fullmatch(match[1])]
        found |= {*keys, *passwords, *map(unquote, passwords)}
    found |= {line.strip() for value in found for line in _LINE_END.split(value) if _LONG.search(line)}
    found |= {form for value in found if len(value) >= SHORTEST for form in _forms(value)}
    return sorted((value for value in found if len(value) >= SHORTEST), key=len, reverse=True)


def _forms(value: str) -> Iterator[str]:
    """A value as Python, JSON, URLs and headers write it, or have it written."""
    written = value.encode("utf-8", "surrogateescape")
    yield from (repr(value)[1:-1], repr(written)[2:-1], base64.b64encode(written).decode("ascii").rstrip("="))
    yield from (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    yield from (quote(written), quote(written, safe=""), quote_plus(written), unquote(value))


def hidden(text: str, values: Iterable[str]) -> str:
    """The text with these values, and whatever has the form of a secret, as `***`."""
    for value in values:
        text = text.replace(value, HIDDEN)
    for token in TOKENS:
        text = token.sub(HIDDEN, text)
    for form, shown in FORMS:
        text = form.sub(shown, text)
    return text
