"""Text that anybody may have written, made fit for databases and terminals. The training process imports it, too."""

import re
from typing import Final

# of ASCII and Latin-1, and those that turn the direction of text
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plain_text(text: str) -> str:
    """The text without what a database refuses or a terminal obeys: control characters, and halves of characters.

    Of those that control, line ends and tabs stay; a return to the beginning of the line becomes a line end.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.sub("\ufffd", lines).encode("utf-8", "replace").decode("utf-8")
