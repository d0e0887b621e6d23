"""Work for real workers, and a PostgreSQL that may be killed."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from evalsite.lib.ops.postgres import Embedded
from runs_app.models import Run
from tests import factories
from tests.clusters import copied
from tests.system.postgres.conftest import open_folder
from tests.system.processes.workers import IN_FLIGHT


def launched(base_url, items=30, samples=10, **fields):
    """A run of so many trials at the provider of this address, with room for two workers. Every request is its own."""
    endpoint = factories.make_endpoint(
        "rehearsal", base_url=base_url, max_concurrency=2 * IN_FLIGHT, is_free=True, adaptive=False
    )
    experiment = factories.make_experiment(
        "faulty",
        dataset=factories.make_dataset("many", items),
        models=[factories.make_model("sim", endpoint=endpoint)],
        samples=samples,
        **{"max_usd": None, "cache_buster": True, **fields},
    )
    (run,) = factories.make_runs(experiment)
    Run.objects.filter(pk=run.pk).update(max_concurrency=2 * IN_FLIGHT)
    factories.plan_trials(run)
    return run


@contextmanager
def served_by(embedded: Embedded) -> Iterator[None]:
    """Within the block this process, and the workers that it starts, use the database of that server."""
    before = dict(connection.settings_dict)
    known = embedded.connection()
    connection.close()
    connection.settings_dict.update(NAME=known["dbname"], HOST=known["host"], PORT=known["port"], USER=known["user"])
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(before)


@pytest.fixture
def mortal(transactional_db, prepared):
    """A PostgreSQL of the test's own, in use; killing it hurts nobody else."""
    with open_folder() as folder:
        embedded = Embedded(copied(prepared / "postgres", folder / "postgres"))
        embedded.start()
        with served_by(embedded):
            yield embedded
