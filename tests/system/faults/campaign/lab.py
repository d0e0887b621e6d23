"""A database, a provider and workers that only the campaign uses."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[4]
IN_FLIGHT = 32
LEASE_S = 10.0
MAX_ATTEMPTS = 8  # With one fault in five calls, one trial in 400,000 fails eight times in a row.
PATIENCE_S = 180.0


@dataclass
class Lab:
    """The processes into which faults are injected."""

    server: Any
    provider: Any
    workers: list[subprocess.Popen] = field(default_factory=list)

    def make_run(self, name, trials, **fields):
        """Plan a run of this many trials. Each request is unique, so the provider detects repeated requests."""
        from runs_app.models import Run
        from tests import factories

        samples = max(1, trials // 500)
        endpoint = factories.make_endpoint(
            "campaign", base_url=self.provider.url, max_concurrency=1000, is_free=True, adaptive=False
        )
        items = fields.pop("items", None) or max(1, trials // samples)
        defaults = {"max_usd": None, "max_attempts": MAX_ATTEMPTS, "lease_s": LEASE_S, "request_timeout_s": 20}
        experiment = factories.make_experiment(
            name,
            dataset=factories.make_dataset(name, items),
            models=[fields.pop("model", None) or factories.make_model("sim", endpoint=endpoint)],
            samples=samples,
            **{**defaults, "cache_buster": True, **fields},
        )
        self.provider.reset()
        (run,) = factories.make_runs(experiment)
        Run.objects.filter(pk=run.pk).update(max_concurrency=1000)
        factories.plan_trials(run)
        return run

    def start_workers(self, workers=2, **environment):
        """Start workers. Return them immediately: they need seconds until they claim trials."""
        command = [sys.executable, "manage.py", "drain", "--until-idle", "--concurrency", str(IN_FLIGHT)]
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        started = [
            subprocess.Popen(command, cwd=ROOT, env=os.environ | environment, start_new_session=True, **silent)
            for _ in range(workers)
        ]
        self.workers += started
        return started

    def replace_ended_workers(self, workers):
        """Replace workers that have ended."""
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        self.start_workers(workers - len(self.workers))

    def end_workers(self):
        for worker in self.workers:
            if worker.poll() is None:
                worker.terminate()
        for worker in self.workers:
            try:
                worker.wait(timeout=40)
            except subprocess.TimeoutExpired:
                kill_group(worker)
        self.workers = []

    def kill_server(self):
        """Kill all processes of the server, as the kernel does without free memory."""
        from django.db import connection

        from tests.system.postgres.conftest import find_servers

        connection.close()
        while pids := find_servers(self.server.data_dir):
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


@contextmanager
def run_lab(config, folder=None):
    """Start a server and a provider, and set up Django. The server is below `folder`, or below a temporary folder."""
    from evalsite.lib.ops.postgres import Embedded
    from tests.system.postgres.conftest import open_folder

    with (
        open_folder() as temporary,
        tempfile.TemporaryDirectory(prefix="campaign-", ignore_cleanup_errors=True) as data,
    ):
        server = Embedded((folder or temporary) / "postgres")
        server.start()
        set_up_django(server, data)
        from runs_app.simulator.process import simulator_process

        with simulator_process(config) as provider:
            lab = Lab(server, provider)
            try:
                yield lab
            finally:
                lab.end_workers()
                lab.kill_server()


def set_up_django(server, data):
    """Set up Django on this server and create the tables."""
    parameters = server.connection()
    os.environ["DATABASE_URL"] = (
        f"postgresql:///{parameters['dbname']}?host={parameters['host']}&port={parameters['port']}&user=evalsite"
    )
    os.environ |= {"EVALSITE_DATA_DIR": str(data), "DJANGO_SETTINGS_MODULE": "evalsite.settings"}
    import django
    from django.core.management import call_command

    django.setup()
    from django.db import connection

    connection.close()  # An earlier lab may have left a connection.
    connection.settings_dict.update(
        NAME=parameters["dbname"], HOST=parameters["host"], PORT=parameters["port"], USER=parameters["user"]
    )
    call_command("migrate", interactive=False, verbosity=0)


def kill_group(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def find_worker_row(worker):
    """Return the row of the worker, or None before it registered."""
    from runs_app.models import Worker

    return Worker.objects.filter(pid=worker.pid, stopped_at=None).order_by("-pk").first()


def refresh(run):
    run.refresh_from_db()
    return run


def wait_until(condition, patience_s=PATIENCE_S):
    """Wait until the condition holds. Return the seconds. Raise TimeoutError after `patience_s`."""
    started_at = time.monotonic()
    while not condition():
        if time.monotonic() - started_at > patience_s:
            raise TimeoutError(f"waited in vain for {patience_s:g} s")
        time.sleep(0.05)
    return time.monotonic() - started_at
