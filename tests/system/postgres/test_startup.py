"""The start of the embedded server: its first cluster, its settings, and starts that fail."""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from evalsite.lib.ops import postgres_programs
from evalsite.lib.ops.postgres import Embedded
from evalsite.lib.ops.postgres_programs import PostgresError
from tests.system.postgres.conftest import USE, Spawn, find_servers, is_gone, query, read_server_pid, wait_for

pytestmark = pytest.mark.processes


def test_the_first_start_creates_a_database_that_accepts_connections(fresh: Embedded) -> None:
    fresh.start()
    assert query(fresh, "SELECT current_user || ' in ' || current_database()") == "evalsite in evalsite"
    expected = {
        "max_connections": "200",
        "shared_buffers": "256MB",
        "jit": "off",
        "TimeZone": "UTC",
        "synchronous_commit": "on",
        "fsync": "on",
        "listen_addresses": "",
        "server_encoding": "UTF8",
    }
    assert {name: query(fresh, f"SHOW {name}") for name in expected} == expected


def test_only_the_owner_can_enter_the_socket_folder(embedded: Embedded) -> None:
    embedded.start()
    assert stat.S_IMODE(embedded.socket_dir.stat().st_mode) == 0o700


def test_connection_parameters_are_available_without_starting_the_server(fresh: Embedded) -> None:
    assert fresh.connection() == Embedded(fresh.data_dir).connection()
    assert fresh.connection()["host"] == str(fresh.socket_dir)
    assert not fresh.data_dir.exists()
    assert not fresh.socket_dir.exists()


def test_a_second_start_keeps_the_server(embedded: Embedded) -> None:
    embedded.start()
    first_pid = read_server_pid(embedded)
    Embedded(embedded.data_dir).start()
    assert read_server_pid(embedded) == first_pid


def test_four_processes_can_start_the_server_simultaneously(fresh: Embedded, spawn: Spawn) -> None:
    code = USE + "e.start(); import psycopg; psycopg.connect(**e.connection()).execute('SELECT 1'); print('connected')"
    starters = [spawn(code, fresh.data_dir) for _ in range(4)]
    assert [starter.communicate(timeout=300) for starter in starters] == [("connected\n", "")] * 4
    log = fresh.log.read_text()
    assert log.count("creating subdirectories") == 1
    assert log.count("ready to accept connections") == 1


def test_a_path_may_contain_any_character(place: Path) -> None:
    embedded = Embedded(place / """it's a "$HOME" `folder`; é, ü""" / "postgres")
    embedded.start()
    assert query(embedded, "SELECT 1") == 1
    embedded.stop()
    assert is_gone(embedded)


@pytest.mark.parametrize("name", ["long" * 25, "with,comma"])
def test_a_temp_folder_unfit_for_a_socket_path_is_skipped(
    embedded: Embedded, place: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    unfit = place / name
    unfit.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(unfit))
        relocated = Embedded(embedded.data_dir)
    assert not relocated.socket_dir.is_relative_to(unfit)
    relocated.start()
    assert len(os.fsencode(relocated.socket_dir / ".s.PGSQL.5432")) <= 103
    assert query(relocated, "SELECT 1") == 1


def test_the_server_ignores_and_does_not_inherit_the_environment(
    embedded: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PGPORT": "1", "PGHOST": "nowhere", "PGDATA": "/nowhere", "PGDATABASE": "none"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SOME_PROVIDER_API_KEY", "secret-of-the-provider")
    embedded.start()
    assert query(embedded, "SELECT 1") == 1
    assert b"secret-of-the-provider" not in Path(f"/proc/{read_server_pid(embedded)}/environ").read_bytes()


def make_endless_initdb(folder: Path, programs: Path) -> Path:
    """Create a folder of PostgreSQL's programs in which initdb creates a cluster and does not end."""
    folder.mkdir()
    for program in programs.iterdir():
        (folder / program.name).symlink_to(program)
    initdb = folder / "initdb"
    initdb.unlink()
    initdb.write_text(f"#!/bin/sh\n'{programs}/initdb' \"$@\"\nsleep 600\n")
    initdb.chmod(0o755)
    return folder


def test_an_interrupted_first_start_is_repaired(
    fresh: Embedded, stopped_cluster: Path, place: Path, spawn: Spawn
) -> None:
    programs = make_endless_initdb(place / "programs", Embedded(stopped_cluster)._programs.folder)
    starter = spawn(USE + "e.start()", fresh.data_dir, env=os.environ | {"EVALSITE_POSTGRES_BIN": str(programs)})
    wait_for(lambda: list(fresh.data_dir.glob("data.new-*/base/1")))
    os.killpg(starter.pid, 9)
    starter.wait()
    assert not (fresh.data_dir / "data").exists()
    fresh.start()
    assert query(fresh, "SELECT 1") == 1
    assert not list(fresh.data_dir.glob("data.new-*"))


def test_an_existing_cluster_is_never_created_again(embedded: Embedded) -> None:
    embedded.start()
    query(embedded, "CREATE TABLE kept AS SELECT 42 AS answer")
    embedded.stop()
    (embedded.data_dir / "data.new-rubbish").mkdir()
    embedded.start()
    assert query(embedded, "SELECT answer FROM kept") == 42


def test_a_failed_start_reports_the_reason(embedded: Embedded) -> None:
    embedded.start()
    embedded.stop()
    with (embedded.data_dir / "data" / "postgresql.conf").open("a") as conf:
        conf.write("\nno_such_setting = 1\n")
    with pytest.raises(PostgresError, match=r"(?s)pg_ctl failed.*no_such_setting"):
        embedded.start()
    assert not find_servers(embedded.data_dir)


def test_a_folder_without_programs_is_rejected_by_name(
    embedded: Embedded, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALSITE_POSTGRES_BIN", str(place / "nothing"))
    with pytest.raises(PostgresError, match=r"nothing \(EVALSITE_POSTGRES_BIN\)"):
        embedded.start()


def test_a_system_postgresql_is_used_without_the_wheel(fresh: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    system_programs = postgres_programs._find_system_programs()
    if not system_programs:
        pytest.skip("this machine has no PostgreSQL of its own")
    monkeypatch.setattr(postgres_programs, "_find_wheel_programs", lambda: None)
    fresh.start()
    assert Path(f"/proc/{read_server_pid(fresh)}/exe").readlink().parent == system_programs[0].resolve()
    assert query(fresh, "SHOW server_encoding") == "UTF8"
