"""Checks DeepSpeed's configuration against what the installed DeepSpeed reads: keys, values, names, exclusions."""

from collections.abc import Mapping
from typing import Any, Final

from dsopt.study.documents import nearest
from dsopt.study.ds_config import get_path
from dsopt.study.ds_schema import Key, Schema, Section
from dsopt.study.ds_values import expected, fits, is_true
from dsopt.study.mistakes import Mistakes

# older versions accept amp, but not together with these
_BESIDE_AMP: Final = (("amp", "fp16"), ("amp", "bf16"), ("amp", "bfloat16"))
_LISTS_TO_TRY: Final = ("zero_optimization",)
_LISTS_OF_GROUPS: Final = ("optimizer", "scheduler")  # a value for each group of parameters
_CLOSE: Final = 0.85
_FATES: Final = {
    "refused": "refuses it: no run would start",
    "ignored": "silently ignores it",
    "passed on": "silently keeps it",
}


def check_config(config: Mapping[str, Any], where: str, schema: Schema) -> list[str]:
    """Checks a whole configuration, in which `zero_optimization` may have lists of values to try.

    Returns:
        Warnings about what DeepSpeed ignores, and about sections that this version no longer has.

    Raises:
        DsoptError: a misspelled or refused key, a value or name that DeepSpeed does not accept, sections that exclude
            each other.
    """
    with Mistakes() as mistakes:
        checker = _Checker(where, schema, mistakes, lists=_LISTS_TO_TRY)
        checker.check(config)
        for one, other in (*schema.exclusive, *_BESIDE_AMP):
            if is_true(get_path(config, f"{one}.enabled")) and is_true(get_path(config, f"{other}.enabled")):
                mistakes.add(
                    f"{where}: {one}.enabled and {other}.enabled are both true, but DeepSpeed accepts only one. "
                    "Set one of them to false."
                )
        return checker.warnings


def check_listed(config: Mapping[str, Any], where: str, schema: Schema) -> list[str]:
    """Checks part of a configuration, in which every key may have a list of values to try; else as `check_config`."""
    with Mistakes() as mistakes:
        checker = _Checker(where, schema, mistakes, lists=tuple(config))
        checker.check(config)
        return checker.warnings


