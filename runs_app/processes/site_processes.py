"""The processes of the site: a web server and a task queue, and the steps before they start.

A data folder may have simulated models: `demo` stores their options, and every site of the folder serves them. A
restored backup holds claims, batch leases, workers and tasks of the processes of its site: `take_over` ends them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import tempfile
import threading
import time
import urllib.request
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command
from django.db import DatabaseError, OperationalError, connection
from django.db.models import F
from django.utils import timezone
from django_q.conf import Conf
from django_q.models import OrmQ
from django_q.signing import BadSignature, SignedPackage
from whitenoise.storage import CompressedManifestStaticFilesStorage

from evalsite.lib.ops import handover
from evalsite.lib.ops.connection_pooler import refuse_transaction_pooling
from evalsite.lib.ops.data_folder import explain_unusable, restrict_folder
from evalsite.lib.ops.installation import ROOT, build_module_command
from evalsite.lib.ops.postgres import Embedded
from evalsite.lib.ops.supervisor import Child, PeriodicTask, StartFailed, Supervisor
from evalsite.lib.sql import fetch_rows
from evalsite.lib.text.number_format import format_count
from runs_app.engine.leases import sweep_expired
from runs_app.models import Preflight, ProviderBatch, Worker
from runs_app.planning.shipped_designs import create_shipped_designs
from runs_app.simulator import SimulatorConfig
from runs_app.taskqueue.broker import Pulse, requeue_tasks
from runs_app.taskqueue.supervisor_channel import VARIABLE, SupervisorChannel
from runs_app.taskqueue.task_payloads import check_task

THREADS = 16  # For complete requests. The web worker has other threads for large bodies.
WEB_GRACE_S = 8.0
WEB_FIRST_S = 30.0  # Other processes start when the web server answers, or after this time.
QUEUE_GRACE_S = 25.0  # A stopping drain, and the gateway, wait 10 s for their calls in flight.
MIGRATION_LOCK = 0x65766C73  # The key of an advisory lock.
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
DEBUG_ERROR = (
    "--host {host}: EVALSITE_DEBUG is on, so error pages show settings and code to everybody. Unset EVALSITE_DEBUG to"
    " serve other machines, or omit --host to serve only this machine."
)
STATIC_FILES = "EVALSITE_STATIC_ROOT"  # Only `up` sets it, for its web server: the folder of the collected files.


def add_address_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--host", type=_parse_host, default="127.0.0.1", help="address to listen on (default: only this machine)"
    )
    parser.add_argument("--port", type=_parse_port, default=8000)


def _parse_host(text: str) -> str:
    """Return an address without the brackets that an IPv6 address has in a URL."""
    return text[1:-1] if text.startswith("[") and text.endswith("]") else text


def _parse_port(text: str) -> int:
    if not (text.isdecimal() and int(text) <= 65_535):
        raise ArgumentTypeError(f"{text} is not a port; enter a number from 1 to 65535")
    return int(text)


class AddressError(Exception):
    """An address on which the site cannot listen. The message says why."""


def migrate() -> None:
    """Migrate the database and create the shipped rows. If several machines start at once, only one does this."""
    refuse_transaction_pooling()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [MIGRATION_LOCK])
        try:
            call_command("migrate", interactive=False, verbosity=0)
            create_shipped_designs()
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [MIGRATION_LOCK])
    connection.close()


@contextmanager
def open_listener(host: str, port: int) -> Iterator[socket.socket]:
    """Open the site's socket. It outlives web servers, so that requests wait while one is replaced.

    Raise AddressError if the site cannot listen on this address.
    """
    if settings.DEBUG and host not in LOOPBACK:
        raise AddressError(DEBUG_ERROR.format(host=host))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise AddressError(f"cannot listen on {host}:{port}: {reason}. Choose another port with --port.") from None
    with listener:
        yield listener


def serve(
    listener: socket.socket,
    *,
    drains: int,
    on_ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve the site until a stop signal, then end all its processes. Raise StartFailed if a process cannot start.

    The caller holds the lock of the data folder. `on_ready` is called once with the URL, when the site answers.
    """
    _remove_leftovers()
    has_answered = threading.Event()
    started = time.monotonic()

    def announce(url: str) -> None:
        has_answered.set()
        on_ready(url)

    def may_start_workers() -> bool:
        """Leave all processors to the web server until it answers, but not for ever."""
        return has_answered.is_set() or time.monotonic() - started > WEB_FIRST_S

    with SupervisorChannel.create_in(settings.DATA_DIR) as channel:
        environment = {
            VARIABLE: str(channel.folder),
            "EVALSITE_DRAINS": str(drains),
            "EVALSITE_DATA_DIR": str(settings.DATA_DIR),
        }
        queue = Child(
            "queue",
            build_module_command("evalsite", "qcluster"),
            environment=environment,
            directory=ROOT,
            grace_s=QUEUE_GRACE_S,
            may_start=may_start_workers,
        )
        pulse = Pulse(channel, drains + 1, queue.replace)
        queue.on_start = pulse.reset
        periodic_tasks: list[PeriodicTask] = [_Announcement(listener, announce), _make_pulse_check(pulse)]
        web_end, gateway_end = handover.open_pair()
        try:
            children = [
                _make_web_child(listener, web_end, environment | _collect_static_files()),
                queue,
                Child(
                    "gateway",
                    build_module_command("evalsite.api.gateway_process"),
                    environment=environment | {handover.VARIABLE: str(gateway_end.fileno())},
                    directory=ROOT,
                    keep_fds=(gateway_end.fileno(),),
                    grace_s=QUEUE_GRACE_S,
                    may_start=may_start_workers,
                ),
                *build_simulated_models(may_start_workers),
            ]
            # The command to run after `up` was killed. Any command ends the embedded database as its last user.
            has_own_database = not os.environ.get("DATABASE_URL")
            cleanup = build_module_command("evalsite", "sweep_stale_claims") if has_own_database else []
            Supervisor(children, periodic_tasks, channel.request_stop, if_killed=cleanup, directory=ROOT).run()
        finally:
            web_end.close()
            gateway_end.close()
            with suppress(DatabaseError):
                requeue_tasks(channel)


