"""`dsopt study …`: studies created, shown, stopped, resumed, deleted."""

import datetime
from pathlib import Path

import click

from dsopt.cli.creating import create_study
from dsopt.cli.options import (
    json_option,
    open_store,
    print_json,
    run_label,
    scaling_option,
    storage_option,
    take_over_option,
)
from dsopt.cli.result import finished_summary, reopen, result_text, summary_of, table_of, write_results
from dsopt.errors import DsoptError
from dsopt.experiment.results import results_folder
from dsopt.report.files import optimum, write_config
from dsopt.store.studies import NoStudiesError
from dsopt.study.conversion import study_from_autotuning, study_text
from dsopt.study.load import load_spec
from dsopt.worker.knowledge import load_history


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
    help="Write the study file of a DeepSpeed autotuning setup: its configuration, and after -- the launch command.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The study file to write. Default: NAME.yaml.")
@take_over_option
@storage_option
def create(
    words: tuple[str, ...],
    name: str | None,
    from_autotuning: Path | None,
    output: Path | None,
    earlier: str | None,
    storage: str,
) -> None:
    """Create a study from a YAML FILE. Creating the same study again changes nothing.

    A study whose settings have changed takes another name, and keeps what it would run the same:
      dsopt study create FILE --name NEW --take-over OLD

    \b
    From DeepSpeed's autotuner:
      dsopt study create --from-autotuning ds_config.json -- deepspeed train.py --deepspeed ds_config.json
    """
    if from_autotuning is not None:
        if earlier is not None:
            raise click.UsageError("--take-over goes with a study file; --from-autotuning only writes one.")
        _write_study_file(from_autotuning, words, name, output)
        return
    if len(words) > 1 or output is not None:
        raise click.UsageError("Expected one study file. A launch command and --output go with --from-autotuning.")
    spec, warnings = load_spec(Path(words[0]), name)
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    made, is_new = create_study(open_store(storage, make=True), spec, earlier)
    if is_new:
        click.echo(f"Created study '{made.name}'. Work on it with: dsopt worker {made.name}")
    else:
        click.echo(f"Study '{made.name}' exists already, with the same spec; its state is '{made.state}'.")


def _write_study_file(source: Path, command: tuple[str, ...], name: str | None, output: Path | None) -> None:
    content, warnings = study_from_autotuning(source, command, cwd=Path.cwd(), name=name)
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    target = output or Path(f"{content['name']}.yaml")
    if target.resolve().parent == Path.cwd():
        del content["cwd"]  # the study file's folder
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(study_text(content, source))
    except FileExistsError:
        raise DsoptError(f"--output: {target} exists already. Give another name with -o, or remove it.") from None
    except OSError as error:
        raise DsoptError(f"--output: {target}: cannot be written: {error.strerror}.") from None
    click.echo(f"Wrote {target}. Look it over, then: dsopt study create {target}")


@study.command("list")
@storage_option
@json_option
def list_(storage: str, as_json: bool) -> None:
    """List the studies."""
    try:
        studies = open_store(storage).headers()
    except NoStudiesError:
        studies = []
    if as_json:
        print_json([{"name": s.name, "state": s.state, "created_at": s.created_at} for s in studies])
        return
    if not studies:
        click.echo("There is no study yet. Create one with: dsopt study create FILE")
    width = max((len(s.name) for s in studies), default=0)
    for found in studies:
        created = datetime.datetime.fromtimestamp(found.created_at).strftime("%Y-%m-%d %H:%M")
        click.echo(f"{found.name.ljust(width)}  {found.state.ljust(10)}  created {created}")


