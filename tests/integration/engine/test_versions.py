"""A worker claims nothing if the database schema differs from its code, and states the reason."""

import asyncio
import io
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from evalsite.command_line import execute
from evalsite.lib.ops.versions import (
    MIGRATIONS_BEFORE_RESTART,
    SchemaMismatch,
    check_schema,
    get_version,
    list_migrations,
)
from grading_app.grading.consistency_check import find_differences
from runs_app import tasks
from runs_app.engine.worker import Drain, DrainLimits
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.models import Trial, Worker
from tests.factories.engine import build_provider, build_reply, drain

NEWER = ("runs_app", "9999_of_tomorrow")


def apply_unknown_migration():
    MigrationRecorder.Migration.objects.create(app=NEWER[0], name=NEWER[1])


def apply_unknown_migration_in_thread():
    apply_unknown_migration()
    connection.close()


@pytest.fixture(autouse=True)
def restored_migrations(run):
    yield
    MigrationRecorder.Migration.objects.filter(name=NEWER[1]).delete()


def test_a_worker_reports_its_version(run):
    drain(build_provider())
    assert Worker.objects.get().version == get_version()


@pytest.mark.parametrize("option", ["--version", "version"])
def test_the_command_line_prints_the_version_of_the_site_and_not_djangos(option, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["evalsite", option])
    execute()
    assert capsys.readouterr().out == f"{get_version()}\n"


def test_the_rate_of_a_worker_covers_the_last_minute(run, monkeypatch):
    clock: Any = SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr("runs_app.engine.worker_registration.time", clock)
    registration, rates = WorkerRegistration(), []
    for passed, recorded in ((30, 100), (60, 150)):
        clock.now += passed
        registration.send_heartbeat(3, recorded)
        rates.append(Worker.objects.get(pk=registration.worker_id).per_minute)
    assert rates == [200, 50]  # The first thirty seconds are more than a minute ago and no longer count.


def test_a_drain_refuses_a_database_ahead_of_the_code_and_states_the_reason(run):
    apply_unknown_migration()
    with pytest.raises(CommandError, match=r"9999_of_tomorrow, which this code .* does not have") as caught:
        call_command("drain", "--until-idle", stdout=io.StringIO())
    assert caught.value.returncode == 2
    assert set(Trial.objects.values_list("status", flat=True)) == {"pending"}
    assert not Worker.objects.exists()


@pytest.mark.parametrize(("app", "name"), sorted(MIGRATIONS_BEFORE_RESTART))
def test_a_drain_refuses_a_database_with_migrations_from_before_their_restart(run, app, name):
    MigrationRecorder.Migration.objects.create(app=app, name=name)
    try:
        with pytest.raises(CommandError, match=r"before the migrations were restarted.* new database") as caught:
            call_command("drain", "--until-idle", stdout=io.StringIO())
    finally:
        MigrationRecorder.Migration.objects.filter(app=app, name=name).delete()
    assert caught.value.returncode == 2
    assert set(Trial.objects.values_list("status", flat=True)) == {"pending"}


def test_a_drain_refuses_a_database_behind_the_code(run, monkeypatch):
    more = list_migrations() | {"runs_app.9999_of_tomorrow"}
    monkeypatch.setattr("evalsite.lib.ops.versions.list_migrations", lambda: more)
    with pytest.raises(SchemaMismatch, match=r"lacks the migration .*9999_of_tomorrow.* manage.py migrate"):
        drain(None)
    assert set(Trial.objects.values_list("status", flat=True)) == {"pending"}


def test_a_migration_during_a_drain_stops_claims_but_records_calls_in_flight(run, monkeypatch):
    monkeypatch.setattr("runs_app.engine.worker.HEARTBEAT_S", 0.05)
    registration = WorkerRegistration()

    async def go():
        async def call(request):
            await asyncio.to_thread(apply_unknown_migration_in_thread)
            async with asyncio.timeout(60):
                await worker._stop.wait()  # The next heartbeat stops the drain.
            return build_reply()

        worker = Drain(call, registration, DrainLimits(concurrency=1, until_idle=True))
        await worker.run()

    with pytest.raises(SchemaMismatch, match="9999_of_tomorrow"):
        asyncio.run(go())
    assert sorted(run.trials.values_list("status", flat=True)) == ["done"] + ["pending"] * 5
    assert find_differences() == []
    assert Worker.objects.get().stopped_at is not None


def test_a_task_of_another_version_enqueues_no_further_task(run, monkeypatch):
    apply_unknown_migration()
    woken = []
    monkeypatch.setattr(tasks, "enqueue_one_drain", lambda *_: woken.append(1))
    with pytest.raises(SchemaMismatch):
        tasks.drain()
    assert woken == []


def test_a_matching_schema_passes_the_check(run):
    assert check_schema() is None
    assert {name.partition(".")[0] for name in list_migrations()} == {"lib", "datasets_app", "runs_app", "grading_app"}
