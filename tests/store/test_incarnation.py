"""A database that went back in time is another one, though it may look like a later one of itself."""

from pathlib import Path

import pytest

from dsopt.store.studies import Store
from tests.outages import Server


@pytest.mark.slow
def test_a_server_that_was_started_anew_is_noticed_as_its_files_may_be_earlier_ones(
    tmp_path: Path, postgres: str
) -> None:
    server = Server(tmp_path / "pg", tmp_path)
    try:
        store = Store.open(server.direct_url, make=True)
        before = store.incarnation()
        assert store.incarnation() == before
        store.close()
        server.stop()
        server.start()
        store = Store.open(server.direct_url)
        assert store.incarnation() != before
        store.close()
    finally:
        server.close()
