"""Fixtures whose rows are made once for all tests of a file."""

import copy
import inspect
from functools import partial

import pytest
from django.db import transaction


def shared_rows(build=None, *, params=None):
    """Return a fixture of what `build` returns. Its rows are made once for a file, and each test gets a copy.

    What a test changes in the database is rolled back. `build` may take fixtures of a whole file or of the session: the
    rows of another such fixture are its name with `_of_file`. The clock of the database stands still for the file, and
    no other connection sees the rows: not for what is timed, and not for transactional tests.
    params: with `@shared_rows(params=names)`, each test runs once for each name, and `build` takes it as `param`. Rows
    of one name are rolled back before those of the next are made, with all shared rows that were made after them.
    """
    if build is None:
        return partial(shared_rows, params=params)
    name, wanted = f"{build.__name__}_of_file", [*inspect.signature(build).parameters]
    if params is not None:
        wanted[wanted.index("param")] = "request"

    def make(rows_of_file, **fixtures):
        if "request" in fixtures:
            fixtures["param"] = fixtures.pop("request").param
        with transaction.atomic():
            yield build(**fixtures)
            transaction.set_rollback(params is not None)

    def give(**fixtures):
        return copy.deepcopy(fixtures[name])

    make_once = pytest.fixture(scope="module", name=name, params=params)
    build.__globals__[name] = make_once(set_signature(make, "rows_of_file", *wanted))
    return pytest.fixture(name=build.__name__)(set_signature(give, "db", name))


def set_signature(function, *names):
    """Let pytest see these names as the function's parameters."""
    kind = inspect.Parameter.KEYWORD_ONLY
    function.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    return function
