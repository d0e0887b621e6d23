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

from datasets_app.models import Item
from evalsite.lib.ops.postgres import Embedded
from runs_app.models import Run, Trial
from runs_app.monitoring.consistency_check import find_differences
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
