"""Offers to go on with a mapped flag, where a script has a batch of its own; `--map` says it by hand."""

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from dsopt.cli.patiently import patiently
from dsopt.cli.prose import say
from dsopt.errors import DsoptError

if TYPE_CHECKING:
    from dsopt import Study
    from dsopt.api.mapping import MappedStudy

map_option = click.option(
    "--map",
    "maps",
    multiple=True,
    metavar="KEY=FLAG",
    help="A flag of the script that repeats a key of DeepSpeed's configuration, such as "
    "train_micro_batch_size_per_gpu=--batch-size: dsopt sets both. It knows those of the Hugging Face Trainer.",
)


def with_mappings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a command as settings of a study, `maps` among its autotuning.

    Raises:
        DsoptError: one is not of the form KEY=FLAG, or a key is mapped to two flags.
    """
    from dsopt.api.mapping import mapping_of

    others = {key: value for key, value in settings.items() if key != "maps"}
    mappings: dict[str, str] = {}
    for key, flag in map(mapping_of, settings.get("maps", ())):
        if mappings.setdefault(key, flag) != flag:
            raise DsoptError(f"--map: {key} is mapped to {mappings[key]} and to {flag}. Give one flag for each key.")
    return {**others, "autotuning": {"arg_mappings": mappings}} if mappings else others


def offered(study: "Study", *, why: DsoptError | None, may_ask: bool) -> "MappedStudy | None":
    """What to go on with, if the script's sizes were refused and the person at the terminal wants it.

    Without a terminal, and after a no, it prints what to add to the command, and returns None.

    Args:
        study: that was worked on.
        why: the error that it ended with, if it could not continue.
        may_ask: whether this command may ask.
    """
    from dsopt.api.mapping import mapped_study

    found = patiently(lambda: mapped_study(study) if study.state in ("finished", "stopped") else None)
    if found is None:
        return None
    may_ask = may_ask and sys.stdin.isatty() and sys.stdout.isatty()
    if why is not None and may_ask:
        say(f"\n{why}")
    which = " and ".join(f"{flag} follows {key}" for key, flag in found.mappings.items())
    say(
        f"\nOther sizes were not tried, because the script has its own. If {which}, they can be: in study "
        f"'{found.name}', which takes over what '{found.earlier}' has measured. That one stays as it is."
    )
    if may_ask and _wants(found):
        return found
    say(f"To do so later, give this command once more with: {found.options}")
    return None


def _wants(found: "MappedStudy") -> bool:
    maps = " ".join(f"--map {key}={flag}" for key, flag in found.mappings.items())
    try:
        return click.confirm(f"Go on with {maps}?", default=True)
    except click.Abort:  # Ctrl-C, or the end of the input: the study before is finished
        click.echo()
        return False
