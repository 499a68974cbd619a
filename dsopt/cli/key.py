"""`dsopt key …`: keys that sign studies."""

import time
from dataclasses import asdict

import click

from dsopt.cli.options import complete_study, json_option, print_json, storage_option


@click.group()
def key() -> None:
    """Create and list the keys of this node, and sign studies with them."""


@key.command()
@click.option("--name", help="Name of the key; by default, the time.")
@json_option
def create(name: str | None, as_json: bool) -> None:
    """Create a key: from then on this node signs the studies it creates, and refuses all that are not signed."""
    from dsopt.api.keys import create_key

    made = create_key(name)
    if as_json:
        print_json(asdict(made))
        return
    click.echo(
        f"Created key {made.fingerprint} ('{made.name}'): {made.path}\n"
        "This node now signs the studies that it creates, and refuses studies that none of its keys has signed.\n"
        "Copy the file to the same place on every node that runs workers, and keep it secret."
    )


@key.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the keys that this node trusts; * marks the one that signs."""
    from dsopt.api.keys import list_keys

    found = list_keys()
    if as_json:
        print_json([asdict(each) for each in found])
    for each in [] if as_json else found:
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(each.created_at))
        click.echo(f"{'*' if each.signs else ' '} {each.fingerprint}  {made}  {each.name}")
    if not found and not as_json:
        click.echo("This node has no key, so it accepts every study. Create one with: dsopt key create")


@key.command()
@click.argument("study", shell_complete=complete_study)
@click.option("--unsigned", is_flag=True, help="Also if no key of this node has signed it: shows it, and asks.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@storage_option
@json_option
def sign(study: str, unsigned: bool, yes: bool, storage: str | None, as_json: bool) -> None:
    """Sign a study with the signing key of this node, such as a new one."""
    from dsopt.api.keys import sign_study

    def agree(content: str) -> None:
        click.echo(f"{content}\nWhoever could write to the database can have written this.", err=as_json)
        if not yes:
            click.confirm(f"Let workers run its commands in its folder: sign '{study}'?", abort=True, err=as_json)

    done = sign_study(study, unsigned=unsigned, agree=agree, storage=storage)
    if as_json:
        print_json(asdict(done))
    else:
        click.echo(f"Signed study '{done.study}' with key {done.fingerprint}.")
