"""Every number and time of every table has a range in the database, which excludes NaN and the infinities."""

import re

import pytest
from django.apps import apps
from django.core.exceptions import ValidationError
from django.db import DatabaseError, IntegrityError, connection, models, transaction

from grading_app.models import Rubric
from runs_app.models import Run
from tests import factories
from tests.factories.judges import write_ledger
from tests.factories.tampering import disable_triggers
from tests.shared_rows import shared_rows

OWN_APPS = ("datasets_app", "runs_app", "grading_app")
# Whole numbers that may be negative: keys and seeds, and the entries of a session that corrects another one's calls.
SIGNED = {
    "grading_app_raterassignment.seed",
    "grading_app_storeddisagreement.unit",
    "runs_app_deletedrun.number",
    *(
        f"runs_app_ledgerentry.{name}"
        for name in (
            "attempts", "answered", "reused", "input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens",
            "cache_write_tokens", "unpriced", "empty", "truncated", "refused", "unparsed",
        )
    ),
}  # fmt: skip


def list_numbers():
    for label in OWN_APPS:
        for model in apps.get_app_config(label).get_models(include_auto_created=True):
            for column in model._meta.concrete_fields if model._meta.managed else ():
                kinds = (models.IntegerField, models.FloatField, models.DecimalField, models.DateField)
                if isinstance(column, kinds) and not column.primary_key and not column.is_relation:
                    yield model._meta.db_table, column


NUMBERS = list(list_numbers())


def read_checks(table):
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'c' AND conrelid = %s::regclass",
            [table],
        )
        return " ".join(definition for (definition,) in cursor.fetchall())


def list_limited(checks):
    """Return the columns that are compared with a limit, alone or as the least or the greatest of several columns."""
    checks = checks.replace('"', "")
    alone = set(re.findall(r"\((\w+) (>=|<=) ", checks))
    together = re.findall(r"\((?:LEAST\(([\w, ]+)\) (>=)|GREATEST\(([\w, ]+)\) (<=)) ", checks)
    return alone | {
        (column, at_least or at_most)
        for least, at_least, greatest, at_most in together
        for column in (least or greatest).split(", ")
    }


@pytest.mark.django_db
def test_every_number_and_every_time_has_a_range_in_the_database():
    limited = {table: list_limited(read_checks(table)) for table in {table for table, _ in NUMBERS}}
    unlimited = []
    for table, column in NUMBERS:
        signs = [">="] if isinstance(column, models.IntegerField) else [">=", "<="]
        signs = [] if f"{table}.{column.attname}" in SIGNED else signs
        unlimited += [
            f"{table}.{column.attname} {sign}" for sign in signs if (column.attname, sign) not in limited[table]
        ]
    assert unlimited == [], "decorate the model with @constrain_numbers, and change its migration"


@shared_rows
def trials():
    """Return the trials of a run, with ledger entries."""
    (run,) = factories.make_runs(factories.make_experiment())
    planned = factories.plan_trials(run, answer=lambda *_: "yes")
    write_ledger(run.experiment)
    return planned


@pytest.mark.parametrize("value", ["-1", "NaN", "Infinity", "-Infinity", "1e300"])
@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("runs_app_attempt", "cost_usd"), ("runs_app_attempt", "list_usd"), ("runs_app_attempt", "kept_usd"),
        ("runs_app_trial", "cost_usd"), ("runs_app_experiment", "spent_usd"), ("runs_app_experiment", "reserved_usd"),
        ("runs_app_run", "spent_usd"), ("runs_app_run", "reserve_usd"), ("runs_app_run", "n_pending"),
        ("runs_app_trial", "input_tokens"), ("runs_app_trial", "latency_ms"),
    ],
)  # fmt: skip
def test_the_database_refuses_a_number_outside_its_range(trials, table, column, value):
    with (
        pytest.raises(DatabaseError, match=r"in_range|out of range|overflow|cannot convert"),
        disable_triggers(),
        connection.cursor() as cursor,
    ):
        cursor.execute(f"UPDATE {table} SET {column} = %s::numeric", [value])


@pytest.mark.parametrize("value", ["infinity", "-infinity", "4713-01-01 BC", "1969-12-31", "9999-12-31 23:59:59"])
def test_the_database_refuses_a_time_that_no_page_can_show(trials, value):
    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE runs_app_run SET started_at = %s::timestamptz", [value])


def test_the_error_of_a_form_names_the_field_and_the_range():
    constraint = Rubric._meta.constraints[-1]
    with pytest.raises(ValidationError) as caught:
        constraint.validate(Rubric, Rubric(scale_min=-1e300, scale_max=1))
    assert caught.value.message_dict["scale_min"] == ["Must be between -1,000,000,000,000.0 and 1,000,000,000,000.0."]


def test_the_ranges_are_checked_without_a_database():
    constraint = next(each for each in Run._meta.constraints if each.name == "runs_app_run_numbers_in_range")
    constraint.validate(Run, Run(n_done=3))
    with pytest.raises(ValidationError, match="at least 0"):
        constraint.validate(Run, Run(n_done=-1))
    constraint.validate(Run, Run(n_done=-1), exclude={"n_done"})
