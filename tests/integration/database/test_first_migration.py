"""The migration that creates an app's models builds each historical model once, and the tables stay the same."""

import pytest
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ModelState, ProjectState


@pytest.mark.django_db
@pytest.mark.parametrize("app_label", ["datasets_app", "runs_app", "grading_app"])
def test_a_first_migration_builds_each_model_once(app_label, monkeypatch):
    loader = MigrationLoader(connection)
    migration = loader.get_migration(app_label, "0001_initial")
    before = [loader.graph.nodes[key] for key in loader.graph.forwards_plan((app_label, "0001_initial"))[:-1]]
    state = ProjectState()
    for earlier in before:
        earlier.mutate_state(state, preserve=False)
    assert state.apps.get_models()  # Built, as in a run of all migrations.
    built = []
    render = ModelState.render
    monkeypatch.setattr(ModelState, "render", lambda model, apps: built.append(model.name_lower) or render(model, apps))
    with connection.schema_editor(collect_sql=True) as editor:
        after = migration.apply(state, editor)
        tables = [line for line in editor.collected_sql if line.startswith("CREATE TABLE")]
    created = [name for app, name in after.models if app == app_label]
    assert len(tables) >= len(created) > 5
    assert len(built) == len(after.models)
