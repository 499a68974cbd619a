"""Text that anybody may have written, made fit for databases and terminals. The training process imports it, too."""

import math
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


def significant(value: float, digits: int = 4) -> str:
    """A number with this many significant digits, and never as a power of ten.

    Nothing is measured more precisely than to the four digits that are told.
    """
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    text = f"{round(value, decimals):.{max(0, decimals)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
