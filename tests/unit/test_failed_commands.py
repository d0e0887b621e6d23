"""A failure that a user can remedy ends a command with a sentence; other failures keep their traceback."""

import errno
import os

import psycopg
import pytest
from django.db import DataError, OperationalError

from evalsite.lib.ops.failed_commands import explain_failure


def raise_from(error, cause):
    """Return the error as if it was raised while the cause was handled."""
    error.__context__ = cause
    return error


def make_disk_error(code, path=None):
    return OSError(code, os.strerror(code), path)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (make_disk_error(errno.ENOSPC), "The disk is full. Free space"),
        (make_disk_error(errno.EDQUOT, "/data/media/a.png"), "The disk of /data/media/a.png is full"),
        (make_disk_error(errno.EROFS, b"/data/x"), "The disk of /data/x is read-only. Mount it writable"),
        (raise_from(ValueError("a file was closed"), make_disk_error(errno.ENOSPC)), "The disk is full"),
        (
            raise_from(OperationalError("wrapped"), psycopg.errors.DiskFull("could not extend file\nHINT: more")),
            "The disk of the database is full (could not extend file). Free space on it",
        ),
        (psycopg.OperationalError("FATAL: could not write init file: No space left on device"), "Free space on it"),
        (raise_from(OperationalError("x"), psycopg.errors.TooManyConnections("full")), "out of resources: full"),
        (psycopg.OperationalError("connection refused"), "The database cannot be reached: connection refused"),
        (psycopg.errors.AdminShutdown("terminating connection"), "cannot be reached: terminating connection"),
    ],
    ids=lambda value: None if isinstance(value, str) else type(value).__name__,
)
def test_a_full_disk_and_a_lost_database_are_explained_with_exit_code_1(error, words):
    failure = explain_failure(error)
    assert words in str(failure)
    assert "\n" not in str(failure)
    assert failure.returncode == 1


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a mistake"),
        make_disk_error(errno.ENOENT, "/missing"),
        BrokenPipeError(errno.EPIPE, "Broken pipe"),
        psycopg.errors.DeadlockDetected("deadlock"),
        raise_from(DataError("bad"), psycopg.errors.NumericValueOutOfRange("large")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_other_errors_are_not_explained(error):
    assert explain_failure(error) is None
