"""The database's triggers and views equal those declared in each app's triggers.sql, by name, condition and body."""

import re

import pytest
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction

from evalsite.lib import migration_operations
from evalsite.lib.migration_operations import (
    InstallTriggers,
    read_declarations,
    read_declared_version,
    read_installed_versions,
)

APPS = ["lib", "datasets_app", "runs_app", "grading_app"]
TRIGGERS = """
SELECT tgname, tgrelid::regclass::text, pg_get_triggerdef(oid), tgenabled, tgfoid::regproc::text
FROM pg_trigger WHERE NOT tgisinternal
"""
FUNCTIONS = """
SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
"""
VIEWS = "SELECT viewname, definition FROM pg_views WHERE schemaname = current_schema()"

pytestmark = pytest.mark.django_db


def query(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def execute(sql):
    with connection.cursor() as cursor:
        cursor.execute(sql)


def read_database():
    """Return the definition of each trigger, function and view of the database, by its name."""
    triggers_found = {name: (table, definition, enabled) for name, table, definition, enabled, _ in query(TRIGGERS)}
    return triggers_found | {f"{name}()": definition for name, definition in query(FUNCTIONS)} | dict(query(VIEWS))


def read_declared():
    """Return what a database without any trigger or function contains after all declarations were executed."""
    with transaction.atomic():
        for name, table, *_ in query(TRIGGERS):
            execute(f'DROP TRIGGER "{name}" ON {table}')
        for (signature,) in query(
            "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = current_schema()::regnamespace"
        ):
            execute(f"DROP FUNCTION {signature} CASCADE")
        for name, _ in query(VIEWS):
            execute(f"DROP VIEW IF EXISTS {name} CASCADE")
        assert read_database() == {}
        for app in APPS:
            execute(read_declarations(app))
        declared = read_database()
        transaction.set_rollback(True)
    return declared


def find_differences():
    database, declared = read_database(), read_declared()
    return sorted(name for name in database.keys() | declared.keys() if database.get(name) != declared.get(name))


def find_badly_named():
    """Return the triggers whose name does not begin with their table, and functions named for neither table nor app."""
    triggers_, functions = query(TRIGGERS), query(FUNCTIONS)
    wrong = [name for name, table, *_ in triggers_ if not re.fullmatch(rf"{table}_[a-z_]+", name)]
    users = {}
    for name, *_, function in triggers_:
        users.setdefault(function, set()).add(name)
    tables = {table for _, table, *_ in triggers_}
    for name, _ in functions:
        of_one_table = any(name.startswith(f"{table}_") for table in tables)
        if of_one_table and users.get(name) != {name}:
            wrong.append(f"{name}()")
        if not name.startswith(("evalsite_", "datasets_app_", "runs_app_", "grading_app_")):
            wrong.append(f"{name}()")
    return wrong


def test_the_database_has_the_declared_triggers_and_functions_and_no_others():
    assert find_differences() == []
    assert len(query(TRIGGERS)) > 60


def test_an_undeclared_trigger_is_found():
    execute(
        "CREATE TRIGGER runs_app_worker_no_update BEFORE UPDATE ON runs_app_worker"
        " FOR EACH ROW EXECUTE FUNCTION evalsite_refuse_change('rule', 'remedy')"
    )
    assert find_differences() == ["runs_app_worker_no_update"]


def test_a_missing_trigger_is_found():
    execute("DROP TRIGGER runs_app_attempt_no_update ON runs_app_attempt")
    assert find_differences() == ["runs_app_attempt_no_update"]


def test_a_disabled_trigger_is_found():
    execute("ALTER TABLE runs_app_attempt DISABLE TRIGGER runs_app_attempt_no_update")
    assert find_differences() == ["runs_app_attempt_no_update"]


def test_a_changed_condition_is_found():
    execute(
        "CREATE OR REPLACE TRIGGER runs_app_prompt_frozen BEFORE UPDATE ON runs_app_prompt"
        " FOR EACH ROW WHEN (OLD.status = 'archived') EXECUTE FUNCTION evalsite_refuse_frozen()"
    )
    assert find_differences() == ["runs_app_prompt_frozen"]


def test_a_changed_function_is_found():
    execute(
        "CREATE OR REPLACE FUNCTION runs_app_attempt_no_update() RETURNS trigger LANGUAGE plpgsql"
        " AS $$ BEGIN RETURN NEW; END $$"
    )
    assert find_differences() == ["runs_app_attempt_no_update()"]


def test_a_changed_view_is_found():
    execute(
        "CREATE OR REPLACE VIEW runs_app_answer AS "
        + dict(query(VIEWS))["runs_app_answer"].replace("generate", "judge")
    )
    assert find_differences() == ["runs_app_answer"]


def test_every_view_has_an_unmanaged_model_with_columns_of_the_view():
    views = {model._meta.db_table: model for model in apps.get_models() if not model._meta.managed}
    assert views.keys() == dict(query(VIEWS)).keys() == {"runs_app_answer", "grading_app_answerscore"}
    for model in views.values():
        assert list(model._default_manager.values_list(*[field.attname for field in model._meta.concrete_fields])) == []


def test_every_trigger_is_named_for_its_table_and_its_rule_and_its_own_function_has_its_name():
    assert find_badly_named() == []


@pytest.mark.parametrize("name", ["frozen", "runs_app_attempt_no_update", "runs_app_worker"])
def test_a_trigger_named_without_its_table_or_rule_is_found(name):
    execute(
        f"CREATE TRIGGER {name} BEFORE UPDATE ON runs_app_worker"
        " FOR EACH ROW EXECUTE FUNCTION evalsite_refuse_change('rule', 'remedy')"
    )
    assert name in find_badly_named()


@pytest.mark.parametrize("app", APPS)
def test_each_app_declares_the_triggers_of_its_own_tables_once_and_describes_every_function(app):
    sql = read_declarations(app)
    tables = re.findall(r"^CREATE TRIGGER [^;]*?\sON (\w+)", sql, re.MULTILINE)
    assert len(tables) == sql.count("CREATE TRIGGER")
    assert all(table.startswith(f"{app}_") for table in tables)
    for what in ("FUNCTION", "TRIGGER"):
        names = re.findall(rf"^CREATE (?:OR REPLACE )?{what} (\w+)", sql, re.MULTILINE)
        assert len(names) == len(set(names))
    blocks = sql.split("\n\n")
    assert [block for block in blocks if block.startswith("CREATE OR REPLACE FUNCTION")] == []


@pytest.mark.parametrize("app", APPS)
def test_the_last_migration_that_installs_triggers_installs_the_present_file(app):
    assert read_installed_versions(app)[-1] == read_declared_version(app)


def test_a_file_that_no_migration_installs_is_refused_with_the_line_to_add(monkeypatch):
    changed = read_declarations("runs_app") + "-- changed\n"
    monkeypatch.setattr(migration_operations, "read_declarations", lambda app: changed)
    operation = InstallTriggers("runs_app", read_installed_versions("runs_app")[-1])
    caught = pytest.raises(ImproperlyConfigured, match="runs_app has changed")
    with connection.schema_editor() as editor, caught as error:
        operation.database_forwards("runs_app", editor, None, None)
    assert f'InstallTriggers("runs_app", "{read_declared_version("runs_app")}")' in str(error.value)


def test_a_later_migration_replaces_the_triggers_and_an_earlier_one_waits_for_it(monkeypatch):
    first = read_installed_versions("runs_app")[-1]
    changed = (
        "CREATE TRIGGER runs_app_worker_no_update BEFORE UPDATE ON runs_app_worker"
        " FOR EACH ROW EXECUTE FUNCTION evalsite_refuse_change('rule', 'remedy');"
    )
    monkeypatch.setattr(migration_operations, "read_declarations", lambda app: changed)
    second = read_declared_version("runs_app")
    monkeypatch.setattr(migration_operations, "read_installed_versions", lambda app: [first, second])
    before = read_database()
    with connection.schema_editor() as editor:
        InstallTriggers("runs_app", first).database_forwards("runs_app", editor, None, None)
        assert read_database() == before
        InstallTriggers("runs_app", second).database_forwards("runs_app", editor, None, None)
    triggers_found = query(TRIGGERS)
    assert [name for name, table, *_ in triggers_found if table.startswith("runs_app_")] == [
        "runs_app_worker_no_update"
    ]
    assert {name for name, table, *_ in triggers_found if not table.startswith("runs_app_")} < before.keys()
