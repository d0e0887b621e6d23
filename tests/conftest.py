"""What every test may rest on."""

import os
from contextlib import ExitStack

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.test import TransactionTestCase
from hypothesis import HealthCheck
from hypothesis import settings as generated

pytest_plugins = ["tests.chromium", "tests.prepared_database"]

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
    """The fuzzer's size and seed: `make fuzz ARGS="--fuzz-requests 20000 --fuzz-seed 7"`."""
    parser.addoption("--fuzz-requests", type=int, default=300, help="hostile requests of each part of the fuzzer")
    parser.addoption("--fuzz-seed", type=int, default=20260301, help="what the fuzzer's order of values follows from")


def pytest_configure(config):
    """Without a server named, the tests run on the embedded one, which ends with the last of their processes."""
    if os.environ.get("DATABASE_URL"):
        return
    from evalsite.lib.ops.postgres import Embedded

    stack = ExitStack()
    stack.enter_context(Embedded(settings.DATA_DIR / "postgres").held())
    config.add_cleanup(stack.close)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Files with browsers or processes take longest and come first: none of them is left to one worker at the end."""
    slow = {item.path for item in items if item.get_closest_marker("browser") or item.get_closest_marker("processes")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup, django_db_blocker):
    """The tests' own database survives no crash of its server, and no commit waits for the disk."""
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        name = connection.ops.quote_name(connection.settings_dict["NAME"])
        cursor.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
        cursor.execute("SET synchronous_commit = off")


@pytest.fixture(autouse=True)
def media_of_its_own(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "media"
    settings.JOURNAL_DIR = tmp_path / "journal"


@pytest.fixture
def as_(client, people):
    """`as_("owner")` is a client signed in as that one of the folder's `people`; `as_(None)` is nobody."""

    def signed_in(role):
        if role:
            client.force_login(people[role])
        else:
            client.logout()
        return client

    return signed_in


@pytest.fixture(autouse=True, scope="session")
def transactional_tests_end_quickly():
    """Empty the tables that a transactional test may have filled, and keep what the migrations made.

    Django's own flush empties the groups too, and makes all content types and permissions anew: a second a test. To
    delete the rows would take less than TRUNCATE does, but then where the next test's rows lie, and so in which order
    they come where none is asked for, would be a matter of chance.
    """

    def empty(self):
        tables = sorted(set(connection.introspection.table_names()) - MADE_BY_MIGRATIONS)
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL evalsite.deleting_experiment = '*'")
            cursor.execute(f"TRUNCATE {', '.join(connection.ops.quote_name(name) for name in tables)}")

    original = TransactionTestCase._fixture_teardown
    TransactionTestCase._fixture_teardown = empty
    yield
    TransactionTestCase._fixture_teardown = original
