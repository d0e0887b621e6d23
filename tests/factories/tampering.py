"""Changes that the database normally rejects, for tests that detect them or restore lost rows."""

from contextlib import contextmanager

from django.db import connection, transaction


@contextmanager
def allow_deletions():
    """Let the block delete rows of any experiment. All triggers run except those that reject deletions."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL evalsite.deleting_experiment = '*'")
        yield
        cursor.execute("SET LOCAL evalsite.deleting_experiment = ''")


@contextmanager
def disable_triggers():
    """Let the block write anything, without the triggers of the database. Needs a superuser of the database."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        yield
        cursor.execute("SET LOCAL session_replication_role = origin")
