"""The tests' databases as copies of one that is migrated once: a copy takes a fraction of a second.

The template stays in the embedded server of the tests, for the next run. Its name holds a hash of the files that it was
made from, so that another schema has another template. On a server of somebody else the tests leave none.
"""

import hashlib
import os
from pathlib import Path

import pytest
from django.db import connection

ROOT = Path(__file__).parent.parent
PREFIX = "template_of_tests_"


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix, django_db_blocker, pytestconfig):
    """Let Django copy the template. Its own migration then has nothing to do."""
    if os.environ.get("DATABASE_URL"):
        return
    with django_db_blocker.unblock(), connection._nodb_cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(hashtext(%s))", [PREFIX])  # until this cursor's connection is closed
        connection.settings_dict["TEST"]["TEMPLATE"] = make_template(cursor, anew=pytestconfig.getoption("create_db"))


def make_template(cursor, *, anew):
    """Return the name of the template. Create it if it is missing, and drop the templates of other schemas.

    anew: replace it once per test run. Its comment names the run, because another process of the run may be copying it.
    """
    wanted = PREFIX + hash_schema()
    test_run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    cursor.execute(
        "SELECT datname, shobj_description(oid, 'pg_database') FROM pg_database WHERE starts_with(datname, %s)",
        [PREFIX],
    )
    stored = dict(cursor.fetchall())
    usable = wanted in stored and (not anew or stored[wanted] == test_run)
    for name in stored.keys() - ({wanted} if usable else set()):
        cursor.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    if not usable:
        migrate_database(PREFIX + "unfinished")
        cursor.execute(f'ALTER DATABASE "{PREFIX}unfinished" RENAME TO "{wanted}"')
        cursor.execute(f"COMMENT ON DATABASE \"{wanted}\" IS '{test_run}'")
    return wanted


def hash_schema():
    """Return a hash of the migrations, the models and what they import, and of the versions of other packages."""
    patterns = ("*/migrations/*.py", "*/models/*.py", "*/triggers.sql", "evalsite/lib/**/*.py", "evalsite/lib/*.sql")
    paths = {path for pattern in patterns for path in ROOT.glob(pattern)}
    digest = hashlib.sha256()
    for path in sorted(paths | {ROOT / "requirements-dev.lock"}):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def migrate_database(name):
    """Create this database as Django creates one for tests, and leave the settings as they were."""
    before, test = connection.settings_dict["NAME"], connection.settings_dict["TEST"]
    named = test["NAME"]
    test["NAME"] = name
    try:
        connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    finally:
        connection.close()
        connection.settings_dict["NAME"], test["NAME"] = before, named
