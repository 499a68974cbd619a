"""The flags that a script has, read off its `argparse` calls; only where these alone decide."""

import ast
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dsopt.study.command import LaunchCommand
from dsopt.study.documents import is_file
from dsopt.study.script_flags import same_flag
from dsopt.study.spec import StudySpec

OF_DEEPSPEED: Final = ("--deepspeed", "--deepspeed_config", "--deepscale", "--deepscale_config")
_ADDS_THEM: Final = "add_config_arguments"
_GROUPS: Final = frozenset(("add_argument_group", "add_mutually_exclusive_group"))
_CALLED: Final = _GROUPS | {"add_argument", "parse_args", "set_defaults", "print_help", "print_usage", "error"}
# of `ArgumentParser`; others change how words are read, or bring flags
_PLAIN: Final = frozenset(("prog", "usage", "description", "epilog", "formatter_class", "add_help"))
_ACTIONS: Final = frozenset(
    "store store_const store_true store_false append append_const extend count help version".split()
)
_BOTH_WAYS: Final = "BooleanOptionalAction"


@dataclass(slots=True)
class Flags:
    """The flags that a script's parser has.

    Attributes:
        names: of all.
        required: of each that must be given, all its names.
        defaults: what the script has where a flag is absent, by name; of those where the source alone tells.
        aliases: all names of a flag, by each of them.
    """

    names: set[str] = field(default_factory=set)
    required: list[tuple[str, ...]] = field(default_factory=list)
    defaults: dict[str, object] = field(default_factory=dict)
    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def has(self, flag: str) -> bool:
        """Whether the parser takes this word: it takes beginnings of long flags, and values right after short ones."""
        return any(is_meant(flag, name) for name in self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """What a script gets for one of its flags.

    Attributes:
        value: as a switch (`script_switch`), also under another name of the flag; None: the command lacks it.
        perhaps: the same of a word that may mean the flag, or be one of its own: the source does not tell.
        default: what the script has without the flag; None: nothing.
        is_known: whether the source tells the default.
    """

    value: str | None = None
    perhaps: str | None = None
    default: object = None
    is_known: bool = False


def typed_in(spec: StudySpec, flag: str) -> Typed:
    """What the command gives the script for a flag, and what the script has without it. It reads the source."""
    command = spec.launch
    value = command.script_switch(flag)
    if value is not None:
        return Typed(value=value)
    parsed = flags_of_script(spec)
    known = parsed or Flags()
    name = next((name for name in known.aliases if same_flag(name, flag)), flag)
    for word in given_flags(command):
        meant = next((alias for alias in known.aliases.get(name, (flag,)) if is_meant(word, alias)), None)
        if meant is not None and (word == meant or word not in known.names):
            is_joined = not meant.startswith("--") and word != meant
            value = word[len(meant) :] if is_joined else command.script_switch(word)
    if parsed is None:
        return Typed(perhaps=value)
    return Typed(value=value, default=known.defaults.get(name), is_known=name in known.defaults)


def flags_of_script(spec: StudySpec) -> Flags | None:
    """The flags of a study's script; None if its source alone does not tell."""
    command = spec.launch
    path = Path(spec.cwd, command.script)
    return None if command.is_module or path.suffix != ".py" else _flags_of(path)


def is_meant(flag: str, name: str) -> bool:
    """Whether `argparse` may take a word for the flag of this name."""
    return name.startswith(flag) if flag.startswith("--") else name in (flag, flag[:2])


def given_flags(command: LaunchCommand) -> Iterator[str]:
    """The words of a command that `argparse` takes for flags."""
    for word in itertools.takewhile(lambda word: word != "--", command.script_args):
        is_number = word[1:].replace(".", "", 1).replace("e-", "", 1).isdecimal()
        if word.startswith("-") and word != "-" and " " not in word and not is_number:
            yield word.partition("=")[0]


def _flags_of(path: Path) -> Flags | None:
    """The flags of the one parser in a file; None if they depend on anything else."""
    try:
        tree = ast.parse(path.read_text("utf-8")) if is_file(path) else ast.Module([], [])
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    nodes = [*ast.walk(tree)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    parsers = [call for call in calls if _called(call) == "ArgumentParser"]
    if len(parsers) != 1 or parsers[0].args or any(word.arg not in _PLAIN for word in parsers[0].keywords):
        return None
    if not _imports_argparse(nodes) or not _decides_alone(nodes, calls, parsers[0]):
        return None
    return _read(tree, calls)


def _imports_argparse(nodes: Sequence[ast.AST]) -> bool:
    """Whether `ArgumentParser` is the standard library's."""
    plain = [alias for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    found = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    modules = [node.module for node in found for alias in node.names if alias.name == "ArgumentParser"]
    is_named = any(alias.name == "argparse" and alias.asname is None for alias in plain)
    return modules == ["argparse"] or (is_named and not modules)


def _called(call: ast.AST) -> str:
    """The last name of what is called; empty if it has none, or if nothing is called."""
    return _name(call.func) if isinstance(call, ast.Call) else ""


def _decides_alone(nodes: Sequence[ast.AST], calls: Sequence[ast.Call], parser: ast.Call) -> bool:
    """Whether flags come to the parser, and to groups of its flags, by calls that are to be seen alone.

    Both are in plain variables, which stand nowhere but before the dot of such a call, or go to DeepSpeed's function.
    """
    holding = {_ADDS_THEM, "ArgumentParser", *_GROUPS}
    assigned = [node for node in nodes if isinstance(node, ast.Assign) and _called(node.value) in holding]
    targets = [target for node in assigned for target in node.targets]
    names = {target.id for target in targets if isinstance(target, ast.Name)}
    if not any(node.value is parser for node in assigned) or not all(isinstance(one, ast.Name) for one in targets):
        return False
    receivers: set[ast.expr] = {
        call.func.value for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in _CALLED
    }
    receivers |= {call.args[0] for call in calls if _called(call) == _ADDS_THEM and len(call.args) == 1}
    groups = {call for call in calls if _called(call) in _GROUPS}
    loads = (node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
    parsings = [call for call in calls if _called(call).startswith("parse_")]
    is_plain = [(_called(call), call.args, call.keywords) for call in parsings] == [("parse_args", [], [])]
    reads_words = any(isinstance(node, ast.Attribute) and node.attr == "argv" for node in nodes)
    are_kept = groups <= {*receivers, *(node.value for node in assigned)}
    is_seen = {node for node in loads if node.id in names} <= receivers and are_kept
    return is_seen and is_plain and not reads_words


def _read(tree: ast.Module, calls: Sequence[ast.Call]) -> Flags | None:
    """The flags of all `add_argument`; None if one has what only running the script would tell."""
    found = Flags(names={"-h", "--help"})
    always = _unconditional(tree)
    defaults: dict[str, list[ast.expr]] = {}
    for call in calls:
        if _called(call) == _ADDS_THEM:
            found.names |= {*OF_DEEPSPEED}
        if _called(call) != "add_argument":
            continue
        flags = _flags_in(call)
        if flags is None:
            return None
        options = {word.arg: word.value for word in call.keywords}
        if _name(options.get("action")) == _BOTH_WAYS:
            found.names |= {f"--no-{flag[2:]}" for flag in flags if flag.startswith("--")}
        found.names |= {*flags}
        found.aliases |= dict.fromkeys(flags, flags)
        for flag in flags:
            defaults.setdefault(flag, []).append(options.get("default", ast.Constant(None)))
        if flags and call in always and _constant(options.get("required")) is True:
            found.required.append(flags)
    if all(_called(call) != "set_defaults" for call in calls):
        only = {flag: of_it[0] for flag, of_it in defaults.items() if len(of_it) == 1}
        found.defaults |= {flag: one.value for flag, one in only.items() if isinstance(one, ast.Constant)}
    return found


def _flags_in(call: ast.Call) -> tuple[str, ...] | None:
    """The flags that an `add_argument` adds; None if it says them, or how words are read, in another way."""
    words = [word for one in call.args if isinstance(word := _constant(one), str)]
    options = {word.arg: word.value for word in call.keywords}
    flags = tuple(word for word in words if word.startswith("-"))
    action = options.get("action")
    is_usual = action is None or _constant(action) in _ACTIONS or _name(action) == _BOTH_WAYS
    takes_rest = "nargs" in options and _constant(options["nargs"]) in (None, "...")
    has_long = any(len(flag) > len("-x") and not flag.startswith("--") for flag in flags)  # begin as others may
    is_all = len(words) == len(call.args) and None not in options
    return flags if is_all and is_usual and not takes_rest and not has_long else None


def _unconditional(tree: ast.Module) -> set[ast.AST]:
    """The calls that are statements of the module, or of a function of it, outside of any condition."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    statements = [*tree.body, *itertools.chain.from_iterable(function.body for function in functions)]
    return {statement.value for statement in statements if isinstance(statement, ast.Expr)}


def _name(node: ast.AST | None) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _constant(node: ast.AST | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None
