"""Reads files that a run may have written or replaced: they may be pipes, devices or folders, endless, or no JSON."""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO, Final

_MOST_BYTES: Final = 1 << 26


def open_given(path: Path) -> BinaryIO:
    """A file, open for reading.

    Raises:
        OSError: it cannot be read, or is a pipe, a device or a folder.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe that nobody writes to would be waited for
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a file", str(path))
    return os.fdopen(descriptor, "rb")


def read_given_json(path: Path) -> Any:  # noqa: ANN401 - any JSON value
    """The JSON value in a file.

    Raises:
        OSError: as `open_given`.
        ValueError: it is no JSON, is larger than 64 MiB, or nested too deeply.
    """
    with open_given(path) as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"{path} is larger than {_MOST_BYTES} bytes")
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply") from None
