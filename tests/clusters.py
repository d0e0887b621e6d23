"""A database with its tables as a folder to copy: making one and migrating it takes seconds, copying it does not."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres.conftest import ROOT, open_folder


def environment(place: Path) -> dict[str, str]:
    """As on a fresh machine: no database named, no debugging."""
    kept = {
        key: value for key, value in os.environ.items() if key != "DATABASE_URL" and not key.startswith("EVALSITE_")
    }
    return kept | {"EVALSITE_DATA_DIR": str(place / "data")}


@pytest.fixture(scope="session")
def prepared() -> Iterator[Path]:
    """A data folder with a migrated database that is not running, to copy from."""
    with open_folder() as folder:
        subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), "migrate", "-v0"], env=environment(folder), check=True, cwd=folder
        )
        yield folder / "data"


def copied(folder: Path, to: Path) -> Path:
    """A copy, whoever owns it."""
    subprocess.run(["/bin/cp", "-a", folder, to], check=True)
    return to
