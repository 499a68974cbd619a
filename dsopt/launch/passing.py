"""Errors that say nothing of a configuration: the same goes well at another time, or on another machine."""

import errno
from typing import Final

from dsopt.errors import DsoptError

FULL: Final = (errno.ENOSPC, errno.EDQUOT)
# or read-only, broken, or a network file system whose server has forgotten the file
UNUSABLE: Final = (*FULL, errno.EROFS, errno.EIO, errno.ESTALE)
_ERRORS: Final = (*UNUSABLE, errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)


class PassingError(DsoptError):
    """This machine cannot do it now."""


def refusal(message: str, error: Exception) -> DsoptError:
    """An error with this message; a passing one, if what the system has raised is."""
    return (PassingError if getattr(error, "errno", None) in _ERRORS else DsoptError)(message)
