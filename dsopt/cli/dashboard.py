"""`dsopt dashboard`: serves optuna-dashboard on the chosen storage."""

import click

from dsopt.api.storage import shown_storage
from dsopt.cli.options import storage_option


@click.command()
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="0 picks a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Anyone who can reach it can read all studies.")
@storage_option
def dashboard(port: int, host: str, storage: str | None) -> None:
    """Serve optuna-dashboard on the storage, read-only."""
    from dsopt.api.databases import dashboard_server

    with dashboard_server(host, port, storage=storage) as server:
        where = f"http://{host}:{server.server_port}/"
        click.echo(f"Dashboard of {shown_storage(storage)} on {where} (Ctrl-C stops it)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo("Dashboard stopped.")
