"""A database with its tables as a folder to copy: making one and migrating it takes seconds, copying it does not."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.postgres.conftest import ROOT, open_folder


def build_environment(place: Path) -> dict[str, str]:
    """The environment of a fresh machine: without a database or debugging."""
    kept = {
        key: value for key, value in os.environ.items() if key != "DATABASE_URL" and not key.startswith("EVALSITE_")
    }
    return kept | {"EVALSITE_DATA_DIR": str(place / "data")}


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a migrated database that is not running, to copy from: one for all of pytest-xdist's."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with (shared / "prepared.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "prepared").exists():
            _prepare(shared / "prepared")
    return shared / "prepared"


def _prepare(data: Path) -> None:
    """Made where the server's user may go, which pytest's folders do not allow; there once it is whole."""
    with open_folder() as folder:
        subprocess.run(
            [sys.executable, str(ROOT / "manage.py"), "migrate", "-v0"],
            env=build_environment(folder),
            check=True,
            cwd=folder,
        )
        copy_folder(folder / "data", data.with_name("unfinished")).rename(data)


def copy_folder(folder: Path, to: Path) -> Path:
    """Copy the folder, regardless of its owner."""
    subprocess.run(["/bin/cp", "-a", folder, to], check=True)
    return to
