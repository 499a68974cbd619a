"""Detects what the installed DeepSpeed reads in its configuration, and prints it.

    python -m dsopt.probe.schema

It is a separate program because it imports torch and DeepSpeed. It gives DeepSpeed's own parser configurations that
note which keys it reads, with an unknown key in each section, and checks what DeepSpeed does with it. So this file
lists no keys of any version. It prints one JSON object, a `dsopt.study.ds_schema.Schema`.
"""

import ast
import enum
import itertools
import json
import logging
import re
from pathlib import Path
from typing import Any

from dsopt.probe.asked import NOTHING, Asked
from dsopt.probe.schema_models import key_of_default, section_of_model
from dsopt.probe.schema_names import optimizer_params, scheduler_params

_UNKNOWN = "dsopt_unknown_key"
_NONSENSE = "dsopt nonsense"
_MICRO_BATCH = {"train_micro_batch_size_per_gpu": 1}  # the parser refuses a configuration without it
# what a section must contain before DeepSpeed reads the rest of it
_FIRST: dict[str, dict[str, Any]] = {"optimizer": {"type": "Adam"}, "scheduler": {"type": "WarmupLR"}}
_LIST = re.compile(r"\[('[^']*'(?:, '[^']*')*)\]")
_ENUM = re.compile(r"is not a valid (\w+)")


def main() -> None:
    """Prints the schema of the installed DeepSpeed."""
    import deepspeed
    from deepspeed.runtime.config_utils import DeepSpeedConfigModel

    logging.disable(logging.CRITICAL)
    parser = _Parser()
    made = DeepSpeedConfigModel.__init__

    def noted(self: Any, *args: Any, **data: Any) -> None:  # noqa: ANN401 - DeepSpeed's model
        if _UNKNOWN in data:
            parser.model = type(self)
        made(self, *args, **data)

    DeepSpeedConfigModel.__init__ = noted
    root = parser.root()
    schema = {
        "version": deepspeed.__version__,
        "root": root,
        "optimizers": optimizer_params(),
        "schedulers": scheduler_params(),
        "exclusive": parser.exclusive(root),
    }
    print(json.dumps(schema))  # noqa: T201 - its parent reads this


