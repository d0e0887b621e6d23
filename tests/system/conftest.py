"""Marks tests of this folder as slow, so that only `make test-all` runs them, except tests marked `quick`.

Their uploads are read by new processes, as on a site.
"""

import re
from pathlib import Path

import pytest

QUICK = re.compile(r"\bmark\.quick\b")


def pytest_ignore_collect(collection_path, config):
    """Import no file without a quick test if slow tests are left out."""
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return (
        True
        if config.option.markexpr == "not slow" and is_test and not QUICK.search(collection_path.read_text())
        else None
    )


def pytest_collection_modifyitems(items):
    paths = {path for path in {item.path for item in items} if Path(__file__).parent in path.parents}
    for item in items:
        if item.path in paths and not item.get_closest_marker("quick"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def new_readers(new_readers):
    return new_readers
