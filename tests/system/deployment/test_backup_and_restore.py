"""A backup restored into an empty database gives the same site: rows, images, triggers and counters."""

import io
import stat
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.contrib.sessions.models import Session
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import DatabaseError, connection
from django.utils import timezone
from django_q.models import OrmQ
from django_q.tasks import async_task

from datasets_app.models import Item
from evalsite.lib.ops.postgres import Embedded
from grading_app.grading.consistency_check import find_differences
from runs_app.engine.admission import WorkerCapacity
from runs_app.engine.worker_cycle import run_cycle
from runs_app.models import Attempt, Endpoint, Run, Trial, Worker
from tests import factories
from tests.system.faults.conftest import use_database_of
from tests.system.postgres.conftest import open_folder

NOT_BACKED_UP = {"django_session"}


@pytest.fixture
def site(transactional_db, settings):
    """An approved dataset, a half-completed run and an image."""
    experiment = factories.make_experiment("kept", samples=4)
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run, answer=lambda item, dimension, sample: "four" if sample < 2 else None)
    write_file(settings.MEDIA_ROOT / "assets" / "ab" / "abc.png", b"an image")
    write_file(settings.MEDIA_ROOT / "uploads" / "1" / "waiting.csv", b"nobody will miss it")
    return run


def write_file(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def run_command(*arguments):
    output = io.StringIO()
    call_command(*map(str, arguments), stdout=output)
    return output.getvalue()


def count_rows():
    """Return the number of rows of each table."""
    with connection.cursor() as cursor:
        tables = sorted(set(connection.introspection.table_names(cursor)) - NOT_BACKED_UP)
        cursor.execute(" UNION ALL ".join(f"SELECT '{table}', count(*) FROM {table}" for table in tables))
        return dict(cursor.fetchall())


@pytest.fixture
def empty_server():
    with open_folder() as folder:
        embedded = Embedded(folder / "postgres")
        embedded.start()
        yield embedded


def test_a_restored_backup_is_the_same_site(site, empty_server, settings, tmp_path):
    output = run_command("backup", tmp_path / "backups")
    assert "1 new images" in output
    (dump,) = (tmp_path / "backups").glob("*.dump")
    before, differences = count_rows(), find_differences()
    answers = sorted(Trial.objects.values_list("run__condition__condition_id", "item__key", "sample_idx", "answer"))
    settings.MEDIA_ROOT = tmp_path / "new" / "media"
    with use_database_of(empty_server):
        assert "1 images put back" in run_command("restore", dump)
        assert count_rows() == before
        assert answers == sorted(
            Trial.objects.values_list("run__condition__condition_id", "item__key", "sample_idx", "answer")
        )
        assert (Run.objects.get().n_done, Run.objects.get().n_pending) == (6, 6)
        assert Group.objects.filter(name="Curator").exists()
        assert find_differences() == differences
        with pytest.raises(DatabaseError, match=r"frozen|approved|cannot"):
            Item.objects.update(input="something else")
        run_command("migrate", "--check")
        with pytest.raises(CommandError, match="not empty") as error:
            run_command("restore", dump)
        assert error.value.returncode == 2
    assert (settings.MEDIA_ROOT / "assets" / "ab" / "abc.png").read_bytes() == b"an image"
    assert not (settings.MEDIA_ROOT / "uploads").exists()


def test_a_backup_contains_no_session_and_is_readable_by_its_owner_only(site, empty_server, tmp_path):
    Session.objects.create(session_key="k" * 32, session_data="secret", expire_date=timezone.now() + timedelta(days=1))
    earlier = tmp_path / "backups" / "evalsite-20200101T000000.dump"
    write_file(earlier, b"of an earlier version")
    earlier.chmod(0o644)
    run_command("backup", tmp_path / "backups")
    files = [path for path in (tmp_path / "backups").rglob("*") if path.is_file()]
    assert len(files) == 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    with use_database_of(empty_server):
        run_command("restore", max((tmp_path / "backups").glob("*.dump")))
        assert Session.objects.count() == 0
        assert Trial.objects.count() == 12
    assert Session.objects.count() == 1


def test_a_damaged_dump_restores_nothing(site, empty_server, tmp_path):
    run_command("backup", tmp_path)
    (dump,) = tmp_path.glob("*.dump")
    whole = dump.read_bytes()
    dump.write_bytes(whole[: len(whole) // 2])
    with use_database_of(empty_server):
        with pytest.raises(CommandError, match="pg_restore failed") as error:
            run_command("restore", dump)
        assert error.value.returncode == 2
        assert connection.introspection.table_names() == []
        dump.write_bytes(whole)
        run_command("restore", dump)
        assert Trial.objects.count() == 12


def test_old_dumps_are_deleted_and_images_are_copied_once(site, tmp_path, time_machine):
    backups = tmp_path / "backups"
    for hour in range(4):
        time_machine.move_to(f"2026-03-01T0{hour}:00Z")
        output = run_command("backup", backups, "--keep", "2")
        assert ("1 new images" if hour == 0 else "0 new images") in output
    assert [path.name for path in sorted(backups.glob("*.dump"))] == [
        "evalsite-20260301T020000.dump",
        "evalsite-20260301T030000.dump",
    ]
    assert list(backups.rglob("*.part")) == []


def test_an_unwritable_folder_and_a_missing_file_are_reported(site, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match="file") as error:
        run_command("backup", tmp_path / "file")
    assert error.value.returncode == 1
    with pytest.raises(CommandError, match="There is no file") as error:
        run_command("restore", tmp_path / "nothing.dump")
    assert error.value.returncode == 2
    with pytest.raises(CommandError, match="--keep") as error:
        run_command("backup", tmp_path, "--keep", "0")
    assert error.value.returncode == 2


def claim_trials(run, n):
    """Claim trials of a running run as a worker does. Return the worker."""
    Run.objects.filter(pk=run.pk).update(status="running")
    worker = Worker.objects.create(name="old-host:1:1", host="old-host", pid=1)
    endpoint = run.condition.model.endpoint_id
    assert len(run_cycle([], worker.pk, WorkerCapacity(n)).claims) == n
    assert Endpoint.objects.get(pk=endpoint).in_flight == n
    return worker


@pytest.fixture
def dump_of_a_drain(site, tmp_path):
    """A dump of a site with four calls in flight, a worker, and two tasks, of which one has a foreign signature."""
    claim_trials(site, 4)
    async_task("runs_app.tasks.drain", cluster="up-of-the-old-site")
    async_task("runs_app.tasks.maintain", cluster="up-of-the-old-site.pulse")
    OrmQ.objects.create(key="evalsite", payload="of-another-secret", lock=timezone.now())
    run_command("backup", tmp_path)
    (dump,) = tmp_path.glob("*.dump")
    return dump


def test_a_restore_releases_what_a_drain_held(dump_of_a_drain, empty_server):
    with use_database_of(empty_server):
        output = run_command("restore", dump_of_a_drain)
        assert "4 calls were in flight at the backup. Their claims are released" in output
        assert "1 tasks were signed with another EVALSITE_SECRET_KEY and are removed" in output
        run = Run.objects.get()
        assert (run.n_pending, run.n_running, run.status) == (6, 0, "running")
        assert Endpoint.objects.get(pk=run.condition.model.endpoint_id).in_flight == 0
        assert Attempt.objects.filter(outcome="lost").count() == 4
        assert [task.key for task in OrmQ.objects.all()] == ["evalsite"]
        assert not Worker.objects.filter(stopped_at=None).exists()
        worker = Worker.objects.create(name="new-host:1:1", host="new-host", pid=1)
        claims = run_cycle([], worker.pk, WorkerCapacity(6)).claims
        assert len(claims) == 6, "the slots of the endpoint are free"


def test_runs_of_a_restored_backup_can_be_paused_before_a_worker_starts(dump_of_a_drain, empty_server):
    with use_database_of(empty_server):
        assert "1 runs paused; `experiment resume NAME` continues them" in run_command(
            "restore", dump_of_a_drain, "--pause"
        )
        run = Run.objects.get()
        assert (run.status, run.n_running) == ("paused", 0)
        assert [row for row in find_differences() if row.counter.startswith(("n_", "in_flight"))] == []
        worker = Worker.objects.create(name="new-host:1:1", host="new-host", pid=1)
        assert run_cycle([], worker.pk, WorkerCapacity(6)).claims == []
