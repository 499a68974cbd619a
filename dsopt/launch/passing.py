"""Errors that say nothing of a configuration: the same goes well at another time, or on another machine."""

import errno
from typing import Final

from dsopt.errors import DsoptError

_ERRORS: Final = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE),
    *(errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE),
)


class PassingError(DsoptError):
    """This machine cannot do it now."""


def refusal(message: str, error: Exception) -> DsoptError:
    """An error with this message; a passing one, if what the system has raised is."""
    return (PassingError if getattr(error, "errno", None) in _ERRORS else DsoptError)(message)
