"""DeepSpeed's configuration in a command itself, as text in base64."""

import base64
import binascii


def decoded(text: str) -> str | None:
    """The decoded text, if it is (URL-safe) base64 and looks like JSON, which DeepSpeed accepts; else None."""
    try:
        found = base64.urlsafe_b64decode(text.encode("ascii")).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    return found if found.lstrip().startswith(("{", '"', "“")) else None
