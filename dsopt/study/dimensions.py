"""The `search` section: dimensions that DeepSpeed's autotuner does not know."""

import math
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from dsopt.study.ds_config import TRAIN_BATCH, has_twins
from dsopt.study.space import ACCUMULATION, MICRO_BATCH, ZERO, Knob
from dsopt.study.strict import Strict


def _choices(value: object, prefix: str = "") -> object:
    """Dimensions by dotted path: flattens nested sections, and requires each leaf to be a list of single values."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("expected an object of names, each with a list of values to try")
    found: dict[str, list[Knob]] = {}
    for key, choices in value.items():
        path = f"{prefix}{str(key).strip()}"
        if isinstance(choices, dict):
            nested = _choices(choices, f"{path}.")
            assert isinstance(nested, dict)
            found |= nested
            continue
        single = (bool, int, float, str, type(None))
        if not isinstance(choices, list) or not choices or not all(isinstance(c, single) for c in choices):
            raise ValueError(f"{path}: expected a list of single values to try")
        if any(isinstance(choice, float) and not math.isfinite(choice) for choice in choices):
            raise ValueError(f"{path}: expected finite numbers in the list")
        if has_twins(choices):
            raise ValueError(f"{path}: a value appears twice in the list")
        found[path] = choices
    return found


def _flags(value: dict[str, list[Knob]]) -> dict[str, list[Knob]]:
    """Flags of the script with their dashes; a switch is `null` (absent) or "" (given)."""
    result: dict[str, list[Knob]] = {}
    for name, choices in value.items():
        switches: dict[Knob, Knob] = {True: "", False: None}
        flag = name if name.startswith("-") else f"--{name}"
        if flag in result:
            raise ValueError(f"{flag}: appears twice; give its values in one list")
        result[flag] = [
            switches[choice] if isinstance(choice, bool) else choice if choice is None else str(choice)
            for choice in choices
        ]
        if has_twins(result[flag]):
            raise ValueError(f'{flag}: a value appears twice in the list; true is the same as "", and false as null')
    return result


def _paths(value: dict[str, list[Knob]]) -> dict[str, list[Knob]]:
    for path in value:
        if path in (MICRO_BATCH, ACCUMULATION, TRAIN_BATCH, f"{ZERO}stage"):
            raise ValueError(f"{path}: give its values in the DeepSpeed configuration itself, as a list")
    return value


class Search(Strict):
    """Dimensions that DeepSpeed's autotuner does not know.

    Attributes:
        args: values of the training script's flags; `null` is absent, `""` is present without a value.
        ds_config: values of keys in DeepSpeed's configuration, by dotted path; `null` is absent.
    """

    args: Annotated[dict[str, list[Knob]], BeforeValidator(_choices), AfterValidator(_flags)] = Field(
        default_factory=dict
    )
    ds_config: Annotated[dict[str, list[Knob]], BeforeValidator(_choices), AfterValidator(_paths)] = Field(
        default_factory=dict
    )
