"""A command on a database without tables, or with those of other code, ends with a sentence and a remedy."""

import shlex
import subprocess
import sys

import pytest
from django.core.management import get_commands

from evalsite.lib.ops.postgres import Embedded
from tests.prepared_database import build_environment, copy_folder
from tests.system.postgres.conftest import ROOT, open_folder, query
from tests.system.up.conftest import free_port

pytestmark = pytest.mark.processes

PROFILE = ROOT / "samples" / "reasoning-skills.json"
COMMANDS = [
    "analyse pilot",
    "bundle design pilot --out bundle.zip",
    "createsuperuser --noinput --username someone --email someone@lab.example",
    "dataset list",
    "dimension list",
    "drain --until-idle",
    "endpoint list",
    "experiment list",
    "export pilot --out trials.csv",
    "figures pilot --out figures.pdf",
    "grade pilot --scorer numeric",
    "grader list",
    "import_snapshot snapshot.zip",
    "import_study study.zip",
    "item_rubric list",
    "model list",
    "prompt list",
    "raw_responses remove --days 90 --dry-run",
    "reconcile",
    "report pilot --out pilot.html",
    "response_cache show",
    "rubric list",
    "sampler list",
    "sign_in_link someone",
    f"skill_surface {shlex.quote(str(PROFILE))} --experiment pilot",
    "snapshot pilot --out snapshot.zip",
    "status",
    "surface pilot",
    "sweep_stale_claims",
    "unlock --all",
]
NEED_NO_TABLES = {
    "backup": "copies the database as it is",
    "demo": "creates the tables, as `up` does",
    "migrate": "creates the tables",
    "qcluster": "is a process of `up`, which creates the tables first",
    "restore": "replaces the database",
    "simulate_provider": "uses no database",
    "up": "creates the tables",
    "verify_snapshot": "reads a file",
}
NEWER_CODE = "INSERT INTO django_migrations (app, name, applied) VALUES ('runs_app', '0099_of_newer_code', now())"
OTHER_COLUMNS = "ALTER TABLE runs_app_worker ADD COLUMN of_earlier_code integer; ALTER TABLE runs_app_run DROP n_failed"


def run_command(line, place):
    return subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), *shlex.split(line)],
        env=build_environment(place),
        cwd=place,
        capture_output=True,
        text=True,
        timeout=300,
    )


def assert_refused(process, words):
    assert process.returncode == 2, process.stderr
    assert words in process.stderr
    assert "Traceback" not in process.stderr
    assert "psycopg" not in process.stderr


@pytest.fixture(scope="module")
def empty_database():
    """A folder with a new database, whose server runs."""
    with open_folder() as folder, Embedded(folder / "data" / "postgres").running():
        yield folder


@pytest.mark.parametrize("line", COMMANDS, ids=lambda line: line.split()[0])
def test_a_command_names_the_empty_database_and_the_command_that_fills_it(empty_database, line):
    process = run_command(line, empty_database)
    assert_refused(process, f"The database in {empty_database}/data/postgres has no tables of Evalsite yet.")
    assert "Run manage.py migrate, or start the site with manage.py up" in process.stderr


def test_every_command_of_this_project_is_tried_or_needs_no_tables():
    own_apps = ("evalsite", "datasets_app", "runs_app", "grading_app")
    own = {name for name, app in get_commands().items() if str(app).startswith(own_apps)}
    tried = {line.split()[0] for line in COMMANDS} - {"createsuperuser"}
    assert own == tried | set(NEED_NO_TABLES)
    assert not tried & set(NEED_NO_TABLES)


@pytest.fixture
def changed_database(prepared):
    """Return a function that changes a migrated database with a statement. Its server runs until the test ends."""
    with open_folder() as folder:
        (folder / "data").mkdir(mode=0o755)
        embedded = Embedded(copy_folder(prepared / "postgres", folder / "data" / "postgres"))
        with embedded.running():
            yield folder, lambda statement: query(embedded, statement)


@pytest.mark.parametrize("line", ["up --port {port}", "migrate", "demo --no-serve", "drain --until-idle"])
def test_code_older_than_the_database_is_refused_with_the_migration(changed_database, line):
    place, change = changed_database
    change(NEWER_CODE)
    process = run_command(line.format(port=free_port()), place)
    assert_refused(process, "The database has the migration runs_app.0099_of_newer_code, which this code")
    assert "The code is older: install the newer version" in process.stderr
    assert "Evalsite is at" not in process.stdout


@pytest.mark.parametrize("line", ["up --port {port}", "migrate", "demo --no-serve", "status"])
def test_tables_of_another_unreleased_version_are_refused_with_a_remedy(changed_database, line):
    place, change = changed_database
    change(OTHER_COLUMNS)
    process = run_command(line.format(port=free_port()), place)
    assert_refused(process, "This database was created by another unreleased version of Evalsite: its table runs_app_")
    assert "set EVALSITE_DATA_DIR to an empty folder, or DATABASE_URL to an empty database" in process.stderr
