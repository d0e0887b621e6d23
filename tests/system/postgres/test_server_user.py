"""The operating system user of the server. PostgreSQL refuses root, so root runs its programs as another user."""

import os
import pwd
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from evalsite.lib.ops import postgres_programs
from evalsite.lib.ops.postgres import Embedded
from evalsite.lib.ops.postgres_programs import PostgresError
from tests.system.postgres.conftest import HOLD, ROOT, USE, Spawn, is_gone, query, read_line, read_server_pid

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can run as several users"),
]
ORDINARY_USER = pwd.getpwnam("daemon").pw_uid  # initdb rejects a user without a name.


def get_owner(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


@pytest.fixture
def own_folder(place: Path) -> Path:
    """A private folder of an ordinary user. Skip the test if that user cannot reach this code and its Python."""
    for path in (ROOT / "manage.py", Path(sys.executable).resolve()):
        if not all(folder.stat().st_mode & stat.S_IXOTH for folder in path.parents):
            pytest.skip(f"other users cannot reach {path}")
    folder = place / "home"
    folder.mkdir()
    os.chown(folder, ORDINARY_USER, ORDINARY_USER)
    folder.chmod(0o700)
    return folder


def run_as_ordinary_user() -> dict[str, object]:
    return {"user": ORDINARY_USER, "group": ORDINARY_USER, "extra_groups": []}


def test_root_runs_the_server_as_nobody(fresh: Embedded) -> None:
    fresh.start()
    nobody = pwd.getpwnam("nobody").pw_uid
    assert get_owner(read_server_pid(fresh)) == nobody
    assert (fresh.data_dir / "data").stat().st_uid == nobody
    assert (fresh.data_dir / "gate.lock").stat().st_uid == 0


def run_as(uid: int, work: Callable[[], object]) -> str:
    """Run the function in a forked process of another account. Return its result or error as a text.

    Forked, because another account may not be able to reach this Python.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(pwd.getpwuid(uid).pw_gid)
        os.setuid(uid)
        try:
            output = str(work())
        except BaseException as error:  # noqa: BLE001 - the parent process reads any error
            output = f"{type(error).__name__}: {error}"
        os.write(writing, output.encode()[:60_000])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        output = pipe.read()
    os.waitpid(child, 0)
    return output


def make_connect(embedded: Embedded, **changes: str) -> Callable[[], object]:
    def connect() -> object:
        with psycopg.connect(**embedded.connection(), **changes) as connection:
            return connection.execute("SELECT current_user").fetchone()

    return connect


NOBODY = pwd.getpwnam("nobody").pw_uid


def test_another_process_of_nobody_cannot_connect_to_roots_server(fresh: Embedded) -> None:
    fresh.start()
    assert get_owner(read_server_pid(fresh)) == NOBODY
    assert "Peer authentication failed" in run_as(NOBODY, make_connect(fresh))
    assert query(fresh, "SELECT current_user") == "evalsite"


def test_nobody_cannot_change_the_connection_rules(fresh: Embedded) -> None:
    fresh.start()
    for name in ("hba_file", "ident_file"):
        path = Path(str(query(fresh, f"SHOW {name}")))
        assert (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) == (0, 0o644)
        assert path.parent.stat().st_uid == 0
    assert "Peer authentication failed" not in fresh.log.read_text(), "the site's own programs are let in"


def test_only_the_folder_owner_and_root_can_connect(place: Path) -> None:
    folder = place / "home"
    folder.mkdir(mode=0o700)
    os.chown(folder, ORDINARY_USER, ORDINARY_USER)
    assert run_as(ORDINARY_USER, lambda: Embedded(folder / "postgres").start()) == "None"
    embedded = Embedded(folder / "postgres")
    embedded.socket_dir = next(
        Path(tempfile.gettempdir()).glob(f"evalsite-{ORDINARY_USER}-{embedded.socket_dir.name[-12:]}")
    )
    try:
        assert get_owner(read_server_pid(embedded)) == ORDINARY_USER
        assert run_as(ORDINARY_USER, make_connect(embedded)) == "('evalsite',)"
        assert make_connect(embedded)() == ("evalsite",)
        embedded.socket_dir.chmod(0o777)  # Open the folder to other accounts.
        (embedded.socket_dir / ".s.PGSQL.5432").chmod(0o777)
        assert "Peer authentication failed" in run_as(NOBODY, make_connect(embedded))
    finally:
        assert run_as(ORDINARY_USER, lambda: Embedded(folder / "postgres").stop()) == "None"


def test_the_next_start_updates_the_connection_rules_of_an_earlier_version(embedded: Embedded) -> None:
    (embedded.data_dir / "data" / "pg_hba.conf").write_text("local all all trust\n")
    for name in ("pg_hba.conf", "pg_ident.conf"):
        (embedded.data_dir / name).write_text("local all all trust\n")
    embedded.start()
    rules = query(embedded, "SELECT string_agg(concat_ws(' ', type, auth_method), ',') FROM pg_hba_file_rules")
    assert rules == "local peer"


def test_the_server_starts_under_a_strict_umask_of_root(place: Path) -> None:
    before = os.umask(0o077)
    try:
        embedded = Embedded(place / "var" / "postgres")
        embedded.start()
        assert query(embedded, "SELECT 1") == 1
    finally:
        os.umask(before)


def test_a_folder_inaccessible_to_the_server_user_is_named_with_a_remedy(place: Path) -> None:
    closed = place / "closed home"
    closed.mkdir(mode=0o700)
    with pytest.raises(PostgresError, match=r"nobody .*cannot enter .*/closed home\..*EVALSITE_DATA_DIR"):
        Embedded(closed / "var" / "postgres").start()
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def test_programs_inaccessible_to_the_server_user_are_copied(
    embedded: Embedded, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = postgres_programs._find_wheel_programs()
    assert wheel
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    package = wheel.parents[1]
    for folder in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(folder, closed / folder.name, ignore=shutil.ignore_patterns("pginstall", "include", "share"))
    shutil.copytree(wheel.parent / "share", closed / package.name / "pginstall18" / "share")
    monkeypatch.setattr(
        postgres_programs, "_find_wheel_programs", lambda: closed / package.name / "pginstall18" / "bin"
    )
    embedded.start()
    assert Path(f"/proc/{read_server_pid(embedded)}/exe").readlink().is_relative_to(embedded.data_dir)
    assert query(embedded, "SELECT 1") == 1


def test_an_ordinary_user_runs_the_server_as_that_user(own_folder: Path, spawn: Spawn) -> None:
    holder = spawn(HOLD, own_folder / "postgres", **run_as_ordinary_user())
    assert read_line(holder) == "in"
    embedded = Embedded(own_folder / "postgres")
    assert get_owner(read_server_pid(embedded)) == ORDINARY_USER
    assert holder.communicate(timeout=300) == ("", "")
    assert is_gone(embedded)


def test_root_runs_an_existing_cluster_as_its_owner(own_folder: Path, spawn: Spawn) -> None:
    owner_process = spawn(USE + "e.start(); e.stop()", own_folder / "postgres", **run_as_ordinary_user())
    assert owner_process.communicate(timeout=300) == ("", "")
    embedded = Embedded(own_folder / "postgres")
    embedded.start()
    assert get_owner(read_server_pid(embedded)) == ORDINARY_USER
    embedded.stop()
    second_owner_process = spawn(USE + "e.start(); e.stop()", own_folder / "postgres", **run_as_ordinary_user())
    assert second_owner_process.communicate(timeout=300) == ("", "")


def test_the_folder_of_another_user_is_rejected_with_a_remedy(
    embedded: Embedded, own_folder: Path, spawn: Spawn
) -> None:
    embedded.start()
    process = spawn(USE + "e.start()", embedded.data_dir, **run_as_ordinary_user())
    _, errors = process.communicate(timeout=300)
    assert "PostgresError" in errors
    assert "EVALSITE_DATA_DIR" in errors
    assert query(embedded, "SELECT 1") == 1


def test_a_socket_folder_of_another_user_is_rejected(embedded: Embedded) -> None:
    embedded.socket_dir.mkdir()
    os.chown(embedded.socket_dir, ORDINARY_USER, ORDINARY_USER)
    with pytest.raises(PostgresError, match="belongs to someone else"):
        embedded.start()
