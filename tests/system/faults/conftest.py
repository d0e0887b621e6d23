"""A PostgreSQL server of the test's own, which the test may kill."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.core.cache import cache
from django.db import connection

from evalsite.lib.ops.postgres import Embedded
from tests.prepared_database import copy_folder
from tests.system.postgres.conftest import open_folder


@contextmanager
def use_database_of(embedded: Embedded) -> Iterator[None]:
    """Use the database of that server within the block, in this process and in the workers that it starts.

    The cache is emptied at both ends, because each database has other results under the same keys.
    """
    before = dict(connection.settings_dict)
    parameters = embedded.connection()
    connection.close()
    cache.clear()
    connection.settings_dict.update(
        NAME=parameters["dbname"], HOST=parameters["host"], PORT=parameters["port"], USER=parameters["user"]
    )
    try:
        yield
    finally:
        connection.close()
        cache.clear()
        connection.settings_dict.update(before)


@pytest.fixture
def killable_server(transactional_db, prepared):
    """A running PostgreSQL server that only this test uses, so that the test can kill it."""
    with open_folder() as folder:
        embedded = Embedded(copy_folder(prepared / "postgres", folder / "postgres"))
        embedded.start()
        with use_database_of(embedded):
            yield embedded
