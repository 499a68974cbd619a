"""Names of variables, flags and keys that suggest a secret."""

import re
from typing import Final

# in any case; neither a tokenizer nor an author, and no KeyError
NAME: Final = (
    r"(?:token(?!iz)|(?<![A-Za-z])keys?(?![A-Za-z])|api_?key|access_?key|secret|passw|pwd"
    r"|passphrase|auth(?!or)|credential|webhook|(?<![A-Za-z])(?:pw|pat|sas|sig|pass|passcode|creds?|jwt|bearer|cookies?)(?![A-Za-z]))"
)
_SENSITIVE: Final = re.compile(NAME, re.IGNORECASE)
# names of a file, a folder, another name; special tokens of a tokenizer
_HARMLESS: Final = re.compile(
    r"^(?:old)?pwd$|(?:file|path|dir|folder|sock|socket|size|length|type|format|name|env|var)$|token[_-]?ids?$"
    r"|(?:pad|bos|eos|unk|sep|cls|mask|special|image|stop|begin|start|end)[_-]?tokens?$",
    re.IGNORECASE,
)


def is_sensitive(name: str) -> bool:
    """Whether the name of a flag, key or variable suggests a secret."""
    return _SENSITIVE.search(name) is not None


def is_secret_name(name: str) -> bool:
    """Whether a variable or flag of this name usually holds a secret itself, rather than a path or a setting."""
    return is_sensitive(name) and _HARMLESS.search(name) is None
