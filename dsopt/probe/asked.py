"""A section of a configuration that notes what its reader asks of it."""

import sys
from collections.abc import ItemsView, Iterator, KeysView
from typing import Any

NOTHING = object()


class Asked(dict[str, Any]):
    """A section that notes each key it is asked for.

    Attributes:
        noted: the keys that were asked for, with the default that the reader gives, or NOTHING where it gives none.
        words: where the reader takes the section as a whole, the names that its module declares; None where it asks
            for single keys alone.
    """

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__(content)
        self.noted: dict[str, object] = {}
        self.words: set[str] | None = None

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - as dict's
        """As dict's."""
        if self.noted.get(key, NOTHING) is NOTHING:
            self.noted[key] = default
        return super().get(key, default)

    def pop(self, key: str, *default: Any) -> Any:  # noqa: ANN401 - as dict's
        """As dict's."""
        self.noted.setdefault(key, *default or (NOTHING,))
        return super().pop(key, *default)

    def keys(self) -> KeysView[str]:  # type: ignore[override] # a view that asks this object
        """As dict's; a question of it is one of this section."""
        return KeysView(self)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override] # as above
        """As dict's; the reader takes the section as a whole."""
        self._taken_whole()
        return ItemsView(self)

    def __contains__(self, key: object) -> bool:
        self.noted.setdefault(str(key), NOTHING)
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - as dict's
        self.noted.setdefault(key, NOTHING)
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[str]:
        self._taken_whole()
        return super().__iter__()

    def __copy__(self) -> "Asked":
        self._taken_whole()
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Asked":
        return self.__copy__()

    def _taken_whole(self) -> None:
        frame = sys._getframe(1)
        while frame.f_back is not None and not frame.f_globals.get("__name__", "").startswith("deepspeed"):
            frame = frame.f_back
        self.words = {
            value
            for name, value in frame.f_globals.items()
            if name.isupper() and not name.endswith("_DEFAULT") and isinstance(value, str) and value.isidentifier()
        }
