"""Fixtures whose rows are made once for all tests of a file."""

import copy
import inspect

import pytest


def shared_rows(build):
    """Return a fixture of what `build` returns. Its rows are made once for a file, and each test gets a copy.

    What a test changes in the database is rolled back. `build` may take fixtures of a whole file or of the session: the
    rows of another such fixture are its name with `_of_file`. The clock of the database stands still for the file, and
    no other connection sees the rows: not for what is timed, and not for transactional tests.
    """
    name, wanted = f"{build.__name__}_of_file", inspect.signature(build).parameters

    def make(rows_of_file, **fixtures):
        return build(**fixtures)

    def give(**fixtures):
        return copy.deepcopy(fixtures[name])

    build.__globals__[name] = pytest.fixture(scope="module", name=name)(set_signature(make, "rows_of_file", *wanted))
    return pytest.fixture(name=build.__name__)(set_signature(give, "db", name))


def set_signature(function, *names):
    """Let pytest see these names as the function's parameters."""
    kind = inspect.Parameter.KEYWORD_ONLY
    function.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    return function
