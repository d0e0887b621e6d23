"""A data folder that cannot be used is reported with the remedy that fits the reason."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evalsite.lib.ops.data_folder import explain_unusable

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (
            errno.EROFS,
            "Its disk is read-only: mount it writable, or set EVALSITE_DATA_DIR to a folder on another disk.",
        ),
        (errno.ENOSPC, "Its disk is full: free space, or set EVALSITE_DATA_DIR to a folder on another disk."),
        (errno.EACCES, "Run as the user that made it, or set EVALSITE_DATA_DIR to a folder of your own."),
    ],
)
def test_the_remedy_fits_the_reason(tmp_path, code, remedy):
    folder = tmp_path / "data" / "postgres"
    reason = explain_unusable(folder, OSError(code, os.strerror(code)))
    assert reason == f"The folder {folder} cannot be used: {os.strerror(code)}. {remedy}"


@pytest.mark.parametrize("database", ["", "postgresql://nobody@127.0.0.1:1/none"], ids=["embedded", "of its own"])
@pytest.mark.parametrize("name", ["file", "file/below"])
@pytest.mark.slow
def test_a_file_as_data_folder_is_named_in_one_line(tmp_path, database, name):
    (tmp_path / "file").touch()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("EVALSITE_", "DATABASE_URL"))}
    variables = {"EVALSITE_DATA_DIR": str(tmp_path / name), "DATABASE_URL": database}
    process = subprocess.run(
        [sys.executable, "manage.py", "status"], cwd=ROOT, env=kept | variables, capture_output=True, text=True
    )
    assert process.returncode in (1, 2)
    assert f"{tmp_path}/file is a file. Set EVALSITE_DATA_DIR to a folder." in process.stderr
    assert process.stderr.count("\n") == 1
