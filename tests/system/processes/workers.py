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
MAX_CLAIMS = 2 * IN_FLIGHT  # Most claims of a worker: waiting for a slot, in flight, or not yet written.


def get_database_url():
    parameters = connection.settings_dict
    query_values = {
        "host": parameters["HOST"],
        "port": parameters["PORT"],
        "user": parameters["USER"],
        "password": parameters["PASSWORD"],
    }
    query = "&".join(f"{name}={value}" for name, value in query_values.items() if value)
    return f"postgresql:///{parameters['NAME']}?{query}"


def get_data_dir():
    """Return the data folder of the test. Its `media` is the test's MEDIA_ROOT."""
    return str(Path(settings.MEDIA_ROOT).parent)


@contextmanager
def drain_process(shell=(), **environment):
    """Run a worker as an operator starts it, in its own process group. `shell` precedes its command."""
    process = subprocess.Popen(
        [*shell, sys.executable, "manage.py", "drain", "--until-idle", "--concurrency", str(IN_FLIGHT)],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": get_database_url(), "EVALSITE_DATA_DIR": get_data_dir(), **environment},
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


def count_busy_workers():
    """Return the number of workers with a claim."""
    return Trial.objects.exclude(worker=None).values("worker").distinct().count()


def wait_until(is_true, seconds=180.0):
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
