"""The wheel holds the whole program and nothing else, and its command runs from any folder."""

import csv
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from evalsite.lib.ops.versions import get_version
from tests.prepared_database import build_environment
from tests.system.postgres.conftest import ROOT, open_folder
from tests.system.up.conftest import Site, find_processes, wait_until

pytestmark = pytest.mark.processes

PACKAGES = ("datasets_app", "evalsite", "grading_app", "runs_app")
COMMIT_FILE = "evalsite/commit.txt"
DEFAULT_FOLDER = {"EVALSITE_DATA_DIR": ""}
ENVIRONMENT = build_environment(ROOT) | DEFAULT_FOLDER


def run(*command: str | Path, **options) -> str:
    process = subprocess.run(command, capture_output=True, text=True, **options)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def list_git_files(*options: str) -> set[str]:
    return set(run("git", "ls-files", "-z", *options, cwd=ROOT).split("\0")) - {""}


@pytest.fixture(scope="module")
def lab() -> Iterator[Path]:
    """A folder outside the checkout, with a space in its path, that any user can enter."""
    with open_folder() as folder:
        (folder / "my lab").mkdir()
        yield folder / "my lab"


@pytest.fixture(scope="module")
def dist(lab: Path) -> Path:
    """A folder with an sdist and the wheel that was built from it."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", lab / "dist", ROOT)
    return lab / "dist"


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (file,) = dist.glob("evalsite-*-py3-none-any.whl")
    return file


@pytest.fixture(scope="module")
def programs(lab: Path, wheel: Path) -> Path:
    """The folder of the programs of an environment with the wheel. It shares the packages that the wheel requires."""
    run(sys.executable, "-m", "venv", "--without-pip", lab / "venv")
    (packages,) = (lab / "venv").glob("lib/python*/site-packages")
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib"))
    pip = (sys.executable, "-m", "pip", "--python", lab / "venv/bin/python")
    run(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel)
    conflicts = subprocess.run([*pip, "check"], capture_output=True, text=True).stdout
    assert [line for line in conflicts.splitlines() if line.startswith("evalsite ")] == []
    return lab / "venv/bin"


def test_the_wheel_contains_every_file_of_the_program_and_no_other(wheel: Path) -> None:
    files = {path for path in list_git_files("--cached", "--others", "--exclude-standard") if (ROOT / path).exists()}
    program = {path for path in files if path.startswith(tuple(f"{package}/" for package in PACKAGES))}
    shipped = {
        f"evalsite/{path}" for path in files if path.startswith("templates/") or is_sample(path) or is_help(path)
    }
    built = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert built - {COMMIT_FILE} == program | shipped
    assert {"runs_app/triggers.sql", "evalsite/samples/norms.csv", "evalsite/templates/base.html"} <= built


def is_sample(path: str) -> bool:
    return path.startswith("samples/") and not path.endswith(".py")


def is_help(path: str) -> bool:
    return path.startswith("docs/") and not path.startswith(("docs/deploy/", "docs/hooks/", "docs/notebooks/"))


def test_the_wheel_states_its_licences_and_its_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (info,) = {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        names = {name.removeprefix(f"{info}/") for name in archive.namelist()}
        metadata = archive.read(f"{info}/METADATA").decode()
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
    vendored = {str(path.relative_to(ROOT)) for path in (ROOT / "evalsite/static/vendor").glob("*/LICENSE")}
    assert vendored
    assert {f"licenses/{path}" for path in {"LICENSE", *vendored}} <= names
    assert "License-Expression: MIT" in metadata
    assert "evalsite = evalsite.command_line:main" in entry_points


def test_the_sdist_contains_every_tracked_file_and_builds_the_same_wheel(lab: Path, dist: Path, wheel: Path) -> None:
    (sdist,) = dist.glob("evalsite-*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers()}
    tracked, others = list_git_files(), list_git_files("--others", "--exclude-standard")
    assert {path for path in tracked if (ROOT / path).exists()} <= names
    assert names - {"PKG-INFO", COMMIT_FILE} <= tracked | others
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", lab / "direct", ROOT)
    assert (lab / "direct" / wheel.name).read_bytes() == wheel.read_bytes()


def test_the_installed_command_has_the_version_and_the_commit_of_the_checkout(lab: Path, programs: Path) -> None:
    assert run(programs / "evalsite", "--version", cwd=lab, env=ENVIRONMENT).strip() == get_version()
    code = "from evalsite.lib.ops.versions import get_commit; print(get_commit())"
    commit = run(programs / "python", "-c", code, cwd=lab, env=ENVIRONMENT).strip()
    assert commit.removesuffix("-dirty") == run("git", "rev-parse", "HEAD", cwd=ROOT).strip()


@pytest.mark.parametrize("start", [("evalsite",), ("python", "-m", "evalsite")], ids=" ".join)
def test_the_installed_command_returns_the_exit_codes_of_the_command_line(lab: Path, programs: Path, start) -> None:
    command = [programs / start[0], *start[1:], "check"]
    process = subprocess.run(
        command, cwd=lab, env=ENVIRONMENT | {"EVALSITE_MISSPELT": "1"}, capture_output=True, text=True
    )
    assert (process.returncode, "unknown setting EVALSITE_MISSPELT" in process.stderr) == (2, True)


def test_the_installed_command_runs_the_demonstration_and_the_site_from_an_empty_folder(
    lab: Path, programs: Path
) -> None:
    place = lab / "study"
    place.mkdir()
    output = run(programs / "evalsite", "demo", "--no-serve", cwd=place, env=ENVIRONMENT, timeout=900)
    assert "704 done, 0 failed" in output
    assert "$ evalsite experiment launch affect-pilot" in output
    with (place / "var/demo/affect-pilot-trials.csv").open(newline="") as lines:
        statuses = [row["status"] for row in csv.DictReader(lines)]
    assert (len(statuses), set(statuses)) == (384, {"done"})
    assert {path.name for path in place.iterdir()} == {"var"}

    site = Site(place, "--workers=1", program=[str(programs / "evalsite")], **DEFAULT_FOLDER)
    try:
        wait_until(site.is_served)
        styles = re.findall(r'href="(/static/[^"]+\.css)"', site.get("/accounts/login/").decode())
        assert len(styles) > 1
        assert all(map(site.get, styles))
        site.process.kill()  # The watchdog finds the program again, to end the embedded database as its last user.
        site.process.wait()
        wait_until(lambda: not find_processes(place))
    finally:
        site.process.kill()
