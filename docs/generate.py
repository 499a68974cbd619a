"""Writes the reference pages from the code: the command line, the study file, the Python API.

`make docs` calls it. The pages are not in the repository, so they cannot differ from the code.
"""

import inspect
import re
import types
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import click
from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import dsopt
from dsopt.cli.main import dsopt as command_line
from dsopt.study.spec import StudySpec

NOTE: Final = f"This page is made from the code of dsopt {dsopt.__version__}, when the site is built.\n"
OLD_KEYS: Final = {"launcher"}  # only studies of earlier versions have it
BY_HAND: Final = {"command", "cwd", "ds_config", "name"}  # a file may leave out or write differently what a spec has

STUDY_FILE: Final = """# The study file

{note}
A study file is YAML or JSON. `dsopt tune` and `dsopt run` make one from your command. In Python, the keys are the
keywords of `dsopt.create_study`. dsopt refuses a key that it does not know, and names the one that you may have meant.
[What you can search](../search-space.md) has examples.

## What to run
| key | meaning | default |
|---|---|---|
| `name` | the study's name: letters, digits, `.`, `_` and `-` | the file's name |
| `command` | what you type today, with any `NAME=value` in front. In a text, dsopt fills in variables; a list of words it takes as it is. In both, `$NAME` stays a name if it looks like a secret: see [secrets](../guides/secrets.md) | needed |
| `cwd` | the folder you type it in | the study file's folder |
| `ds_config` | DeepSpeed's configuration, or its JSON as text, instead of the file that the command names | the file that the command names |
"""  # noqa: E501 - a row of a table is a line


def write(folder: Path) -> None:
    """Writes all pages into a folder, but leaves alone those that would not change: Sphinx need not read them again."""
    folder.mkdir(exist_ok=True)
    for name, text in {"cli.md": command_page(), "study-file.md": study_page(), "api.md": api_page()}.items():
        page = folder / name
        if not page.exists() or page.read_text("utf-8") != text:
            page.write_text(text, "utf-8")


def command_page() -> str:
    """Every command with its options, as `--help` has them."""
    parts = [f"# The command line\n\n{NOTE}\n"]
    parts += [_command(context) for context in _contexts(click.Context(command_line, info_name="dsopt"))]
    return "\n".join(parts)


def _contexts(context: click.Context) -> Iterator[click.Context]:
    """A command and all below it, in the order of `--help`."""
    yield context
    command = context.command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from _contexts(click.Context(below, info_name=name, parent=context))


def _command(context: click.Context) -> str:
    command = context.command
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f"## {context.command_path}", "", f"    {context.command_path} {usage}", ""]
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b"):
            lines += [f"    {line}" for line in paragraph.splitlines()[1:]]
        else:
            lines.append(_escaped(" ".join(paragraph.split())))
        lines.append("")
    options = [record for each in command.get_params(context) if (record := each.get_help_record(context))]
    rows = [f"| {_code(names)} | {_escaped(meaning)} |" for names, meaning in options if "--help" not in names]
    lines += ["| option | meaning |", "|---|---|", *rows] if rows else []
    return "\n".join(lines) + "\n"


def study_page() -> str:
    """Every key of a study file, with its type, default and meaning."""
    parts = [STUDY_FILE.format(note=NOTE), "## How to run it\n" + _table(StudySpec, OLD_KEYS | BY_HAND)]
    for path, model in _sections(StudySpec, ""):
        about = inspect.cleandoc(model.__doc__ or "").split("\n\nAttributes:")[0].replace("\n", " ")
        parts.append(f"## {path}\n{about}\n\n{_table(model, set())}")
    return "\n".join(parts)


def _sections(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """The sections of a section, by path."""
    for name, field in model.model_fields.items():
        for inner in _models(field.annotation):
            yield f"{prefix}{name}", inner
            yield from _sections(inner, f"{prefix}{name}.")


def _models(annotation: Any) -> list[type[BaseModel]]:  # noqa: ANN401 - any type
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for inner in get_args(annotation) for found in _models(inner)]


def _table(model: type[BaseModel], without: set[str]) -> str:
    meanings = descriptions(model)
    lines = ["| key | meaning | type | default |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        if name not in without:
            kind = f"{_kind(field.annotation)}{_bounds(field)}"
            lines.append(f"| `{name}` | {_cell(meanings[name])} | {_cell(kind)} | {_default(field)} |")
    return "\n".join(lines) + "\n"


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """What a section's docstring says of its keys; a key without a word is an error."""
    _, _, attributes = inspect.cleandoc(model.__doc__ or "").partition("Attributes:\n")
    found: dict[str, str] = {}
    for entry in re.split(r"\n(?=    \S)", attributes.split("\n\n")[0]):
        names, _, meaning = entry.strip().partition(": ")
        found |= {name.strip(): " ".join(meaning.split()) for name in names.split(",")}
    inner = [name for name, field in model.model_fields.items() if _models(field.annotation)]
    found = dict.fromkeys(inner, "a section, described below") | found
    missing = [name for name in model.model_fields if name not in found]
    if missing:
        raise LookupError(f"{model.__name__}: 'Attributes' says nothing of {', '.join(missing)}")
    return found


def _kind(annotation: Any) -> str:  # noqa: ANN401 - any type
    """A type in words."""
    names: dict[Any, str] = {int: "whole number", float: "number", str: "text", bool: "true or false"}
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(inner[0])
    if origin in (Union, types.UnionType):
        return " or ".join(_kind(each) for each in inner if each is not type(None))
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin is list:
        return "list of sections" if _models(annotation) else f"list of {_kind(inner[0])}s"
    if _models(annotation):
        return "section"
    return names.get(annotation, "object")


def _bounds(field: FieldInfo) -> str:
    words = {Ge: "at least {}", Gt: "above {}", Le: "at most {}", Lt: "below {}"}
    limits = [words[type(each)].format(*astuple(each)) for each in field.metadata if type(each) in words]
    return f", {', '.join(limits)}" if limits else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True)
    if value is None or isinstance(value, BaseModel):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def api_page() -> str:
    """Every public name of `dsopt`, from its docstring."""
    lines = ["# Names in Python", "", NOTE, "[The Python API](../api.md) shows how to use them.", ""]
    for name in sorted(dsopt.__all__, key=str.lower):
        value = getattr(dsopt, name)
        if inspect.ismodule(value):
            classes = [each for each in vars(value).values() if isinstance(each, type)]
            lines += [f"## dsopt.{name}", "```{eval-rst}"]
            own = [each for each in classes if each.__module__.startswith("dsopt.")]
            lines += [_directive(each, f"{each.__module__}.{each.__qualname__}") for each in own] + ["```", ""]
        elif callable(value):
            lines += [f"## dsopt.{name}", "```{eval-rst}", _directive(value, f"dsopt.{name}"), "```", ""]
    return "\n".join(lines)


def _directive(value: object, path: str) -> str:
    """What makes autodoc write about a class or a function."""
    if not isinstance(value, type):
        return f".. autofunction:: {path}\n"
    if issubclass(value, Exception):
        return f".. autoexception:: {path}\n"
    return f".. autoclass:: {path}\n   :members:\n"


def _escaped(text: str) -> str:
    """Text without markup of its own, for a Markdown page."""
    return re.sub(r"([\\*_<>|`\[\]])", r"\\\1", text).replace("\n", " ")


def _cell(text: str) -> str:
    """Text with Markdown's code marks, for a cell of a table."""
    return text.replace("|", "\\|").replace("<", "\\<")


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")
