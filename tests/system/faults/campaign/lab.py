"""A database, a provider and workers of the campaign's own, which nobody else's faults touch."""

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
MAX_ATTEMPTS = 8  # At one fault in five, one trial in four hundred thousand fails so often in a row.
PATIENCE_S = 180.0


@dataclass
class Lab:
    """Where faults strike."""

    server: Any
    provider: Any
    workers: list[subprocess.Popen] = field(default_factory=list)

    def work(self, name, trials, **fields):
        """A planned run of so many trials. Every request is its own: the provider can tell which it answered twice."""
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

    def join(self, workers=2, **environment):
        """So many more workers. Returns them at once: they take seconds to start."""
        command = [sys.executable, "manage.py", "drain", "--until-idle", "--concurrency", str(IN_FLIGHT)]
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        fresh = [
            subprocess.Popen(command, cwd=ROOT, env=os.environ | environment, start_new_session=True, **silent)
            for _ in range(workers)
        ]
        self.workers += fresh
        return fresh

    def keep(self, workers):
        """Replace those that have ended."""
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        self.join(workers - len(self.workers))

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
        """Every process of it at once, as the kernel does where memory ends."""
        from django.db import connection

        from tests.system.postgres.conftest import servers_in

        connection.close()
        while pids := servers_in(self.server.data_dir):
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


@contextmanager
def lab(config, folder=None):
    """With a server in a folder of its own, or below this one; Django is set up on it."""
    from evalsite.lib.ops.postgres import Embedded
    from tests.system.postgres.conftest import open_folder

    with open_folder() as own, tempfile.TemporaryDirectory(prefix="campaign-", ignore_cleanup_errors=True) as data:
        server = Embedded((folder or own) / "postgres")
        server.start()
        set_up(server, data)
        from runs_app.simulator.process import simulator_process

        with simulator_process(config) as provider:
            made = Lab(server, provider)
            try:
                yield made
            finally:
                made.end_workers()
                made.kill_server()


def set_up(server, data):
    """Django on that server, with its tables made."""
    known = server.connection()
    os.environ["DATABASE_URL"] = (
        f"postgresql:///{known['dbname']}?host={known['host']}&port={known['port']}&user=evalsite"
    )
    os.environ |= {"EVALSITE_DATA_DIR": str(data), "DJANGO_SETTINGS_MODULE": "evalsite.settings"}
    import django
    from django.core.management import call_command

    django.setup()
    from django.db import connection

    connection.close()  # An earlier lab's, perhaps.
    connection.settings_dict.update(NAME=known["dbname"], HOST=known["host"], PORT=known["port"], USER=known["user"])
    call_command("migrate", interactive=False, verbosity=0)


def kill_group(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def row_of(worker):
    """The worker's row, once it has one."""
    from runs_app.models import Worker

    return Worker.objects.filter(pid=worker.pid, left_at=None).order_by("-pk").first()


def fresh(run):
    run.refresh_from_db()
    return run


def seconds_until(is_so, patience_s=PATIENCE_S):
    """How long it took. TimeoutError where it never came."""
    began = time.monotonic()
    while not is_so():
        if time.monotonic() - began > patience_s:
            raise TimeoutError(f"waited in vain for {patience_s:g} s")
        time.sleep(0.05)
    return time.monotonic() - began
