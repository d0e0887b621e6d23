"""Workers as an operator starts them: real processes on the tests' database."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.db import connection

from runs_app.models import Trial
from tests.factories.engine import IN_FLIGHT

ROOT = Path(__file__).resolve().parents[3]
HELD = 2 * IN_FLIGHT  # By the limits of the tests' endpoints: what waits for a slot, what flies, what is to be written.


def database_url():
    known = connection.settings_dict
    parts = {"host": known["HOST"], "port": known["PORT"], "user": known["USER"], "password": known["PASSWORD"]}
    query = "&".join(f"{name}={value}" for name, value in parts.items() if value)
    return f"postgresql:///{known['NAME']}?{query}"


def data_dir():
    """Where a test's images are: its own MEDIA_ROOT is this folder's `media`."""
    return str(Path(settings.MEDIA_ROOT).parent)


@contextmanager
def drain_process(shell=(), **environment):
    """A worker as an operator starts it, in a process group of its own; `shell` is what stands before its command."""
    process = subprocess.Popen(
        [*shell, sys.executable, "manage.py", "drain", "--until-idle", "--concurrency", str(IN_FLIGHT)],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": database_url(), "EVALSITE_DATA_DIR": data_dir(), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def busy_workers():
    """How many have claimed something."""
    return Trial.objects.exclude(worker=None).values("worker").distinct().count()


def wait_until(is_true, seconds=120.0):
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
