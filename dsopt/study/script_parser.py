"""Whether the script has the flags that it gets, where its own source says which it has."""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dsopt.study.documents import is_file, nearest
from dsopt.study.spec import StudySpec

_OF_DEEPSPEED: Final = ("--deepspeed", "--deepspeed_config", "--deepscale", "--deepscale_config")
_LOCAL_RANK: Final = "--local_rank"
# with these, other flags than those that the source names are allowed, or the words are read in another way
_ELSEWHERE: Final = frozenset(
    "parse_known_args parse_known_intermixed_args parse_intermixed_args add_subparsers HfArgumentParser argv".split()
)
_OF_PARSER: Final = frozenset("parents fromfile_prefix_chars prefix_chars".split())
_GROUPS: Final = frozenset("add_argument_group add_mutually_exclusive_group".split())


@dataclass(slots=True)
class _Flags:
    """The flags that a script's parser has; `required`: of each that must be given, all its names."""

    names: set[str] = field(default_factory=set)
    required: list[tuple[str, ...]] = field(default_factory=list)

    def has(self, flag: str) -> bool:
        """Whether the parser takes this word: it takes beginnings of long flags, and values right after short ones."""
        if flag.startswith("--"):
            return any(name.startswith(flag) for name in self.names)
        return any(name in self.names for name in (flag, flag[:2]))


def wrong_flags(spec: StudySpec) -> list[tuple[str, str]] | None:
    """What the script gets that its `argparse` parser does not take, or lacks. It reads the source, and starts nothing.

    Returns:
        What is wrong and what helps, if that is known; None if the source alone does not tell.
    """
    command = spec.launch
    path = Path(spec.cwd, command.script)
    known = None if command.is_module or path.suffix != ".py" else _flags_of(path)
    if known is None:
        return None
    found = []
    given = [flag for flag in command.given_flags if not re.match(r"-\d|-\.|-$|--$", flag)]
    for flag in dict.fromkeys([*given, *spec.search.args]):
        if not known.has(flag):
            meant = nearest(flag, known.names)
            found.append((f"{command.script} has no flag {flag}", f"It has {meant}." if meant else ""))
    if _gets_local_rank(spec) and not known.has(_LOCAL_RANK):
        told = f"the deepspeed launcher gives each rank {_LOCAL_RANK}, which {command.script} does not have"
        add = f'Add parser.add_argument("{_LOCAL_RANK}", type=int) to it, or --no_local_rank after deepspeed.'
        found.append((told, add))
    lacking = [of for of in known.required if not any(name.startswith(flag) for name in of for flag in given)]
    return found + [(f"{command.script} needs {of[-1]}, which the command does not give", "") for of in lacking]


def _gets_local_rank(spec: StudySpec) -> bool:
    return spec.launch.launcher.name == "deepspeed" and not spec.launch.has_launcher_flag("--no_local_rank")


def _flags_of(path: Path) -> _Flags | None:
    """The flags of the one parser in a file; None if they depend on anything else."""
    try:
        nodes = [*ast.walk(ast.parse(path.read_text("utf-8")))] if is_file(path) else []
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    parsers = [call for call in calls if _called(call) == "ArgumentParser"]
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    if len(parsers) != 1 or names & _ELSEWHERE or _OF_PARSER & {word.arg for word in parsers[0].keywords}:
        return None
    if any(call.args or call.keywords for call in calls if _called(call) == "parse_args"):
        return None
    if _may_get_flags_elsewhere(nodes):
        return None
    return _read(calls)


def _called(node: ast.AST) -> str:
    """The last name of what is called; empty if it has none, or if nothing is called."""
    of = node.func if isinstance(node, ast.Call) else None
    return of.attr if isinstance(of, ast.Attribute) else of.id if isinstance(of, ast.Name) else ""


def _may_get_flags_elsewhere(nodes: Sequence[ast.AST]) -> bool:
    """Whether the parser, or a group of its flags, goes to anything but DeepSpeed's function, whose flags are known."""
    holding = {"ArgumentParser", "add_config_arguments", *_GROUPS}
    assigned = [node for node in nodes if isinstance(node, ast.Assign) and _called(node.value) in holding]
    targets = [target for node in assigned for target in node.targets]
    parsers = {target.id for target in targets if isinstance(target, ast.Name)}
    harmless = {node.value for node in nodes if isinstance(node, ast.Attribute | ast.Return)}
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    harmless |= {one for call in calls if _called(call) == "add_config_arguments" for one in call.args}
    used = {
        node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in parsers
    }
    return len(parsers) < len({ast.dump(target) for target in targets}) or not used <= harmless


def _read(calls: Sequence[ast.Call]) -> _Flags | None:
    """The flags of all `add_argument`; None if one has a name that only running the script would tell."""
    found = _Flags(names={"-h", "--help"})
    for call in calls:
        if _called(call) == "add_config_arguments":
            found.names |= {*_OF_DEEPSPEED}
        if _called(call) != "add_argument":
            continue
        words = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        options = {word.arg: word.value for word in call.keywords}
        if len(words) != len(call.args) or None in options:
            return None
        flags = tuple(word for word in words if word.startswith("-"))
        found.names |= {*flags}
        action = options.get("action")
        if isinstance(action, ast.Attribute) and action.attr == "BooleanOptionalAction":
            found.names |= {f"--no-{flag[2:]}" for flag in flags if flag.startswith("--")}
        needs = options.get("required")
        if flags and isinstance(needs, ast.Constant) and needs.value is True:
            found.required.append(flags)
    return found
