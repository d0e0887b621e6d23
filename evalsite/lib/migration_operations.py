"""Operations and base classes of migrations: triggers, and the creation of the models of an app.

Each app declares its triggers in `triggers.sql`, and a migration installs the file.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations import CreateModel, Migration
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

TRIGGERS_OF_APP = """
SELECT quote_ident(t.tgname), quote_ident(c.relname) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE NOT t.tgisinternal AND c.relnamespace = current_schema()::regnamespace AND starts_with(c.relname, %s)
"""


def read_declarations(app_label: str) -> str:
    """Return the SQL that declares the triggers of this app."""
    return (Path(apps.get_app_config(app_label).path) / "triggers.sql").read_text(encoding="utf-8")


def read_declared_version(app_label: str) -> str:
    """Return twelve digits of a hash over the app's declarations."""
    return hashlib.sha256(read_declarations(app_label).encode()).hexdigest()[:12]


class InstallTriggers(Operation):
    """Replace all triggers of an app's tables by those that its `triggers.sql` declares.

    `version` is the version of the file that the migration was written for. The operation does nothing if the file has
    changed since: a later migration then installs it, with the columns that the present triggers need.
    """

    reversible = True

    def __init__(self, app_label: str, version: str) -> None:
        self.app_label, self.version = app_label, version

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Do nothing: the state of the models has no triggers."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        check_version(self.app_label)
        if self.version == read_declared_version(self.app_label):
            install_triggers(schema_editor, self.app_label)

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Do nothing: the former file does not exist any more. A table that is dropped takes its triggers with it."""

    def describe(self) -> str:
        return f"Install the triggers of {self.app_label}"


def check_version(app_label: str) -> None:
    """Raise ImproperlyConfigured unless the app's last installation of triggers is of the present `triggers.sql`."""
    version = read_declared_version(app_label)
    if read_installed_versions(app_label)[-1:] != [version]:
        raise ImproperlyConfigured(
            f"triggers.sql of {app_label} has changed, and no migration installs it. Add a migration with the operation"
            f' InstallTriggers("{app_label}", "{version}").'
        )


def read_installed_versions(app_label: str) -> list[str]:
    """Return the versions that the app's migrations install, in the order of the migrations."""
    migrations = MigrationLoader(None).disk_migrations
    operations = [operation for key in sorted(migrations) for operation in migrations[key].operations]
    return [op.version for op in operations if isinstance(op, InstallTriggers) and op.app_label == app_label]


def install_triggers(schema_editor: Any, app_label: str) -> None:
    """Drop the triggers of this app's tables and execute its `triggers.sql`."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(TRIGGERS_OF_APP, [f"{app_label}_"])
        existing = cursor.fetchall()
    for name, table in existing:
        schema_editor.execute(f"DROP TRIGGER {name} ON {table}")
    schema_editor.execute(read_declarations(app_label), params=None)


class ModelCreation(Migration):
    """A migration that builds the historical models once, after all of its operations.

    Django builds a new model, and all models that are related to it, at each operation. For sixty related models this
    takes most of the time of a first start. The operations may only create models.
    """

    def apply(
        self, project_state: ProjectState, schema_editor: BaseDatabaseSchemaEditor, collect_sql: bool = False
    ) -> ProjectState:
        if collect_sql or not all(type(operation) is CreateModel for operation in self.operations):
            return super().apply(project_state, schema_editor, collect_sql)
        vars(project_state).pop("apps", None)  # The models built so far. `apps` builds all models at its next use.
        before = project_state.clone()
        for operation in self.operations:
            operation.state_forwards(self.app_label, project_state)
        for operation in self.operations:
            operation.database_forwards(self.app_label, schema_editor, before, project_state)
        return project_state
