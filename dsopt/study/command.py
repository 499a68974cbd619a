"""The launch command a person types: what of it belongs to the launcher, to the script, to DeepSpeed."""

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dsopt.errors import DsoptError

# Options of the `deepspeed` launcher (deepspeed/launcher/runner.py, 0.19). Those not listed as flags take a value.
_FLAGS = frozenset(
    """
    --module --no_python --no_local_rank --no_ssh --no_ssh_check --force_multi --save_pid --elastic_training
    --bind_cores_to_rank -q --quiet
    """.split()
)
_VALUED = frozenset(
    """
    -H --hostfile -i --include -e --exclude --num_nodes --num_gpus --num_accelerators --min_elastic_nodes
    --max_elastic_nodes --master_port --master_addr --node_rank --launcher --launcher_args --enable_each_rank_log
    --autotuning --bind_core_list --ssh_port --venv_script --log_level
    """.split()
)
_CONFIG_FLAGS = ("--deepspeed_config", "--deepspeed")
_SHELL = frozenset(["&&", "||", "|", ";", "&", "<", "<<"])
_VARIABLE = re.compile(r"\$\{?[A-Za-z_][A-Za-z0-9_]*\}?")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchCommand:
    """A `deepspeed` command line in its parts. `parse(...)` makes one, `argv()` gives it back."""

    environment: tuple[tuple[str, str], ...]
    launcher: str
    launcher_args: tuple[str, ...]
    script: str
    script_args: tuple[str, ...]

    @classmethod
    def parse(cls, command: str | Sequence[str], where: str) -> "LaunchCommand":
        """Takes a command as typed (a string, split as a shell splits it, or a list) apart.

        `where` names the place it stands in, for messages. Raises DsoptError when it is not a `deepspeed` command.
        """
        try:
            words = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
        except ValueError as error:
            raise DsoptError(f"{where}: cannot be split into words: {error}. Check the quotes.") from None
        environment: list[tuple[str, str]] = []
        while words and _ASSIGNMENT.match(words[0]):
            key, _, value = words.pop(0).partition("=")
            environment.append((key, value))
        if not words or Path(words[0]).name not in ("deepspeed", "ds"):
            found = f"starts with '{words[0]}'" if words else "is empty"
            raise DsoptError(
                f"{where}: {found}. Expected the command you type today, beginning with 'deepspeed', "
                "such as 'deepspeed --num_gpus 2 train.py --deepspeed_config ds_config.json'."
            )
        launcher_args, rest = _split_launcher_args(words[1:], where)
        if not rest:
            raise DsoptError(f"{where}: names no training script. Expected 'deepspeed [options] train.py …'.")
        return cls(
            environment=tuple(environment),
            launcher=words[0],
            launcher_args=tuple(launcher_args),
            script=rest[0],
            script_args=tuple(rest[1:]),
        )

    def argv(self) -> list[str]:
        """The command as an argument list."""
        return [self.launcher, *self.launcher_args, self.script, *self.script_args]

    def __str__(self) -> str:
        assignments = [f"{key}={shlex.quote(value)}" for key, value in self.environment]
        return " ".join([*assignments, shlex.join(self.argv())])

    @property
    def is_module(self) -> bool:
        """Whether the script is a module name, as with `python -m`."""
        return "--module" in self.launcher_args

    def option(self, *names: str) -> str | None:
        """The value of a launcher option, by any of its names; the last one given counts."""
        return _value_of(self.launcher_args, names)

    def without_options(self, *names: str) -> "LaunchCommand":
        """The same command without these launcher options (and their values)."""
        kept: list[str] = []
        words = list(self.launcher_args)
        while words:
            word = words.pop(0)
            name, has_value, _ = word.partition("=")
            value = [words.pop(0)] if not has_value and name in _VALUED and words else []
            if name not in names:
                kept += [word, *value]
        return replace(self, launcher_args=tuple(kept))

    def with_options(self, *words: str) -> "LaunchCommand":
        """The same command with launcher options added."""
        return replace(self, launcher_args=(*self.launcher_args, *words))

    def script_value(self, flag: str) -> str | None:
        """The value the script is given for a flag, as `--flag value` or `--flag=value`."""
        return _value_of(self.script_args, (flag,))

    def with_script_value(self, flag: str, value: str) -> "LaunchCommand":
        """The same command with the script's flag set to `value`, in the form it had; added when it was absent."""
        args = list(self.script_args)
        found = False
        for index, word in enumerate(args):
            if word.startswith(f"{flag}="):
                args[index] = f"{flag}={value}"
                found = True
            elif word == flag and index + 1 < len(args):
                args[index + 1] = value
                found = True
        return replace(self, script_args=tuple(args if found else [*args, flag, value]))

    @property
    def config_flag(self) -> str | None:
        """The script's flag that carries DeepSpeed's configuration file, if one is given."""
        for flag in _CONFIG_FLAGS:
            value = self.script_value(flag)
            # `--deepspeed` alone is only a switch in scripts that use deepspeed.add_config_arguments
            if value is not None and (flag == "--deepspeed_config" or not value.startswith("-")):
                return flag
        return None

    @property
    def config_path(self) -> str | None:
        """The path of DeepSpeed's configuration file as the command gives it."""
        return self.script_value(self.config_flag) if self.config_flag else None

    def with_config(self, path: str) -> "LaunchCommand":
        """The same command reading DeepSpeed's configuration from `path`."""
        return self.with_script_value(self.config_flag or "--deepspeed_config", path)


def typed_words(command: str, where: str) -> list[str]:
    """The words of a command as a person types it, with the values of variables in them.

    Only for what was typed: a command that a shell has split already, or that was kept, is taken as it is.
    """
    try:
        return [_expanded(word, where) for word in shlex.split(command)]
    except ValueError as error:
        raise DsoptError(f"{where}: cannot be split into words: {error}. Check the quotes.") from None


def _expanded(word: str, where: str) -> str:
    """A word of a typed command with its variables' values. No shell runs the command, so other syntax is refused."""
    if word in _SHELL or word.startswith((">", "2>")) or "$(" in word or "`" in word:
        raise DsoptError(
            f"{where}: '{word}' is syntax of the shell, and no shell runs the command. "
            "Expected one 'deepspeed' command and no more."
        )
    expanded = os.path.expandvars(word)
    unset = _VARIABLE.search(expanded)
    if unset:
        raise DsoptError(f"{where}: the variable '{unset.group()}' in '{word}' is not set. Set it, or write its value.")
    return expanded


def _split_launcher_args(words: list[str], where: str) -> tuple[list[str], list[str]]:
    """Splits at the training script: the first word that is neither a launcher option nor the value of one."""
    index = 0
    while index < len(words) and words[index].startswith("-"):
        name, has_value, _ = words[index].partition("=")
        if name in _FLAGS or (name in _VALUED and has_value):
            index += 1
        elif name in _VALUED:
            index += 2
        else:
            raise DsoptError(
                f"{where}: '{words[index]}' is not an option of the deepspeed launcher. "
                "Options of the training script come after the script's name."
            )
    return words[:index], words[index:]


def _value_of(words: Sequence[str], names: Sequence[str]) -> str | None:
    found = None
    for index, word in enumerate(words):
        name, has_value, value = word.partition("=")
        if name in names:
            if has_value:
                found = value
            elif index + 1 < len(words):
                found = words[index + 1]
    return found