def collect_static_files(parent: Path) -> Path:
    """Collect the static files into a folder of `parent` named for their content, and return it.

    Names of files change with their content, so browsers may keep them. The folder appears when it is complete.
    Folders of other contents are deleted.
    """
    sources = {name: Path(storage.path(name)) for finder in get_finders() for name, storage in finder.list([])}
    digest = hashlib.sha256(f"{version('django')} {version('whitenoise')}".encode())
    for name in sorted(sources):
        digest.update(f"\0{name}\0".encode() + sources[name].read_bytes())
    folder = parent / digest.hexdigest()[:16]
    if not folder.is_dir():
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent) as scratch:
            _collect(sources, Path(scratch) / folder.name)
            (Path(scratch) / folder.name).rename(folder)
    for other in parent.iterdir():
        if other != folder:
            shutil.rmtree(other, ignore_errors=True)
    return folder


def _collect(sources: dict[str, Path], folder: Path) -> None:
    storage = CompressedManifestStaticFilesStorage(location=folder)
    for name, source in sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / name)
    for name, _, processed in storage.post_process({name: (storage, name) for name in sources}):
        if isinstance(processed, Exception):
            raise RuntimeError(f"the static file {name} cannot be collected") from processed


def _collect_static_files() -> dict[str, str]:
    """Collect the static files, and return the setting by which the web server finds them.

    With EVALSITE_DEBUG, it serves them from where they are edited.
    """
    if settings.DEBUG:
        return {}
    try:
        return {STATIC_FILES: str(collect_static_files(settings.DATA_DIR / "static"))}
    except OSError as error:
        raise StartFailed(explain_unusable(settings.DATA_DIR / "static", error)) from None


def _remove_leftovers() -> None:
    """Requeue the tasks of an `up` that was killed on this machine, and restrict folders that are too open."""
    for folder in (settings.MEDIA_ROOT, settings.RESULT_SPOOL_DIR):
        restrict_folder(Path(folder))
    for channel in SupervisorChannel.find_orphaned(settings.DATA_DIR):
        requeue_tasks(channel)
        channel.remove()


