"""The training script's own arguments: reads the value of a flag, and sets it."""

import re
from collections.abc import Iterator, Sequence

_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")
_END = "--"
_OFF = ("false", "no", "f", "n", "0")  # as Hugging Face's parser reads it


def same_flag(word: str, flag: str) -> bool:
    """Whether a word is this flag; Hugging Face's parser accepts `--learning-rate` for `--learning_rate`, too."""
    return word == flag or (word.startswith("--") and word[2:].replace("-", "_") == flag[2:].replace("-", "_"))


def value_of(args: Sequence[str], flag: str) -> str | None:
    """The value of a flag, as `--flag value` or `--flag=value`; the last one counts."""
    found = None
    for index, given in _occurrences(args, flag):
        if given is not None:
            found = given
        elif index + 1 < len(args):
            found = args[index + 1]
    return found


def switch_of(args: Sequence[str], flag: str) -> str | None:
    """A flag as a knob has it: None when absent, empty when alone, else its value."""
    found = None
    for index, given in _occurrences(args, flag):
        following = args[index + 1] if index + 1 < len(args) else "-"
        found = given if given is not None else "" if _is_flag(following) else following
    return found


def is_on(switch: str | None) -> bool:
    """Whether a flag, as `switch_of` gives it, says yes."""
    return switch is not None and switch.lower() not in _OFF


def count_of_values(args: Sequence[str], flag: str) -> int:
    """How many words after the last occurrence of a flag may be its values."""
    count = 0
    for index, _ in _occurrences(args, flag):
        rest = [_is_flag(other) for other in args[index + 1 :]]
        count = rest.index(True) if True in rest else len(rest)
    return count


def with_value(args: Sequence[str], flag: str, value: str) -> tuple[str, ...]:
    """The arguments with a flag set to `value`, in the form it had; added when it was absent, before any `--`."""
    changed: list[str] = []
    words = list(args)
    found = False
    while words:
        word = words.pop(0)
        name, has_value, _ = word.partition("=")
        if not same_flag(name, flag):
            changed.append(word)
            continue
        found = True
        changed += [f"{name}={value}"] if has_value else [word, value]
        if not has_value and words and not _is_flag(words[0]):
            words.pop(0)  # the value it had
    return tuple(changed) if found else _with_added(changed, [flag, value])


def with_switch(args: Sequence[str], flag: str, value: str | None, *, takes_value: bool = True) -> tuple[str, ...]:
    """The arguments with a flag absent (None), alone (empty text) or with a value.

    With `takes_value`, a word after the flag that is not a flag itself is its old value.
    """
    changed: list[str] = []
    words = list(args)
    is_behind = _END in words and any(index > words.index(_END) for index, _ in _occurrences(words, flag))
    while words:
        word = words.pop(0)
        name, has_value, _ = word.partition("=")
        if not same_flag(name, flag):
            changed.append(word)
        elif takes_value and not has_value and words and not _is_flag(words[0]):
            words.pop(0)  # the value it had
    added = [] if value is None else [flag, value] if value else [flag]
    return (*changed, *added) if is_behind else _with_added(changed, added)


def _with_added(args: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
    """The arguments with these added as flags: what stands behind `--` is none."""
    end = args.index(_END) if _END in args else len(args)
    return (*args[:end], *words, *args[end:])


def _occurrences(args: Sequence[str], flag: str) -> Iterator[tuple[int, str | None]]:
    """The positions of a flag, and the value that is joined to it with `=`."""
    for index, word in enumerate(args):
        name, has_value, value = word.partition("=")
        if same_flag(name, flag):
            yield index, value if has_value else None


def _is_flag(word: str) -> bool:
    """Whether a word is a flag to argparse: a negative number is a value."""
    return word.startswith("-") and not _NEGATIVE.fullmatch(word)
