"""Columns with choices: the database refuses every other value."""

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, transaction

from evalsite.lib.constraints import build_constraint_name, list_choice_fields
from tests import factories

pytestmark = pytest.mark.django_db

OURS = ("datasets_app", "runs_app", "grading_app")
CHOSEN = [
    (model, field)
    for app in OURS
    for model in apps.get_app_config(app).get_models(include_auto_created=True)
    for field in list_choice_fields(model)
]


def read_checks(table):
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE contype = 'c' AND convalidated AND conrelid = %s::regclass",
            [table],
        )
        return dict(cursor.fetchall())


def test_columns_with_choices_exist():
    assert len(CHOSEN) >= 27


@pytest.mark.parametrize(("model", "field"), CHOSEN, ids=lambda part: getattr(part, "__name__", None) or part.name)
def test_every_column_with_choices_has_a_check_constraint_with_all_choices(model, field):
    check = read_checks(model._meta.db_table).get(build_constraint_name(model, field))
    assert check, f"{model.__name__} needs @constrain_choices and a migration"
    for value, _ in field.flatchoices:
        assert f"'{value}'" in check


@pytest.mark.parametrize(
    "change",
    [
        "runs_app_experiment SET status = 'lost'",
        "runs_app_experiment SET sharing = 'everybody'",
        "runs_app_run SET status = ''",
        "runs_app_trial SET status = 'Done'",
        "datasets_app_dataset SET status = 'unknown'",
    ],
)
def test_bare_sql_cannot_set_an_unknown_status(change):
    factories.plan_trials(factories.make_runs(factories.make_experiment())[0])
    with pytest.raises(IntegrityError, match="_choices"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE {change}")
