"""The launch command that a person types: which part is for the launcher, for the script, for DeepSpeed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from dsopt.errors import DsoptError
from dsopt.study import script_flags
from dsopt.study.launchers import examples, recognize
from dsopt.study.launchers.launcher import Launcher, Options
from dsopt.study.other_programs import advice_for
from dsopt.study.secrets import quoted
from dsopt.study.typed import split_words

CONFIG_FLAGS: Final = ("--deepspeed_config", "--deepspeed")  # of the script
MOST_RANKS: Final = 9_999_999  # and nodes
_MOST_DEVICES: Final = 4096
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True, kw_only=True)  # no slots: the options are kept
class LaunchCommand:
    """A launch command in its parts. `parse(...)` makes one, `argv()` returns its words.

    Attributes:
        environment: assignments in front of the command.
        launcher: which launcher it is.
        program: the words that name it: `deepspeed`, `python -m torch.distributed.run`, `accelerate launch`.
        launcher_args: its own options.
        script, script_args: the training script (or module) and its arguments.
    """

    environment: tuple[tuple[str, str], ...]
    launcher: Launcher
    program: tuple[str, ...]
    launcher_args: tuple[str, ...]
    script: str
    script_args: tuple[str, ...]

    @classmethod
    def parse(cls, command: str | Sequence[str], where: str) -> "LaunchCommand":
        """Takes apart a command as typed: a list, or a string, which is split as a shell splits it.

        `where` names the place it is in, for messages. Raises DsoptError if it is not a launcher's command.
        """
        words = split_words(command, where) if isinstance(command, str) else [str(word) for word in command]
        environment = _take_environment(words, where)
        found = recognize(words)
        if found is None:
            begins = f"starts with '{words[0]}'. {advice_for(words)}" if words else "is empty. "
            raise DsoptError(
                f"{where}: {begins}Expected the command you type today, beginning with {examples()}, "
                "such as 'deepspeed --num_gpus 2 train.py --deepspeed_config ds_config.json'."
            )
        launcher, length = found
        options = launcher.options(words[length:], where)
        launcher_args = [word for option in options.given for word in option.words]
        rest = words[length + len(launcher_args) :]
        if not rest:
            raise DsoptError(f"{where}: names no training script. Expected '{words[0]} [options] train.py …'.")
        if rest[0].startswith(("–", "—")):
            raise DsoptError(f"{where}: '{rest[0]}' begins with a typographic dash. Type two hyphens, --.")
        return cls(
            environment=tuple(environment),
            launcher=launcher,
            program=tuple(words[:length]),
            launcher_args=tuple(launcher_args),
            script=rest[0],
            script_args=tuple(rest[1:]),
        )

    @property
    def study_name(self) -> str:
        """The default name of a study of this command: the script's."""
        return Path(self.script).stem.replace(" ", "-")

    def argv(self) -> list[str]:
        """The command as an argument list."""
        return [*self.program, *self.launcher_args, self.script, *self.script_args]

    def __str__(self) -> str:
        assignments = [f"{key}={quoted(value)}" for key, value in self.environment]
        return " ".join([*assignments, *map(quoted, self.argv())])

    @property
    def is_module(self) -> bool:
        """Whether the script is a module name, as with `python -m`."""
        return any(self.has_launcher_flag(name) for name in self.launcher.module)

    def has_launcher_flag(self, flag: str) -> bool:
        """Whether the launcher gets an option without a value."""
        return flag in self.options.names

    def option(self, *names: str) -> str | None:
        """The value of a launcher option, by any of its names; the last one given counts."""
        return self.options.value(*names)

    @cached_property
    def options(self) -> Options:
        """The launcher's options."""
        return self.launcher.options(self.launcher_args, str(self))

    def without_options(self, *names: str) -> "LaunchCommand":
        """The same command without these launcher options (and their values)."""
        kept = [word for option in self.options.given if option.name not in names for word in option.words]
        return replace(self, launcher_args=tuple(kept))

    def with_options(self, *words: str) -> "LaunchCommand":
        """The same command with launcher options added."""
        return replace(self, launcher_args=(*self.launcher_args, *words))

    @property
    def uses_hostfile(self) -> bool:
        """Whether the launcher starts ranks on the nodes of a host file."""
        return bool(self.launcher.hostfile) and (self.hostfile is not None or self.nodes > 1)

    @property
    def hostfile(self) -> str | None:
        """The host file that the launcher gets."""
        return self.option(*self.launcher.hostfile)

    def without_idle_hostfile(self) -> "LaunchCommand":
        """The same command without a host file if it uses only one node.

        The ranks start on the node that runs the launcher, but would meet on the first node of the file.
        """
        is_idle = self.option(*self.launcher.nodes) == "1" and not self.has_launcher_flag("--force_multi")
        return self.without_options(*self.launcher.hostfile) if self.hostfile is not None and is_idle else self

    @property
    def chosen_gpus(self) -> tuple[frozenset[int] | None, frozenset[int]]:
        """The GPUs of this node that the command names (None: all), and those that it excludes."""
        launcher = self.launcher
        included, excluded = (
            frozenset[int]().union(*indices_by_node(self.option(*names)).values())
            for names in (launcher.include, launcher.exclude)
        )
        return included or None, excluded

    @property
    def visible_gpus(self) -> tuple[str, ...] | None:
        """The GPUs that ranks may see of each node, by index or by a UUID's beginning, as the command says; None: all.

        `CUDA_VISIBLE_DEVICES=2,3` in front of it says so, or an option such as `--gpu_ids 2,3`.
        """
        launcher = self.launcher
        names = [name for name in launcher.devices if name not in launcher.include + launcher.exclude]
        given = self.option(*names) or dict(self.environment).get("CUDA_VISIBLE_DEVICES", "all")
        return None if given == "all" else tuple(name.strip() for name in given.split(","))

    @property
    def ranks(self) -> int | None:
        """Ranks on each node, if the command says so in numbers."""
        value = self.option(*self.launcher.ranks)
        if value is not None and is_count(value):
            return int(value) // (self.nodes if self.launcher.counts_all_nodes else 1)
        included, _ = self.chosen_gpus
        return len(included) if included and "@" not in (self.option(*self.launcher.include) or "") else None

    @property
    def nodes(self) -> int:
        """Nodes of a run; 1 if the command does not say."""
        value = self.option(*self.launcher.nodes)
        return int(value) if value is not None and is_count(value) else 1

    def with_ranks(self, ranks: int) -> "LaunchCommand":
        """The same command with this many ranks on each node."""
        total = ranks * (self.nodes if self.launcher.counts_all_nodes else 1)
        names = self.launcher.ranks + self.launcher.devices
        return self.without_options(*names).with_options(self.launcher.ranks[0], str(total))

    def with_nodes(self, nodes: int) -> "LaunchCommand":
        """The same command on this many nodes."""
        return self.without_options(*self.launcher.nodes).with_options(self.launcher.nodes[0], str(nodes))

    def with_port(self, port: int) -> "LaunchCommand":
        """The same command whose ranks meet at this port."""
        kept = self.without_options(self.launcher.port, *self.launcher.rendezvous)
        return kept.with_options(self.launcher.port, str(port))

    def with_node(self, number: int, address: str) -> "LaunchCommand":
        """The same command for one node of several, whose ranks meet at this address."""
        names, alone = (self.launcher.node_rank or "", self.launcher.address or ""), self.launcher.each_node
        own = (names[0], str(number), names[1], address, *alone)
        return self.without_options(*names, *alone[:1]).with_options(*own)

    def with_module(self, module: str, *args: str) -> "LaunchCommand":
        """The same launcher starting this module with these arguments in front of the script and its own."""
        asked = () if self.is_module else (self.launcher.module[-1],)
        script = ("-m", self.script) if self.is_module else (self.script,)
        command = self.without_options("--no_python").with_options(*asked)
        return replace(command, script=module, script_args=(*args, *script, *self.script_args))

    @property
    def given_flags(self) -> list[str]:
        """The flags that the script is given, each once."""
        return list(dict.fromkeys(word.partition("=")[0] for word in self.script_args if word.startswith("-")))

    def script_value(self, flag: str) -> str | None:
        """The script's value of a flag, as `--flag value` or `--flag=value`."""
        return script_flags.value_of(self.script_args, flag)

    def script_switch(self, flag: str) -> str | None:
        """A flag of the script as a knob has it: None when absent, empty when alone, else its value."""
        return script_flags.switch_of(self.script_args, flag)

    def with_script_value(self, flag: str, value: str) -> "LaunchCommand":
        """The same command with the script's flag set to `value`, in the form it had; added when it was absent."""
        return replace(self, script_args=script_flags.with_value(self.script_args, flag, value))

    def with_script_switch(self, flag: str, value: str | None, *, takes_value: bool = True) -> "LaunchCommand":
        """The same command with the script's flag absent (None), alone (empty text) or with a value.

        With `takes_value`, a word after the flag that is not a flag itself is its old value.
        """
        return replace(
            self, script_args=script_flags.with_switch(self.script_args, flag, value, takes_value=takes_value)
        )

    @property
    def config(self) -> str | None:
        """DeepSpeed's configuration as the command gives it: a path, or the text in base64."""
        if self.launcher.config is not None and (value := self.option(self.launcher.config)) is not None:
            return value
        return self.script_value(self._config_flag) if self._config_flag else None

    def with_config(self, path: str) -> "LaunchCommand":
        """The same command reading DeepSpeed's configuration from `path`."""
        option, flag, command = self.launcher.config, self._config_flag, self
        if option is not None and (self.option(option) is not None or flag is None):
            command = self.without_options(option).with_options(option, path)
            return command if flag is None else command.with_script_value(flag, path)
        return command.with_script_value(flag or CONFIG_FLAGS[0], path)

    def without_config(self) -> "LaunchCommand | None":
        """The same command without DeepSpeed; None if the launcher's own configuration may ask for it."""
        if self.launcher.may_hide_deepspeed(self.options):
            return None
        config_flag, command = self._config_flag, self
        for flag in CONFIG_FLAGS:
            command = command.with_script_switch(flag, None, takes_value=flag == config_flag)
        return command.without_options(self.launcher.config or "", *self.launcher.asks_for_deepspeed)

    @property
    def _config_flag(self) -> str | None:
        """The script's flag that carries DeepSpeed's configuration, if one is given."""
        for flag in CONFIG_FLAGS:
            value = self.script_value(flag)
            # `--deepspeed` alone is only a switch in scripts that use deepspeed.add_config_arguments
            if value is not None and (flag == "--deepspeed_config" or not value.startswith("-")):
                return flag
        return None


