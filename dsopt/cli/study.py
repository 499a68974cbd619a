"""`dsopt study …`: creates, lists, shows, stops, resumes and deletes studies."""

import datetime
from pathlib import Path

import click

import dsopt
from dsopt.api.one_thread import calculate_on_one_thread
from dsopt.api.storage import shown_storage
from dsopt.cli.created import created_json, page_line, show_created
from dsopt.cli.options import (
    complete_study,
    json_option,
    only_data_on_stdout,
    print_json,
    print_warnings,
    storage_option,
    take_over_option,
)
from dsopt.cli.prose import say


@click.group()
def study() -> None:
    """Create, list, show, stop, resume and delete studies."""


@study.command()
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED, metavar="FILE")
@click.option("--name", help="Name of the study, instead of the file's.")
@click.option(
    "--from-autotuning",
    type=click.Path(path_type=Path),
    metavar="DS_CONFIG",
    help="Write the study file for a DeepSpeed autotuning setup: give its configuration and, after --, the command.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The study file to write. Default: NAME.yaml.")
@take_over_option
@storage_option
@json_option
def create(
    words: tuple[str, ...],
    name: str | None,
    from_autotuning: Path | None,
    output: Path | None,
    earlier: str | None,
    storage: str | None,
    as_json: bool,
) -> None:
    """Create a study from a YAML FILE. Creating the same study again changes nothing, unless overwrite: true is in it.

    If the settings have changed, give the study another name, and reuse what would run the same:
      dsopt study create FILE --name NEW --take-over OLD

    \b
    From DeepSpeed's autotuner:
      dsopt study create --from-autotuning ds_config.json -- deepspeed train.py --deepspeed ds_config.json
    """
    if from_autotuning is not None:
        if earlier is not None:
            raise click.UsageError("--take-over needs a study file; --from-autotuning only writes one.")
        _write_study_file(from_autotuning, words, name, output, as_json)
        return
    if len(words) > 1 or output is not None:
        raise click.UsageError("Expected one study file. A launch command and --output need --from-autotuning.")
    made = dsopt.create_study(words[0], name=name, take_over=earlier, storage=storage)
    with only_data_on_stdout(as_json):
        show_created(made, earlier)
    if as_json:
        print_json(created_json(made))
    elif made.is_new:
        say(f"Created study '{made.name}'. Work on it with: dsopt worker {made.name}")
    else:
        say(f"Study '{made.name}' already exists with the same spec; its state is '{made.state}'.")


def _write_study_file(
    source: Path, command: tuple[str, ...], name: str | None, output: Path | None, as_json: bool
) -> None:
    from dsopt.api.study_files import write_study_file

    target, warnings = write_study_file(source, command, name=name, output=output)
    print_warnings(warnings)
    if as_json:
        print_json({"file": str(target), "warnings": warnings})
    else:
        say(f"Wrote {target}. Look it over, then: dsopt study create {target}")


@study.command("list")
@storage_option
@json_option
def list_(storage: str | None, as_json: bool) -> None:
    """List the studies."""
    studies = dsopt.list_studies(storage=storage)
    if as_json:
        keys = ("name", "state", "created_at", "workers")
        print_json([{key: getattr(found, key) for key in keys} for found in studies])
        return
    if not studies:
        say(f"There is no study yet in {shown_storage(storage)}. Create one with: dsopt study create FILE")
    width = max((len(s.name) for s in studies), default=0)
    for found in studies:
        created = datetime.datetime.fromtimestamp(found.created_at).strftime("%Y-%m-%d %H:%M")
        left = f"  nobody works on it: dsopt worker {found.name}" if found.is_left else ""
        click.echo(f"{found.name.ljust(width)}  {found.state.ljust(10)}  created {created}{left}")


@study.command()
@click.argument("name", shell_complete=complete_study)
@click.option("--all", "every", is_flag=True, help="Everything that was tried, not only the best.")
@click.option("--why", is_flag=True, help="Why each was chosen, why it was not measured, and every doubt.")
@click.option("--watch", is_flag=True, help="Show it again every two seconds until the study is over.")
@storage_option
@json_option
def show(name: str, every: bool, why: bool, watch: bool, storage: str | None, as_json: bool) -> None:
    """Show a study on one screen: how far it is, how good its best is, and what goes on now."""
    calculate_on_one_thread()
    from dsopt.cli.shown import show as print_shown
    from dsopt.cli.shown import watch as keep_shown

    if watch and as_json:
        raise click.UsageError("--watch shows a screen, --json prints data. Give one of them.")
    found = dsopt.load_study(name, storage=storage)
    if found.distrust:
        print_warnings([found.distrust])
    if as_json:
        print_json(found.to_json())
    elif found.is_comparison:
        say(found.text())
    elif watch:
        keep_shown(found, every=every, why=why)
    else:
        print_shown(found.standing, every=every, why=why)
        say(page_line(name, storage))


