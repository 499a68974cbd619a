"""What dsopt must know about a launcher, the program that people start a training with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dsopt.errors import DsoptError
from dsopt.study.documents import nearest

PROBE_WORDS: Final = ("-u", "-m", "dsopt.probe")  # what launchers put between Python and the script
_ALMOST: Final = 0.9  # of an option that other versions may have, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A launcher's option as it appears in a command.

    Attributes:
        name: its name in full, however it was abbreviated.
        value: None where it takes none.
        words: what it consists of.
    """

    name: str
    value: str | None
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options that a launcher is given, in order."""

    given: tuple[Option, ...]

    @property
    def names(self) -> list[str]:
        """Their names in full."""
        return [option.name for option in self.given]

    def value(self, *names: str) -> str | None:
        """The value of an option, by any of its names; the last one given counts. None: it is not given."""
        return next((option.value for option in reversed(self.given) if option.name in names), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStart:
    """One rank: its argument list and its environment."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStart:
    """A node's part of a command that is started on it, and on others if it takes several.

    Attributes:
        program: the launcher program.
        options: what the launcher is given.
        script_args: the words after `PROBE_WORDS`: script and arguments.
        environment: the launcher's.
        devices: indices of the node's devices, one a rank.
        port: port that the ranks meet at.
        address: where they meet: of the first node.
        node: number of this node among those of the run.
        counts: ranks of each node; empty: of this one alone.
    """

    program: Path
    options: Options
    script_args: tuple[str, ...]
    environment: Mapping[str, str]
    devices: tuple[int, ...]
    port: int
    address: str = "127.0.0.1"
    node: int = 0
    counts: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """One launcher program. A launcher that differs in more than these words is a subclass.

    Attributes:
        name: what people call it.
        programs: the words that a command of it begins with: `("accelerate", "launch")`.
        modules: the same after `python -m`.
        flags: options without a value.
        valued: options with a value.
        is_open: whether its versions differ in further options with a value, which dsopt passes on as they are.
        takes_prefixes: whether it accepts unambiguous abbreviations of an option, as argparse does.
        takes_hyphens: whether `--nproc-per-node` is `--nproc_per_node`.
        module: options that say that the script is a module.
        ranks: options that give the number of ranks, of each node, or of all (`counts_all_nodes`).
        rank_words: words that these options accept instead of a number.
        nodes: options that give the number of nodes.
        node_words: words that these options accept instead of a number.
        port: option that gives the port ranks meet at.
        address: option that gives the address they meet at.
        node_rank: option that gives a node's number, of a launcher that people start on each node.
        each_node: an option with its value that keeps it from starting ranks on other nodes itself.
        rendezvous: options that would contradict dsopt's own port; dsopt removes them with it.
        devices: options that choose among a node's devices.
        include, exclude: those of them that name nodes and devices as `localhost:0,2`. A launcher without them is given
            its devices by `CUDA_VISIBLE_DEVICES`.
        hides_visible: whether it ignores `CUDA_VISIBLE_DEVICES` beside options that choose devices, ranks or nodes.
        hostfile: options that name the nodes; a launcher without them starts ranks on its own node alone.
        config: option that names DeepSpeed's configuration, if the launcher itself has one.
        asks_for_deepspeed: further options that say that DeepSpeed trains.
        observable: options that affect only the arguments and environment of ranks. dsopt starts a command without
            other options without the launcher, once it has seen its ranks (`launch/observed.py`).
    """

    name: str
    programs: tuple[tuple[str, ...], ...]
    modules: tuple[tuple[str, ...], ...] = ()
    flags: frozenset[str]
    valued: frozenset[str]
    is_open: bool = True
    takes_prefixes: bool = False
    takes_hyphens: bool = True
    module: tuple[str, ...]
    ranks: tuple[str, ...]
    counts_all_nodes: bool = False
    rank_words: tuple[str, ...] = ()
    nodes: tuple[str, ...]
    node_words: tuple[str, ...] = ()
    port: str
    address: str | None = None
    node_rank: str | None = None
    each_node: tuple[str, ...] = ()
    rendezvous: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hides_visible: bool = False
    hostfile: tuple[str, ...] = ()
    config: str | None = None
    asks_for_deepspeed: tuple[str, ...] = ()
    observable: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Checks what dsopt cannot do without.

        Raises:
            ValueError: a field is empty, or an option has a hyphen where hyphens are read as underscores.
        """
        missing = [field for field in ("programs", "module", "ranks", "nodes", "port") if not getattr(self, field)]
        if missing:
            raise ValueError(f"launcher '{self.name}' has no {missing[0]}")
        hyphened = sorted(name for name in self.flags | self.valued if self.takes_hyphens and "-" in name[2:])
        if hyphened:
            raise ValueError(
                f"launcher '{self.name}': write {hyphened[0]} with underscores, or say takes_hyphens=False"
            )

    def mistake(self, options: Options) -> str | None:
        """What the launcher would refuse in these options, if dsopt can tell beforehand; None: nothing known."""
        return None

    def given_config(self, options: Options, cwd: Path, where: str) -> str | None:
        """DeepSpeed's configuration, if the launcher's own configuration file names it and the command does not.

        Raises:
            DsoptError: the launcher gets DeepSpeed's settings in a way that leaves no file to tune.
        """
        return None

    def may_hide_deepspeed(self, options: Options) -> bool:
        """Whether something that dsopt cannot remove from the command may ask for DeepSpeed."""
        return False

    def direct_ranks(self, start: NodeStart) -> list[RankStart] | None:
        """The ranks as the launcher would start them on this node; None if the launcher must start them."""
        return None

    def can_be_spread(self, options: Options, program: Path | None = None) -> bool:
        """Whether dsopt can start a command with these options on several nodes itself.

        It starts the launcher on each (`node_rank`), or its ranks (`node_ranks`).

        Args:
            options: the command's.
            program: the launcher, if it is known.
        """
        return self.node_rank is not None and set(options.names) <= {
            *self.observable,
            *self.rendezvous,
            *self.each_node[:1],
        }

    def node_ranks(self, start: NodeStart) -> list[RankStart]:
        """The ranks of one of a run's nodes, of a launcher that is not started on each node."""
        raise NotImplementedError

    def options(self, words: Sequence[str], where: str) -> Options:
        """The options that a command's words begin with: all up to the training script.

        Raises:
            DsoptError: an option that the launcher does not know, or that could mean several.
        """
        found: list[Option] = []
        index = 0
        while index < len(words) and words[index].startswith("-"):
            option = self._option(words[index : index + 2], where)
            found.append(option)
            index += len(option.words)
        return Options(given=tuple(found))

    def _option(self, words: Sequence[str], where: str) -> Option:
        """The option that the first of these words is; the second may be its value."""
        word = words[0]
        is_whole = word.partition("=")[0] in self.flags | self.valued
        if not is_whole and not word.startswith("--") and word[:2] in self.valued and len(word) > 2:  # -Hhosts
            return Option(name=word[:2], value=word[2:], words=(word,))
        typed, has_value, value = word.partition("=")
        name = self._full_name(typed, where)
        if has_value:
            return Option(name=name, value=value, words=(word,))
        if name in self.flags:
            return Option(name=name, value=None, words=(word,))
        return Option(name=name, value=words[1] if len(words) > 1 else "", words=tuple(words))

    def _full_name(self, typed: str, where: str) -> str:
        """An option's name as it is listed here."""
        known = self.flags | self.valued
        name = typed
        if self.takes_hyphens and typed.startswith("--"):
            name = "--" + typed[2:].replace("-", "_")
        if name in known:
            return name
        meant = sorted(full for full in known if len(name) > 2 and full.startswith(name)) if self.takes_prefixes else []
        if len(meant) == 1:
            return meant[0]
        if meant:
            raise DsoptError(f"{where}: '{typed}' could be {' or '.join(meant)}. Write the one you mean in full.")
        near = nearest(name, known, cutoff=_ALMOST if self.is_open else 0.75)
        if near is None and self.is_open and name != "--":
            return name
        hint = f"Did you mean '{near}'? " if near else ""
        raise DsoptError(
            f"{where}: '{typed}' is not an option of the {self.name} launcher. {hint}"
            "Options of the training script go after the script's name."
        )
