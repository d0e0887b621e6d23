"""A database older than the restarted migrations is rejected with a remedy, and is not changed."""

import subprocess
import sys

import pytest

from evalsite.lib.ops.postgres import Embedded
from tests.prepared_database import build_environment
from tests.system.postgres.conftest import ROOT, query
from tests.system.up.conftest import free_port

pytestmark = pytest.mark.processes

# A short history of an old database. Its `0001_initial` migrations have the same names as the current ones.
OLD_HISTORY = """
DELETE FROM django_migrations WHERE app IN ('lib', 'datasets_app', 'runs_app', 'grading_app');
INSERT INTO django_migrations (app, name, applied) VALUES
    ('datasets_app', '0001_initial', now()), ('datasets_app', '0002_freeze', now()),
    ('runs_app', '0001_initial', now()), ('runs_app', '0002_freeze', now()), ('runs_app', '0038_plain_labels', now()),
    ('grading_app', '0001_initial', now()), ('grading_app', '0019_plain_labels', now()),
    ('lib', '0001_failed_sign_ins', now());
ALTER TABLE runs_app_run DROP n_failed
"""
CONTENT = """
SELECT string_agg(app || name, ',' ORDER BY id) || (SELECT count(*) FROM pg_trigger) || (SELECT count(*) FROM auth_user)
FROM django_migrations
"""


@pytest.fixture
def old_database(place):
    embedded = Embedded(place / "data" / "postgres")
    with embedded.running():
        query(embedded, OLD_HISTORY)
        yield embedded


@pytest.mark.parametrize("command", ["migrate", "up --port {port}", "demo --no-serve", "drain --until-idle", "status"])
def test_a_command_that_needs_the_current_tables_rejects_it_with_a_remedy(place, old_database, command):
    before = query(old_database, CONTENT)
    line = command.format(port=free_port()).split()
    process = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *line],
        env=build_environment(place),
        cwd=place,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 2, process.stderr
    assert "before the migrations were restarted" in process.stderr
    assert "set EVALSITE_DATA_DIR to an empty folder, or DATABASE_URL to an empty database" in process.stderr
    assert "Traceback" not in process.stderr
    assert query(old_database, CONTENT) == before