def is_count(text: str) -> bool:
    """Whether a text is a number that ranks, nodes or devices may have."""
    return text.isdecimal() and len(text) <= len(str(MOST_RANKS))


def indices_by_node(filter_: str | None) -> dict[str, frozenset[int]]:
    """The indices in a filter such as `localhost:0,2-3`, by node; none where it names a node alone."""
    found: dict[str, frozenset[int]] = {}
    for host in filter_.split("@") if filter_ else []:
        node, _, listed = host.partition(":")
        indices = set(found.get(node, ()))
        for part in listed.split(","):
            first, _, last = part.partition("-")
            if is_count(first) and is_count(last or first) and int(last or first) < _MOST_DEVICES:
                indices |= set(range(int(first), int(last or first) + 1))
        found[node] = frozenset(indices)
    return found


def _take_environment(words: list[str], where: str) -> list[tuple[str, str]]:
    """Removes the assignments in front of a command from its words, with the `env` that may precede them."""
    environment: list[tuple[str, str]] = []
    while words and (_ASSIGNMENT.match(words[0]) or Path(words[0]).name == "env"):
        word = words.pop(0)
        if _ASSIGNMENT.match(word):
            key, _, value = word.partition("=")
            environment.append((key, value))
        elif words and words[0].startswith("-"):
            raise DsoptError(f"{where}: '{word} {words[0]}': env may have no options. Expected env NAME=value ….")
    return environment
