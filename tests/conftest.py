"""Fixtures and hooks of all tests."""

import gc
import itertools
import os
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from _pytest.main import pytest_cmdline_main as run_session
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.models import Session
from django.core.cache import cache
from django.db import DatabaseError, connection, transaction
from django.test import Client, TestCase, TransactionTestCase, override_settings
from django.utils import timezone
from django.utils.crypto import get_random_string
from hypothesis import HealthCheck
from hypothesis import settings as generated
from whitenoise.middleware import WhiteNoiseMiddleware

from evalsite.lib.ops.call_stack import call_with_room
from tests.factories.database_thread import DATABASE_THREAD, reset_session

pytest_plugins = ["tests.chromium", "tests.forked_readers", "tests.prepared_database", "tests.template_database"]

MADE_BY_MIGRATIONS = {
    "django_migrations",
    "django_content_type",
    "auth_permission",
    "auth_group",
    "auth_group_permissions",
}

# Generated cases are few, and the same in every run: which they are is no matter of chance, nor how long each takes.
generated.register_profile(
    "quick", max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
generated.load_profile("quick")


def pytest_addoption(parser):
    """The pictures of the documents, and the fuzzer's size and seed: `make fuzz ARGS="--fuzz-requests 20000"`."""
    parser.addoption("--pictures", action="store_true", help="make the pictures of docs/ again: `make pictures`")
    parser.addoption("--fuzz-requests", type=int, default=300, help="hostile requests of each part of the fuzzer")
    parser.addoption("--fuzz-seed", type=int, default=20260301, help="what the fuzzer's order of values follows from")


def pytest_configure(config):
    """Without a server named, the tests run on the embedded one, which ends with the last of their processes.

    In a data folder of the tests' own, it need not survive a crash of the machine, and so never waits for the disk.
    """
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    # A test may compute within its transaction for longer than the site allows a session to be idle in one.
    settings.DATABASES["default"]["OPTIONS"]["options"] += " -c idle_in_transaction_session_timeout=0"
    if os.environ.get("DATABASE_URL"):
        return
    from evalsite.lib.ops import postgres

    careless = {"fsync": "off", "full_page_writes": "off"} if os.environ.get("EVALSITE_DATA_DIR") else {}
    stack = ExitStack()
    with patch.dict(postgres.SETTINGS, careless):
        stack.enter_context(postgres.Embedded(settings.DATA_DIR / "postgres").running())
    config.add_cleanup(stack.close)


def pytest_cmdline_main(config):
    """Run the tests of each process with room for their calls, as the site's pages and commands run."""
    return call_with_room(run_session, config) if hasattr(config, "workerinput") else None


def count_shared_rows(item):
    """Return how many fixtures of a whole file this test needs."""
    return sum(name.endswith("_of_file") for name in getattr(item, "fixturenames", ()))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Files with browsers or processes take longest and come first: none of them is left to one worker at the end.

    In a file, tests that make their rows themselves come before those that share some, which stay until its end.
    """
    slow = {item.path for item in items if item.get_closest_marker("browser") or item.get_closest_marker("processes")}
    first: dict[Path, int] = {}
    for at, item in enumerate(items):  # A parameter of the whole session may have torn a file's tests apart.
        first.setdefault(item.path, at)
    items.sort(key=lambda item: (item.path not in slow, first[item.path], count_shared_rows(item)))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect garbage rarely, and only objects created by the tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        gc.enable()


def pytest_unconfigure():
    """Let the end of the process find all objects. duckdb would name those that it does not find on the terminal."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup, django_db_blocker):
    """The tests' database does not wait for the disk, because it need not survive a crash."""
    with django_db_blocker.unblock():
        with connection.cursor() as cursor:
            name = connection.ops.quote_name(connection.settings_dict["NAME"])
            cursor.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
        connection.close()  # The next session begins with it.
    yield
    DATABASE_THREAD.close_connections()  # Else the database cannot be dropped.


NUMBERS = itertools.count(1)


def own_folders(tmp_path_factory):
    """Create separate folders only for tests that write to them."""
    folder = tmp_path_factory.getbasetemp() / "folders" / str(next(NUMBERS))
    return {"MEDIA_ROOT": folder / "media", "RESULT_SPOOL_DIR": folder / "journal"}


@pytest.fixture(autouse=True)
def media_of_its_own(request, tmp_path_factory):
    if count_shared_rows(request.node):
        yield
        return
    with override_settings(**own_folders(tmp_path_factory)):
        yield


@pytest.fixture(autouse=True)
def empty_cache():
    """Clear the cache, because rows of another test may have had the same keys."""
    cache.clear()


@pytest.fixture(scope="module")
def rows_of_file(django_db_setup, django_db_blocker, tmp_path_factory):
    """Roll back what other fixtures of a whole file made, after its last test (see `shared_rows`)."""
    with django_db_blocker.unblock(), override_settings(**own_folders(tmp_path_factory)), transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.fixture
def as_(client, people):
    """`as_("owner")` is a client signed in as that user of the folder's `people`; `as_(None)` is anonymous."""

    def sign_in(role):
        if role:
            client.force_login(people[role])
        else:
            client.logout()
        return client

    return sign_in


@pytest.fixture
def plain_pictures(monkeypatch):
    """Replace the figures of reports by an empty drawing, for tests of other content."""
    from grading_app.publish.report import report_source  # It loads matplotlib.

    monkeypatch.setattr(report_source, "draw_picture", lambda figure, width: ("<svg></svg>", (560, 100)))


@pytest.fixture(autouse=True, scope="session")
def quick_ends_of_tests():
    """Roll back or empty tables without a new connection, and without a flush.

    Django closes the connection after each class, and for pytest each test is one: the next would fill the caches of
    another backend. Its flush truncates all tables and makes all permissions anew: half a second.
    """
    with pytest.MonkeyPatch.context() as django_test:
        django_test.setattr(TransactionTestCase, "_should_reload_connections", begin_session_again)
        django_test.setattr(TestCase, "tearDownClass", classmethod(roll_back))
        django_test.setattr(TransactionTestCase, "_fixture_teardown", empty_tables)
        yield


@pytest.fixture(autouse=True, scope="session")
def static_files_found_once():
    """Each test client has a WhiteNoise of its own, which would look for all static files again."""
    find, found = WhiteNoiseMiddleware.add_files_from_finders, {}

    def find_once(self):
        if not found:
            find(self)
            found.update(self.files)
        self.files.update(found)

    with pytest.MonkeyPatch.context() as whitenoise:
        whitenoise.setattr(WhiteNoiseMiddleware, "add_files_from_finders", find_once)
        yield


@pytest.fixture(autouse=True, scope="session")
def short_sign_ins():
    """`Client.force_login` stores a session by one query.

    Django's stores an empty session, replaces it and changes the account: 14 queries, before most requests of tests.
    """
    with pytest.MonkeyPatch.context() as django_test:
        django_test.setattr(Client, "force_login", store_session)
        yield


def store_session(client, user, backend=None):
    """Sign the client in as Django does, but leave the time of the last sign-in in the account."""
    data = {
        SESSION_KEY: str(user.pk),
        BACKEND_SESSION_KEY: backend or settings.AUTHENTICATION_BACKENDS[0],
        HASH_SESSION_KEY: user.get_session_auth_hash(),
    }
    session = Session.objects.create(
        session_key=get_random_string(32),
        session_data=Session.objects.encode(data),
        expire_date=timezone.now() + timedelta(seconds=settings.SESSION_COOKIE_AGE),
    )
    client.cookies[settings.SESSION_COOKIE_NAME] = session.session_key


def roll_back(cls):
    cls._rollback_atomics(cls.cls_atomics)
    super(TestCase, cls).tearDownClass()


def begin_session_again(self):
    """Return whether to connect again after a transactional test: its settings, locks and listening end here."""
    try:
        reset_session()
    except DatabaseError:
        return True
    return False


def empty_tables(self):
    """Empty the tables that a transactional test filled, and keep what the migrations made.

    The vacuum gives their pages back: the rows of the next test lie, and so come where no order is asked for, as in a
    new table. A TRUNCATE of all tables does the same and takes ten times as long.
    """
    if connection.connection is not None and not connection.is_usable():
        connection.close()  # A test that starts or restarts servers ended it.
    names = sorted(set(connection.introspection.table_names()) - MADE_BY_MIGRATIONS)
    with connection.cursor() as cursor:
        cursor.execute(
            " UNION ALL ".join(f"(SELECT '{name}' FROM {connection.ops.quote_name(name)} LIMIT 1)" for name in names)
        )
        filled = [connection.ops.quote_name(name) for (name,) in cursor.fetchall()]
    if not filled:
        return
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("; ".join(f"DELETE FROM {name}" for name in filled))
    with connection.cursor() as cursor:
        cursor.execute(f"VACUUM (INDEX_CLEANUP ON) {', '.join(filled)}")
