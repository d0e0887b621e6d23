"""The version of the running code, and a check that the database has the matching migrations."""

from __future__ import annotations

import hashlib
import subprocess
from functools import cache
from pathlib import Path
from pkgutil import iter_modules

from django.apps import apps
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.recorder import MigrationRecorder

from evalsite import __version__
from evalsite.lib.ops.child_environment import build_child_environment
from evalsite.lib.ops.installation import COMMIT_FILE, ROOT

PACKAGES = ("datasets_app", "evalsite", "grading_app", "runs_app")
APPS_WITH_MIGRATIONS = ("lib", "datasets_app", "runs_app", "grading_app")
REMEDY = "Bring this machine's code and the database to the same version."
# The migrations were rewritten twice before the first release. Every older database has applied one of these.
MIGRATIONS_BEFORE_RESTART = frozenset({("datasets_app", "0002_freeze"), ("grading_app", "0004_cached_aggregates")})
RESTART_MESSAGE = (
    "This database was created by an unreleased version of Evalsite, before the migrations were restarted. This version"
    " cannot upgrade it, and nothing was changed. To keep its results, run `manage.py snapshot` or `manage.py export`"
    " with the version that created it. Then start with a new database: set EVALSITE_DATA_DIR to an empty folder, or"
    " DATABASE_URL to an empty database."
)


class SchemaMismatch(Exception):
    """A difference between the database's migrations and the code's. The message names one migration and the remedy."""


@cache
def get_version() -> str:
    """Return the release and ten digits of a hash over all Python files.

    The result is cached: a process keeps running the code that it started with.
    """
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return f"{__version__}+{digest.hexdigest()[:10]}"


@cache
def get_commit() -> str:
    """Return the commit that the build recorded, or the commit of the checkout; "" if both are unknown.

    The first result is cached.
    """
    if COMMIT_FILE.exists():
        return COMMIT_FILE.read_text(encoding="utf-8").strip()
    if not (ROOT / ".git").exists():
        return ""  # A copy of the code may be inside the repository of another project.
    command = ["git", "-C", str(ROOT), "rev-parse", "--verify", "HEAD"]
    try:
        environment = build_child_environment("HOME")  # git reads safe.directory from the home folder.
        result = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False, env=environment)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""


@cache
def list_migrations() -> frozenset[str]:
    """Return `app.name` for every migration of this code. The first result is cached."""
    folders = {label: Path(apps.get_app_config(label).path) / "migrations" for label in APPS_WITH_MIGRATIONS}
    return frozenset(
        f"{label}.{module.name}" for label, folder in folders.items() for module in iter_modules([str(folder)])
    )


def check_history(database: BaseDatabaseWrapper) -> None:
    """Raise SchemaMismatch if the database was made before the migrations were restarted. An empty database passes."""
    if MIGRATIONS_BEFORE_RESTART & MigrationRecorder(database).applied_migrations().keys():
        raise SchemaMismatch(RESTART_MESSAGE)


def check_schema() -> None:
    """Raise SchemaMismatch unless the database has exactly the migrations of this code. Run one query."""
    rows = MigrationRecorder.Migration.objects.using(connection.alias).filter(app__in=APPS_WITH_MIGRATIONS)
    applied_rows = set(rows.values_list("app", "name"))
    if MIGRATIONS_BEFORE_RESTART & applied_rows:
        raise SchemaMismatch(RESTART_MESSAGE)
    applied = {f"{app}.{name}" for app, name in applied_rows}
    if newer := sorted(applied - list_migrations()):
        raise SchemaMismatch(
            f"The database has the migration {newer[-1]}, which this code ({get_version()}) does not have."
            f" {REMEDY} The code is older: install the newer version and start again."
        )
    if missing := sorted(list_migrations() - applied):
        raise SchemaMismatch(
            f"The database lacks the migration {missing[-1]} of this code ({get_version()})."
            f" {REMEDY} The database is older: run manage.py migrate."
        )
