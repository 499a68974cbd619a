"""The end of a log, for people to read."""

import os
import re
from pathlib import Path
from typing import Final

from dsopt.protocol.given import open_given

_LINE_END: Final = re.compile(rb"[\r\n]")
_LONGEST_SECRET: Final = 4096  # bytes, in one line


def tail(path: Path, most_bytes: int) -> str:
    """The end of a log, which may be larger than memory; empty if the script has removed it.

    It begins with a line, or in one that is too long: half of a secret has no form by which it could be hidden.
    """
    try:
        with open_given(path) as file:
            start = file.seek(max(0, file.seek(0, os.SEEK_END) - most_bytes))
            content = file.read(most_bytes)
    except OSError:
        return ""
    if start > 0:
        end = _LINE_END.search(content, 0, len(content.rstrip(b"\r\n")))  # with something after it
        content = content[end.end() if end else min(_LONGEST_SECRET, most_bytes // 2) :]
    return content.decode("utf-8", "replace")
