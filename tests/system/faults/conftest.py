"""Work for real workers, and a PostgreSQL that may be killed."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.core.cache import cache
from django.db import connection

from evalsite.lib.ops.postgres import Embedded
from tests.prepared_database import copy_folder
from tests.system.postgres.conftest import open_folder


@contextmanager
def served_by(embedded: Embedded) -> Iterator[None]:
    """Use the database of that server within the block, in this process and in the workers that it starts.

    The cache is emptied at both ends, because each database has other results under the same keys.
    """
    before = dict(connection.settings_dict)
    known = embedded.connection()
    connection.close()
    cache.clear()
    connection.settings_dict.update(NAME=known["dbname"], HOST=known["host"], PORT=known["port"], USER=known["user"])
    try:
        yield
    finally:
        connection.close()
        cache.clear()
        connection.settings_dict.update(before)


@pytest.fixture
def mortal(transactional_db, prepared):
    """A PostgreSQL of the test's own, in use; killing it hurts nobody else."""
    with open_folder() as folder:
        embedded = Embedded(copy_folder(prepared / "postgres", folder / "postgres"))
        embedded.start()
        with served_by(embedded):
            yield embedded
