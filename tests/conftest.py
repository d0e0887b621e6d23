"""What every test may rest on."""

import pytest
from django.db import connection
from django.test import TransactionTestCase

MADE_BY_MIGRATIONS = {
    "django_migrations",
    "django_content_type",
    "auth_permission",
    "auth_group",
    "auth_group_permissions",
}


@pytest.fixture(autouse=True, scope="session")
def transactional_tests_end_quickly():
    """Empty the tables that a transactional test may have filled, and keep what the migrations made.

    Django's own flush empties the groups too, and makes all content types and permissions anew: a second a test.
    """

    def empty(self):
        tables = sorted(set(connection.introspection.table_names()) - MADE_BY_MIGRATIONS)
        with connection.cursor() as cursor:
            cursor.execute(f"TRUNCATE {', '.join(connection.ops.quote_name(name) for name in tables)}")

    original = TransactionTestCase._fixture_teardown
    TransactionTestCase._fixture_teardown = empty
    yield
    TransactionTestCase._fixture_teardown = original
