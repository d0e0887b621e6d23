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
    """Let Django copy the template. What it migrates after that is nothing."""
    if os.environ.get("DATABASE_URL"):
        return
    with django_db_blocker.unblock(), connection._nodb_cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(hashtext(%s))", [PREFIX])  # until this cursor's connection is closed
        connection.settings_dict["TEST"]["TEMPLATE"] = make_template(cursor, anew=pytestconfig.getoption("create_db"))


def make_template(cursor, *, anew):
    """Return the name of the template. Make it if it is missing, and remove those of other schemas."""
    wanted = PREFIX + hash_of_schema()
    cursor.execute("SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [PREFIX])
    found = {name for (name,) in cursor.fetchall()}
    for name in found if anew else found - {wanted}:
        cursor.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
    if anew or wanted not in found:
        migrate_database(PREFIX + "unfinished")
        cursor.execute(f'ALTER DATABASE "{PREFIX}unfinished" RENAME TO "{wanted}"')
    return wanted


def hash_of_schema():
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