@study.command()
@click.argument("name")
@storage_option
@json_option
def show(name: str, storage: str, as_json: bool) -> None:
    """Show a study: its result so far, and every run."""
    store = open_store(storage)
    found = store.get(name)
    unit = found.spec.autotuning.unit
    runs = store.runs(found)
    history = load_history(store, found)
    observations = history.observations
    imported = [o for o in observations if o.imported is not None]
    whys = {o.name: o.why for o in observations}
    sources = {(o.name, o.round): o.taken_over for o in history.everything}
    if as_json:
        others = [{"candidate": o.name, "state": o.state, "metric": o.value, "folder": o.imported} for o in imported]
        listed = [
            {
                **run,
                "why": whys.get(run["candidate"]) if run["round"] == 0 else None,
                "taken_over": sources.get((run["candidate"], run["round"])),
            }
            for run in runs
        ]
        shown = table_of(store, found).to_json() if found.spec.compare else summary_of(store, found).to_json()
        print_json({**shown, "runs": listed, "imported_trials": others})
        return
    click.echo(f"Study '{name}': {found.state}\nCommand: {found.spec.command}\n")
    for run in runs:
        result = f"{run['metric']:.6g} {unit}" if run["metric"] is not None else run["reason"] or ""
        label = run_label(run["candidate"], run["round"])
        click.echo(f"  {label:<36} {run['state']:<10} {result}")
        source = sources.get((run["candidate"], run["round"]))
        if source is not None:
            click.echo(f"      taken over from study '{source}'")
        if run["round"] == 0 and whys.get(run["candidate"]):
            click.echo(f"      chosen: {whys[run['candidate']]}")
        if run["message"]:
            click.echo(f"      {run['message']}")
    for trial in imported:
        result = f"{trial.value:.6g} {unit}" if trial.value is not None else trial.reason or ""
        click.echo(f"  {trial.name:<36} {'imported':<10} {result}")
    click.echo(("\n" if runs or imported else "") + result_text(store, found))


@study.command()
@click.argument("name")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the DeepSpeed configuration to this file.")
@scaling_option
@storage_option
@json_option
def best(name: str, output: Path | None, scale_lr: bool, storage: str, as_json: bool) -> None:
    """Give the best configuration of a finished study."""
    store = open_store(storage)
    found = store.get(name)
    summary = finished_summary(store, found)
    result = optimum(found.spec, load_history(store, found), scale_lr=scale_lr)
    if output is not None:
        output = output.absolute()  # the command is run in another folder
        own = found.spec.launch.config
        if own is not None and output == (Path(found.spec.cwd) / own).absolute():
            raise DsoptError(
                f"--output: {output} is your own configuration, which dsopt never changes. Name another file."
            )
        try:
            write_config(output, result)
        except OSError as error:
            raise DsoptError(f"--output: {output}: cannot be written: {error.strerror}.") from None
    config = output or results_folder(found.spec) / "ds_config_optimal.json"
    if output is None:
        write_results(store, found, scale_lr=scale_lr)
    if as_json:
        print_json({**summary.to_json(), "ds_config": result.ds_config, "ds_config_file": str(config),
                    "command": str(result.command.with_config(str(config)))})  # fmt: skip
        return
    if summary.batch_advice is not None:
        click.echo(summary.batch_advice.text(applied=scale_lr))
    click.echo(f"{summary.sentence()}\nConfiguration: {config}\nCommand: {result.command.with_config(str(config))}")


@study.command()
@click.argument("name")
@storage_option
def stop(name: str, storage: str) -> None:
    """Stop a study; workers end their run in hand within seconds."""
    store = open_store(storage)
    found = store.get(name)
    if store.stop(found, "by 'dsopt study stop'"):
        click.echo(f"Stopped study '{name}'. Go on with: dsopt study resume {name}, then dsopt worker {name}")
    else:
        click.echo(f"Study '{name}' is {found.state} already.")


@study.command()
@click.argument("name")
@storage_option
def resume(name: str, storage: str) -> None:
    """Let a study go on that was stopped, or whose confirmation failed."""
    store = open_store(storage)
    found = store.get(name)
    if reopen(store, found):
        click.echo(f"Study '{name}' goes on. Work on it with: dsopt worker {name}")
    elif found.state == "finished":
        click.echo(f"Study '{name}' is finished. See: dsopt study best {name}")
    else:
        click.echo(f"Study '{name}' was not stopped (its state is '{found.state}'). Go on with: dsopt worker {name}")


@study.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@storage_option
def delete(name: str, yes: bool, storage: str) -> None:
    """Delete a study from the database. Its run directories and result files stay."""
    store = open_store(storage)
    found = store.header(name)
    if not yes:
        click.confirm(f"Delete study '{name}' and all its trials?", abort=True)
    store.delete(found)
    click.echo(f"Deleted study '{name}'. Its run directories and result files stay.")