class _Parser:
    """Asks DeepSpeed's parser what it does with configurations."""

    def __init__(self) -> None:
        self.model: Any = None  # that a section with the unknown key was made a model of, last

    def root(self) -> dict[str, Any]:
        """The configuration as a whole."""
        asked = Asked({**_MICRO_BATCH, _UNKNOWN: 1})
        self._error(asked)
        keys = {key: self._key((key,), default) for key, default in asked.noted.items()}
        for key in _read_at_start():
            keys.setdefault(key, key_of_default(None))
        return {"unknown": "ignored", "keys": keys}

    def exclusive(self, root: dict[str, Any]) -> list[list[str]]:
        """The pairs of sections that DeepSpeed refuses if both are enabled."""
        switches = [name for name, key in root["keys"].items() if "enabled" in key.get("section", {}).get("keys", {})]
        alone = [name for name in switches if self._error({name: {"enabled": True}}) is None]
        pairs = itertools.combinations(alone, 2)
        return [list(pair) for pair in pairs if self._error({name: {"enabled": True} for name in pair}) is not None]

    def _key(self, path: tuple[str, ...], default: object) -> dict[str, Any]:
        refused = self._refusal(path)
        if refused is not None:
            return {"kind": "any", "refused": refused}
        section = self._section(path)
        if section is not None:
            return {"kind": "section", "can_be_null": self._error(_nested(path, None)) is None, "section": section}
        key = key_of_default(default)
        if key["kind"] in ("str", "any"):
            key |= self._choices(path)
        return key

    def _section(self, path: tuple[str, ...]) -> dict[str, Any] | None:
        """The section at a path; None if DeepSpeed reads no keys there."""
        self.model = None
        first = _FIRST.get(path[-1], {}) if len(path) == 1 else {}
        asked = Asked({**first, _UNKNOWN: 1})
        error = self._error(_nested(path, asked))
        unknown = "refused" if error is not None and _UNKNOWN in str(error) else "ignored"
        model = self.model
        if model is None:
            self._ask_enabled(path, asked, first)
        noted = {key: default for key, default in asked.noted.items() if key != _UNKNOWN}
        if model is not None:
            section = section_of_model(model)
            refusals = {key: self._refusal((*path, key)) for key in noted if key not in section["keys"]}
            section["keys"] |= {key: {"kind": "any", "refused": why} for key, why in refusals.items() if why}
            return section
        if not noted and asked.words is None:
            return None
        keys = {key: self._key((*path, key), default) for key, default in noted.items()}
        if asked.words is None:
            return {"unknown": unknown, "keys": keys}
        return {"unknown": "passed on", "keys": keys | self._defaults(path, keys), "words": sorted(asked.words)}

    def _ask_enabled(self, path: tuple[str, ...], asked: Asked, first: dict[str, Any]) -> None:
        """Adds to `asked` the keys that DeepSpeed reads in the section if it is enabled and has its required keys."""
        for _ in range(2 if "enabled" in asked.noted else 0):
            required: dict[str, Any] = {key: {} for key, default in asked.noted.items() if default is NOTHING}
            for content in ({}, required):
                enabled = Asked({**content, **first, "enabled": True})
                self._error(_nested(path, enabled))
                asked.noted = {**enabled.noted, **asked.noted}
                asked.words = asked.words or enabled.words

    def _defaults(self, path: tuple[str, ...], keys: dict[str, Any]) -> dict[str, Any]:
        """The keys of a section that DeepSpeed takes as a whole and fills with defaults."""
        from deepspeed.runtime.config import DeepSpeedConfig

        filled = getattr(DeepSpeedConfig(dict(_MICRO_BATCH)), path[-1], None)
        found = filled if isinstance(filled, dict) else {}
        return {key: key_of_default(default) for key, default in found.items() if key not in keys}

    def _refusal(self, path: tuple[str, ...]) -> str | None:
        """DeepSpeed's message if it refuses a key whatever its value, as it does with removed keys."""
        values: tuple[object, ...] = (None, True, 7, _NONSENSE, {})
        messages = {str(self._error(_nested(path, value))) for value in values}
        [message, *others] = messages
        without = str(self._error(_nested(path[:-1], {}) if path[1:] else {}))  # what else is wrong with the section
        return None if others or message == without else message

    def _choices(self, path: tuple[str, ...]) -> dict[str, Any]:
        """The values that DeepSpeed names when it gets an invalid one."""
        message = str(self._error(_nested(path, _NONSENSE)))
        listed, of_enum = _LIST.search(message), _ENUM.search(message)
        choices: list[str] = ast.literal_eval(f"[{listed[1]}]") if listed else []
        if of_enum or (path[0] == "data_types" and path[-1].endswith("dtype")):  # these are looked up by the engine
            choices = _words_of(of_enum[1] if of_enum else "DtypeEnum")
        any_case = listed is not None and self._error(_nested(path, choices[0].swapcase())) is None
        return {"choices": choices, "any_case": any_case}

    def _error(self, config: dict[str, Any]) -> Exception | None:
        from deepspeed.runtime.config import DeepSpeedConfig

        content = config if isinstance(config, Asked) else {**_MICRO_BATCH, **config}
        try:
            DeepSpeedConfig(content)
        except Exception as error:
            return error
        return None


def _nested(path: tuple[str, ...], value: object) -> dict[str, Any]:
    *sections, key = path
    nested: dict[str, Any] = {key: value}
    for section in reversed(sections):
        nested = {section: nested}
    return nested


def _words_of(name: str) -> list[str]:
    """The texts that one of the parser's enums accepts."""
    import deepspeed.runtime.config as parser

    found = getattr(parser, name, None)
    if not (isinstance(found, type) and issubclass(found, enum.Enum)):
        return []
    return [value for value in found._value2member_map_ if isinstance(value, str)]


def _read_at_start() -> set[str]:
    """The keys that `deepspeed.initialize` reads by itself: `"…" in config` and `config["…"]` in its source."""
    import deepspeed

    found = set()
    for node in ast.walk(ast.parse(Path(str(deepspeed.__file__)).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In):
            holder, key = node.comparators[0], node.left
        elif isinstance(node, ast.Subscript):
            holder, key = node.value, node.slice
        else:
            continue
        if isinstance(holder, ast.Name) and holder.id == "config" and isinstance(key, ast.Constant):
            found.add(str(key.value))
    return found


if __name__ == "__main__":
    main()
