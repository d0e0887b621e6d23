"""The database thread of all workers of the tests: it keeps its connection, because a new backend plans slowly."""

from concurrent.futures import ThreadPoolExecutor

from django.db import connection, connections


class KeptThread(ThreadPoolExecutor):
    """An executor with one thread, which outlasts the drains that shut it down."""

    def shutdown(self, wait=True, *, cancel_futures=False):
        """Keep the thread."""

    def close_connections(self):
        self.submit(connections.close_all).result()


DATABASE_THREAD = KeptThread(1)


def reset_session():
    """End the settings, locks and listening of this thread's connection. Raise DatabaseError if it is broken."""
    with connection.cursor() as cursor:
        cursor.execute("RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); DISCARD TEMP")