class _Checker:
    def __init__(self, where: str, schema: Schema, mistakes: Mistakes, *, lists: tuple[str, ...]) -> None:
        self.warnings: list[str] = []
        self._mistakes = mistakes
        self._where = where
        self._schema = schema
        self._lists = lists
        self._deepspeed = f"DeepSpeed {schema.version}"

    def check(self, config: Mapping[str, Any]) -> None:
        self._section(config, self._schema.root, ())
        self._named(config, "optimizer", self._schema.optimizers)
        self._named(config, "scheduler", self._schema.schedulers)

    def _section(self, given: Mapping[str, Any], section: Section, path: tuple[str, ...]) -> None:
        for name, value in given.items():
            full = ".".join([*path, str(name)])
            key = section.keys.get(name)
            if key is None:
                self._unknown(str(name), value, section, path)
            elif key.refused is not None:
                self._refused(full, key.refused, is_section=not path)
            elif key.section is not None:
                self._subsection(value, key, (*path, name))
            else:
                self._value(value, key, full)
        for old, new in section.replaced.items():
            if given.get(old) is not None and given.get(new) is not None:
                full = ".".join([*path, old])
                self._wrong(
                    f"{full} is the old name of '{new}'; {self._deepspeed} refuses both together. Keep one of them.",
                    full,
                )

    def _refused(self, full: str, why: str, *, is_section: bool) -> None:
        """Warns of a section that this version no longer has, since documents show it; refuses a single key."""
        message = f"{full}: {self._deepspeed} refuses it, so no run would start: {why}"
        if is_section:
            self.warnings.append(f"{self._where}: {message}")
        else:
            self._wrong(message, full)

    def _subsection(self, value: object, key: Key, path: tuple[str, ...]) -> None:
        assert key.section is not None
        if isinstance(value, Mapping):
            self._section(value, key.section, path)
        elif value == "auto" or (value is None and key.can_be_null) or (path == _LISTS_TO_TRY and value == "all"):
            return
        else:
            self._wrong(f"{'.'.join(path)}: {value!r}. Expected an object.", ".".join(path))

    def _value(self, value: object, key: Key, full: str) -> None:
        section = full.split(".")[0]
        if isinstance(value, list) and key.kind not in ("list", "any"):
            if section not in (*self._lists, *_LISTS_OF_GROUPS):
                self._wrong(
                    f"{full}: {value!r}. Expected one value; values to try go in the study file, under "
                    "search.ds_config.",
                    full,
                )
                return
            # None means "not given"; check_choices refuses whatever is not a single value
            values = [one for one in value if one is not None and not isinstance(one, list | dict)]
        else:
            values = [value]
        for one in values:
            if not fits(one, key):
                meant = nearest(str(one).lower(), key.choices, cutoff=0.6)
                hint = f" Did you mean '{meant}'?" if meant else ""
                self._wrong(f"{full}: {one!r}. Expected {expected(key)}.{hint}", full)

    def _unknown(self, name: str, value: object, section: Section, path: tuple[str, ...]) -> None:
        full = ".".join([*path, name])
        if section.unknown == "passed on" and (name in section.words or not section.keys):
            self._words(value, section, (*path, name))
            return
        fate = f"{self._deepspeed} {_FATES[section.unknown]}"
        meant = _nearest(name, section.keys) or _nearest(name, section.words, _CLOSE)
        if meant is not None:
            right = ".".join([*path, meant])
            self._wrong(f"unknown key '{full}'. Did you mean '{right}'? {fate}; correct or remove it.", right)
            return
        known = self._schema.root.paths(with_sections=True)
        places = [place for place in known if place.split(".")[-1] == name]
        hint = f" DeepSpeed reads '{places[0]}'." if len(places) == 1 else ""
        if section.unknown == "refused":
            self._wrong(f"unknown key '{full}'. {fate}. Remove it.{hint}", full)
        else:
            self.warnings.append(f"{self._where}: unknown key '{full}': {fate}. dsopt passes it on unchanged.{hint}")

    def _words(self, value: object, section: Section, path: tuple[str, ...]) -> None:
        """Refuses misspellings of declared names in a section that DeepSpeed keeps without checking."""
        for name, inner in value.items() if isinstance(value, Mapping) else ():
            meant = None if name in section.words else _nearest(str(name), section.words, _CLOSE)
            if meant is not None:
                full = ".".join([*path, str(name)])
                fate = f"{self._deepspeed} {_FATES['passed on']}"
                self._wrong(f"unknown key '{full}'. Did you mean '{meant}'? {fate}; correct or remove it.", full)
            self._words(inner, section, (*path, str(name)))

    def _named(self, config: Mapping[str, Any], what: str, sections: Mapping[str, Section | None]) -> None:
        """Checks the name of an optimizer or scheduler, and its parameters."""
        given = config.get(what)
        if not isinstance(given, Mapping):
            return
        params = given.get("params")
        if params is not None and not isinstance(params, Mapping):
            self._wrong(f"{what}.params: {params!r}. Expected an object.", f"{what}.params")
            params = None
        named = given.get("type")
        for name in named if isinstance(named, list) and what in self._lists else [named]:
            if name is None or name == "auto":
                continue
            if not isinstance(name, str):
                self._wrong(f"{what}.type: {name!r}. Expected a name, as text.", f"{what}.type")
                continue
            found = name.lower() if name.lower() in sections else name
            if found in sections:
                section = sections[found]
                if section is not None:
                    self._section(params or {}, section, (what, "params"))
                continue
            meant = _nearest(name, sections)
            if meant is not None:
                self._wrong(
                    f"{what}.type: {name!r}. Did you mean '{meant}'? {self._deepspeed} has no {what} '{name}'.",
                    f"{what}.type",
                )
                continue
            self.warnings.append(
                f"{self._where}: {what}.type: {self._deepspeed} has no {what} '{name}', and refuses it unless the "
                f"script creates its own {what}"
            )

    def _wrong(self, message: str, path: str) -> None:
        self._mistakes.add(f"{self._where}: {message}", f"ds_config.{path}")


def _nearest(name: str, known: Mapping[str, object] | tuple[str, ...], cutoff: float = 0.75) -> str | None:
    """The known name that is nearest to a name, ignoring case."""
    spelled = {word.lower(): word for word in known}  # of `adam` and `Adam` the latter
    meant = nearest(name.lower(), spelled, cutoff)
    return spelled[meant] if meant is not None else None
