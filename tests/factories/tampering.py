"""Changes that the database normally refuses, for tests that detect them or restore lost rows."""

from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def deleting_anything():
    """Let the block delete rows of any experiment. All triggers but those that refuse deletions run."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL evalsite.deleting_experiment = '*'")
        yield
        cursor.execute("SET LOCAL evalsite.deleting_experiment = ''")


@contextmanager
def without_triggers():
    """Let the block write anything, with no trigger of the database running. Needs a superuser of the database."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        yield
        cursor.execute("SET LOCAL session_replication_role = origin")