@study.command()
@click.argument("name", shell_complete=complete_study)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the DeepSpeed configuration to this file.")
@click.option("--so-far", is_flag=True, help="Also of a study that goes on: the best of its search, unconfirmed.")
@click.option(
    "--apply-lr-scaling/--no-apply-lr-scaling",
    "scale_lr",
    default=None,
    help="Write the learning rate scaled to the best configuration's global batch, or as you have it. Without either, "
    "the file keeps what it has.",
)
@click.option("--force", is_flag=True, help="Replace the file of --output if it exists.")
@storage_option
@json_option
def best(
    name: str, output: Path | None, so_far: bool, scale_lr: bool | None, force: bool, storage: str | None, as_json: bool
) -> None:
    """Print the best configuration of a finished study."""
    if output == Path("-"):
        raise click.UsageError(
            "--output needs the name of a file. To print the configuration: --json, key 'ds_config'."
        )
    of = dsopt.load_study(name, storage=storage)
    if so_far and (of.is_comparison or of.summary.comparison is None):
        if scale_lr:
            raise click.UsageError("--apply-lr-scaling needs a finished study. Leave out --so-far.")
        _print_best_so_far(of, output, force=force, as_json=as_json)
        return
    found = of.find_best(apply_lr_scaling=scale_lr, output=output, force=force)
    if as_json:
        print_json({**found.summary.to_json(), "ds_config": found.ds_config, "ds_config_file": str(found.config_file),
                    "command": found.command, "advice": [*found.advice],
                    "warnings_and_doubts": found.summary.doubt_lines()})  # fmt: skip
        return
    for line in filter(None, [*found.advice, found.answer.doubts_text]):
        say(line)
    say(f"{found}")
    click.echo(f"Configuration: {found.config_file}\nCommand: {found.command}")


def _print_best_so_far(of: "dsopt.Study", output: Path | None, *, force: bool, as_json: bool) -> None:
    from dsopt.api.so_far import best_so_far

    found = best_so_far(of, output, force=force)
    if as_json:
        print_json(found.to_json())
        return
    say(f"{found}")
    if found.file is not None:
        click.echo(f"Configuration: {found.file}\nCommand: {found.command}")


@study.command()
@click.argument("name", shell_complete=complete_study)
@storage_option
@json_option
def stop(name: str, storage: str | None, as_json: bool) -> None:
    """Stop a study. Workers end their current run within seconds."""
    found = dsopt.load_study(name, storage=storage)
    changed = found.stop("by 'dsopt study stop'")
    if as_json:
        _print_change(found, changed)
    elif changed:
        say(f"Stopped study '{name}'. Continue with: dsopt study resume {name}, then dsopt worker {name}")
    else:
        say(f"Study '{name}' is already {found.state}.")


@study.command()
@click.argument("name", shell_complete=complete_study)
@storage_option
@json_option
def resume(name: str, storage: str | None, as_json: bool) -> None:
    """Resume a study that was stopped, or whose confirmation failed."""
    found = dsopt.load_study(name, storage=storage)
    changed = found.resume()
    if as_json:
        _print_change(found, changed)
    elif changed:
        say(f"Resumed study '{name}'. Work on it with: dsopt worker {name}")
    elif found.state == "finished":
        say(f"Study '{name}' is finished. See: dsopt study best {name}")
    else:
        say(f"Study '{name}' was not stopped (its state is '{found.state}'). Continue with: dsopt worker {name}")


@study.command()
@click.argument("name", shell_complete=complete_study)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@storage_option
@json_option
def delete(name: str, yes: bool, storage: str | None, as_json: bool) -> None:
    """Delete a study from the database. Its run directories and result files stay."""
    from dsopt.api.headers import find_study

    find_study(name, storage=storage)
    if not yes:
        click.confirm(f"Delete study '{name}' and all its trials?", abort=True, err=as_json)
    dsopt.delete_study(name, storage=storage)
    if as_json:
        print_json({"name": name, "state": "deleted", "changed": True})
    else:
        say(f"Deleted study '{name}'. Its run directories and result files stay.")


def _print_change(found: "dsopt.Study", changed: bool) -> None:
    print_json({"name": found.name, "state": found.state, "changed": changed})
