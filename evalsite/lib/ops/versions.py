"""The version of the running code, and a check that the database has the matching migrations."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Set
from functools import cache
from pathlib import Path
from pkgutil import iter_modules

from django.apps import apps
from django.conf import settings
from django.db import ProgrammingError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.recorder import MigrationRecorder

from evalsite import __version__
from evalsite.lib.ops.environment import build_child_environment
from evalsite.lib.ops.installation import COMMIT_FILE, ROOT

PACKAGES = ("datasets_app", "evalsite", "grading_app", "runs_app")
APPS_WITH_MIGRATIONS = ("lib", "datasets_app", "runs_app", "grading_app")
REMEDY = "Bring this machine's code and the database to the same version."
# The migrations were rewritten twice before the first release. Every older database has applied one of these.
MIGRATIONS_BEFORE_RESTART = frozenset({("datasets_app", "0002_freeze"), ("grading_app", "0004_cached_aggregates")})
NEW_DATABASE = (
    "To keep its results, run `manage.py snapshot` or `manage.py export` with the version that created it. Then start"
    " with a new database: set EVALSITE_DATA_DIR to an empty folder, or DATABASE_URL to an empty database."
)
RESTART_MESSAGE = (
    "This database was created by an unreleased version of Evalsite, before the migrations were restarted. This version"
    f" cannot upgrade it, and nothing was changed. {NEW_DATABASE}"
)
COLUMNS = """
SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
WHERE c.relnamespace = current_schema()::text::regnamespace AND c.relkind IN ('r', 'p')
    AND a.attnum > 0 AND NOT a.attisdropped
"""


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
    """Raise SchemaMismatch if this code cannot migrate the database. An empty database passes.

    The database may have been made before the migrations were restarted, or by newer code.
    """
    applied = MigrationRecorder(database).applied_migrations().keys()
    if MIGRATIONS_BEFORE_RESTART & applied:
        raise SchemaMismatch(RESTART_MESSAGE)
    _refuse_newer({f"{app}.{name}" for app, name in applied if app in APPS_WITH_MIGRATIONS})


def check_schema() -> None:
    """Raise SchemaMismatch unless the database has exactly the migrations of this code. Run one query."""
    rows = MigrationRecorder.Migration.objects.using(connection.alias).filter(app__in=APPS_WITH_MIGRATIONS)
    try:
        applied_rows = set(rows.values_list("app", "name"))
    except ProgrammingError:  # There is no table of migrations.
        applied_rows = set()
    if not applied_rows:
        raise SchemaMismatch(
            f"The database {_describe_database()} has no tables of Evalsite yet. Run manage.py migrate, or start the"
            " site with manage.py up. If you expected a site here, check EVALSITE_DATA_DIR and DATABASE_URL."
        )
    if MIGRATIONS_BEFORE_RESTART & applied_rows:
        raise SchemaMismatch(RESTART_MESSAGE)
    applied = {f"{app}.{name}" for app, name in applied_rows}
    _refuse_newer(applied)
    if missing := sorted(list_migrations() - applied):
        raise SchemaMismatch(
            f"The database lacks the migration {missing[-1]} of this code ({get_version()})."
            f" {REMEDY} The database is older: run manage.py migrate."
        )


def _refuse_newer(applied: Set[str]) -> None:
    if newer := sorted(applied - list_migrations()):
        raise SchemaMismatch(
            f"The database has the migration {newer[-1]}, which this code ({get_version()}) does not have."
            f" {REMEDY} The code is older: install the newer version and start again."
        )


def check_columns(database: BaseDatabaseWrapper) -> None:
    """Raise SchemaMismatch unless the tables have exactly the columns of this code's models. Run one query.

    Before the first release, migrations change in place. A database of earlier code then has the same migrations, and
    other columns.
    """
    with database.cursor() as cursor:
        cursor.execute(COLUMNS)
        existing = set(cursor.fetchall())
    models = [
        model
        for label in APPS_WITH_MIGRATIONS
        for model in apps.get_app_config(label).get_models(include_auto_created=True)
        if model._meta.managed and not model._meta.proxy
    ]
    tables = {model._meta.db_table for model in models}
    expected = {(model._meta.db_table, field.column) for model in models for field in model._meta.local_concrete_fields}
    differing = sorted(expected ^ {(table, column) for table, column in existing if table in tables})
    if differing:
        table, column = differing[0]
        relation = "lacks" if (table, column) in expected else "has the unknown"
        raise SchemaMismatch(
            f"This database was created by another unreleased version of Evalsite: its table {table} {relation} column"
            f" {column}. This version cannot upgrade it. {NEW_DATABASE}"
        )


def _describe_database() -> str:
    if not os.environ.get("DATABASE_URL"):
        return f"in {settings.DATA_DIR / 'postgres'}"
    return f"{connection.settings_dict['NAME']} on {connection.settings_dict['HOST'] or 'this machine'}"