def _make_web_child(listener: socket.socket, end: socket.socket, environment: dict[str, str]) -> Child:
    options = ["--bind", f"fd://{listener.fileno()}", "--workers", "1"]
    options += ["--worker-class", "evalsite.lib.ops.gunicorn_worker.WebWorker", "--threads", str(THREADS)]
    options += ["--graceful-timeout", str(int(WEB_GRACE_S) - 2)]
    options += ["--log-level", "warning", "--no-control-socket"]
    return Child(
        "web",
        build_module_command("gunicorn", *options, "evalsite.wsgi"),
        environment=environment | {handover.VARIABLE: str(end.fileno())},
        directory=ROOT,
        keep_fds=(listener.fileno(), end.fileno()),
        grace_s=WEB_GRACE_S,
    )


class _Announcement:
    """A periodic task that announces once that the site answers."""

    def __init__(self, listener: socket.socket, announce: Callable[[str], None]) -> None:
        host, port = listener.getsockname()[:2]
        local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - any address is also this one
        self._url, self._announce = f"http://{f'[{local}]' if ':' in local else local}:{port}/", announce

    def __call__(self) -> float | None:
        try:
            with urllib.request.urlopen(f"{self._url}healthz", timeout=5):  # noqa: S310 - our own address
                pass
        except OSError:
            return 0.2
        self._announce(self._url)
        return None


def _make_pulse_check(pulse: Pulse) -> PeriodicTask:
    """Return a periodic task that runs the pulse, and restarts an embedded database that was killed."""

    def work() -> float:
        try:
            return pulse()
        except OperationalError:
            if not os.environ.get("DATABASE_URL"):
                Embedded(settings.DATA_DIR / "postgres").start()
            raise

    return work


def read_database_time() -> datetime:
    time: datetime = fetch_rows("SELECT clock_timestamp()")[0][0]
    return time


def store_simulated_models(config: SimulatorConfig) -> None:
    path = _find_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config.build_arguments()))


def build_simulated_models(may_start: Callable[[], bool]) -> list[Child]:
    """Return the process of the stored simulated models, or no process if there are none.

    The site works without them. It does not stop if they cannot start, for example because their port is in use.
    """
    path = _find_file()
    if not path.exists():
        return []
    command = build_module_command("runs_app.simulator", *json.loads(path.read_text()))
    return [Child("models", command, directory=ROOT, is_required=False, may_start=may_start)]


def _find_file() -> Path:
    return Path(settings.DATA_DIR) / "demo" / "models.json"


def take_over(restored_at: datetime) -> Iterator[str]:
    """Release what processes of the backed up site held, so that work continues at once. Yield a sentence for each.

    `restored_at` is the database's time before the restore: a worker of this site may have started meanwhile.
    """
    workers = Worker.objects.filter(started_at__lt=restored_at, stopped_at=None)
    ProviderBatch.objects.filter(worker_id__in=workers.values("pk")).update(claim=None, lease_until=None)
    Preflight.objects.filter(status=Preflight.Status.RUNNING).update(lease_until=restored_at)
    workers.update(stopped_at=F("seen_at"), trouble="")
    if released := sum(iter(lambda: sweep_expired(restored_at), 0)):
        yield (
            f"{format_count(released)} calls were in flight at the backup. Their claims are released, and they are made"
            " again."
        )
    if removed := _requeue_tasks():
        yield (
            f"{format_count(removed)} tasks were signed with another EVALSITE_SECRET_KEY and are removed. The site"
            " continues its runs without them; start again what else was under way, such as an import or a snapshot."
        )


def _requeue_tasks() -> int:
    """Return the tasks of the backed up site to the shared queue. Remove tasks that this site would refuse.

    Return the number of removed tasks.
    """
    removed = 0
    for task in OrmQ.objects.all():
        try:
            check_task(SignedPackage.loads(task.payload))
        except (BadSignature, TypeError, ValueError):
            task.delete()
            removed += 1
    OrmQ.objects.filter(key__endswith=".pulse").delete()
    OrmQ.objects.update(key=Conf.CLUSTER_NAME, lock=timezone.now())
    return removed
