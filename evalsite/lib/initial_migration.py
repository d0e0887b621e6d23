"""The base class of migrations that create the models of an app."""

from __future__ import annotations

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations import CreateModel, Migration
from django.db.migrations.state import ProjectState


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
