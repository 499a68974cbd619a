"""dsopt's folder among the caches of this user."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """The folder, which may not be there yet.

    Raises:
        RuntimeError: this user has no home.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dsopt"
