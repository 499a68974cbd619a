"""The one error type for what a person can cause and fix."""


class DsoptError(Exception):
    """dsopt cannot do what the user asked for. The message says where, what, what was expected and what to do.

    The command line prints only the message, without a traceback, and exits with 1.
    """


class Interrupted(Exception):  # noqa: N818 - not an error: the user asked to stop
    """The user asked to stop (Ctrl-C or SIGTERM). The command line exits with 130."""
