"""What `make test` leaves to `make test-all`: all of this folder but the tests marked `quick`."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents and not item.get_closest_marker("quick"):
            item.add_marker(pytest.mark.slow)
