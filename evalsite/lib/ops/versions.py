"""The version of the running code, and a check that the database has the matching migrations."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from pkgutil import iter_modules

from django.apps import apps
from django.conf import settings
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

RELEASE = "0.1.0"
PACKAGES = ("datasets_app", "evalsite", "grading_app", "runs_app")
MIGRATED = ("datasets_app", "runs_app", "grading_app")
REMEDY = "Bring this machine's code and the database to the same version."


class SchemaMismatch(Exception):
    """A difference between the database's migrations and the code's. The message names one migration and the remedy."""


@cache
def code_version() -> str:
    """Return the release and ten digits of a hash over all Python files.

    The result is cached: a process keeps running the code that it started with.
    """
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((Path(settings.BASE_DIR) / package).rglob("*.py")):
            digest.update(f"{path.relative_to(settings.BASE_DIR)}\0".encode() + path.read_bytes() + b"\0")
    return f"{RELEASE}+{digest.hexdigest()[:10]}"


@cache
def known_migrations() -> frozenset[str]:
    """Return `app.name` for every migration of this code. The first result is cached."""
    folders = {label: Path(apps.get_app_config(label).path) / "migrations" for label in MIGRATED}
    return frozenset(
        f"{label}.{module.name}" for label, folder in folders.items() for module in iter_modules([str(folder)])
    )


def check_schema() -> None:
    """Raise SchemaMismatch unless the database has exactly the migrations of this code. Run one query."""
    rows = MigrationRecorder.Migration.objects.using(connection.alias).filter(app__in=MIGRATED)
    applied = {f"{app}.{name}" for app, name in rows.values_list("app", "name")}
    if newer := sorted(applied - known_migrations()):
        raise SchemaMismatch(
            f"The database has the migration {newer[-1]}, which this code ({code_version()}) does not know."
            f" {REMEDY} It is the code that is older: install the newer one and start again."
        )
    if missing := sorted(known_migrations() - applied):
        raise SchemaMismatch(
            f"The database lacks the migration {missing[-1]} of this code ({code_version()})."
            f" {REMEDY} It is the database that is older: run manage.py migrate."
        )
