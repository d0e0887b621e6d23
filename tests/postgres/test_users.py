"""Root and others. PostgreSQL refuses root, so its programs then run as someone else."""

import os
import pwd
import shutil
import stat
import sys
from pathlib import Path

import pytest

from evalsite.lib import postgres
from evalsite.lib.postgres import Embedded, PostgresError
from tests.postgres.conftest import HOLD, ROOT, USE, Spawn, leaves_nothing, line_of, postmaster, query

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can run as several users"),
]
SOMEONE = pwd.getpwnam("daemon").pw_uid  # initdb refuses a user without a name


def owner_of(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


@pytest.fixture
def own_folder(place: Path) -> Path:
    """A folder of an ordinary user, who must be able to reach this code and its Python."""
    for needed in (ROOT / "manage.py", Path(sys.executable).resolve()):
        if not all(folder.stat().st_mode & stat.S_IXOTH for folder in needed.parents):
            pytest.skip(f"other users cannot reach {needed}")
    folder = place / "home"
    folder.mkdir()
    os.chown(folder, SOMEONE, SOMEONE)
    folder.chmod(0o700)
    return folder


def as_someone() -> dict[str, object]:
    return {"user": SOMEONE, "group": SOMEONE, "extra_groups": []}


def test_root_runs_it_as_nobody(fresh: Embedded) -> None:
    fresh.start()
    nobody = pwd.getpwnam("nobody").pw_uid
    assert owner_of(postmaster(fresh)) == nobody
    assert (fresh.data_dir / "data").stat().st_uid == nobody
    assert (fresh.data_dir / "gate.lock").stat().st_uid == 0


def test_a_strict_umask_of_root_is_no_hindrance(place: Path) -> None:
    before = os.umask(0o077)
    try:
        embedded = Embedded(place / "var" / "postgres")
        embedded.start()
        assert query(embedded, "SELECT 1") == 1
    finally:
        os.umask(before)


def test_a_folder_closed_to_that_user_is_named_with_a_remedy(place: Path) -> None:
    closed = place / "closed home"
    closed.mkdir(mode=0o700)
    with pytest.raises(PostgresError, match=r"nobody .*cannot enter .*/closed home\..*EVALSITE_DATA_DIR"):
        Embedded(closed / "var" / "postgres").start()
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def test_programs_closed_to_that_user_are_copied(
    embedded: Embedded, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = postgres._wheel_programs()
    assert wheel
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    package = wheel.parents[1]
    for folder in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(folder, closed / folder.name, ignore=shutil.ignore_patterns("pginstall", "include", "share"))
    shutil.copytree(wheel.parent / "share", closed / package.name / "pginstall18" / "share")
    monkeypatch.setattr(postgres, "_wheel_programs", lambda: closed / package.name / "pginstall18" / "bin")
    embedded.start()
    assert Path(f"/proc/{postmaster(embedded)}/exe").readlink().is_relative_to(embedded.data_dir)
    assert query(embedded, "SELECT 1") == 1


def test_an_ordinary_user_runs_it_as_oneself(own_folder: Path, spawn: Spawn) -> None:
    holder = spawn(HOLD, own_folder / "postgres", **as_someone())
    assert line_of(holder) == "in"
    embedded = Embedded(own_folder / "postgres")
    assert owner_of(postmaster(embedded)) == SOMEONE
    assert holder.communicate(timeout=60) == ("", "")
    assert leaves_nothing(embedded)


def test_root_goes_on_as_the_owner_of_an_existing_cluster(own_folder: Path, spawn: Spawn) -> None:
    own = spawn(USE + "e.start(); e.stop()", own_folder / "postgres", **as_someone())
    assert own.communicate(timeout=60) == ("", "")
    embedded = Embedded(own_folder / "postgres")
    embedded.start()
    assert owner_of(postmaster(embedded)) == SOMEONE
    embedded.stop()
    own_again = spawn(USE + "e.start(); e.stop()", own_folder / "postgres", **as_someone())
    assert own_again.communicate(timeout=60) == ("", "")


def test_the_folder_of_another_user_is_refused_with_a_remedy(
    embedded: Embedded, own_folder: Path, spawn: Spawn
) -> None:
    embedded.start()
    other = spawn(USE + "e.start()", embedded.data_dir, **as_someone())
    _, errors = other.communicate(timeout=60)
    assert "PostgresError" in errors
    assert "EVALSITE_DATA_DIR" in errors
    assert query(embedded, "SELECT 1") == 1


def test_a_socket_folder_planted_by_someone_else_is_refused(embedded: Embedded) -> None:
    embedded.socket_dir.mkdir()
    os.chown(embedded.socket_dir, SOMEONE, SOMEONE)
    with pytest.raises(PostgresError, match="belongs to someone else"):
        embedded.start()
