"""`dsopt dashboard`: serves the pages of the chosen storage, and optuna-dashboard."""

import re
import signal
from pathlib import Path

import click

from dsopt.api.one_thread import calculate_on_one_thread
from dsopt.api.storage import TOKEN_FILE_VARIABLE, secret_in, shown_storage
from dsopt.cli.options import storage_option

_ROOT_PATH = r"(/[A-Za-z0-9._~-]+)*/?"


@click.command()
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="0 picks a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Any other than a local one needs a token.")
@click.option(
    "--token",
    envvar="DSOPT_DASHBOARD_TOKEN",
    help="What a reader has to show once (default: none on a local host, else a new one; also DSOPT_DASHBOARD_TOKEN).",
)
@click.option(
    "--token-file", type=click.Path(path_type=Path), envvar=TOKEN_FILE_VARIABLE, help="A file with the token."
)
@click.option("--root-path", default="", metavar="PATH", help="Where a reverse proxy shows it, such as /dsopt.")
@storage_option
def dashboard(
    port: int, host: str, token: str | None, token_file: Path | None, root_path: str, storage: str | None
) -> None:
    """Serve an overview of all studies, a page for each, and optuna-dashboard, read-only."""
    calculate_on_one_thread()
    from dsopt.api.databases import dashboard_server
    from dsopt.api.page_address import noted_address

    if token is None and token_file is not None:
        token = secret_in(token_file, f"--token-file {token_file}")
    if re.fullmatch(_ROOT_PATH, root_path) is None:
        raise click.BadParameter(
            f"{root_path!r} is not a path such as /dsopt: '/', then letters, digits and '-', '_', '.' or '~'.",
            param_hint="--root-path",
        )
    with dashboard_server(host, port, token=token, root=root_path, storage=storage) as server:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # how containers are stopped
        # a token that somebody gave is theirs to tell; one in a log is read by more than those
        where = server.url if token is None else server.url.partition("?")[0]
        click.echo(f"Dashboard of {shown_storage(storage)} on {where} (Ctrl-C stops it)")
        if token is not None:
            click.echo("Open it with ?token= and the token behind it, once.")
        elif server.token is not None:
            click.echo("Who has this address can read all studies. The connection is not encrypted.")
        try:
            with noted_address(server.url, storage):
                server.serve_forever()
        except KeyboardInterrupt:
            click.echo("Dashboard stopped.")
