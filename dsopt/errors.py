"""The one error type for what a person can cause and mend."""


class DsoptError(Exception):
    """Something the user asked for cannot be done. The message says where, what, what was expected and what to do.

    The command line prints the message alone, without a traceback, and exits with 1.
    """


class Interrupted(Exception):  # noqa: N818 - not an error: the user asked to stop
    """The user asked to stop (Ctrl-C or SIGTERM). The command line exits with 130."""
