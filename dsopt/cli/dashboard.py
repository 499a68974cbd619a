"""`dsopt dashboard`: optuna-dashboard on the storage in use."""

import click

from dsopt.cli.options import open_store, storage_option
from dsopt.errors import DsoptError


@click.command()
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="0 takes a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Anyone who reaches it can read all studies.")
@storage_option
def dashboard(port: int, host: str, storage: str) -> None:
    """Serve optuna-dashboard on the storage, read-only."""
    from dsopt.report.dashboard import make_dashboard_server

    store = open_store(storage)
    try:
        server = make_dashboard_server(store.optuna_storage, host, port)
    except OSError as error:
        raise DsoptError(
            f"--host {host} --port {port}: cannot listen there: {error.strerror}. Choose others."
        ) from None
    click.echo(f"Dashboard of {store.shown_url} on http://{host}:{server.server_port}/ (Ctrl-C ends it)")
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        click.echo("Dashboard ended.")
    finally:
        server.server_close()
