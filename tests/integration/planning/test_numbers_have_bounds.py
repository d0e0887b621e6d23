"""Bounds of all numbers in a design: file, form and database refuse the same values."""

import json
from decimal import Decimal
from math import inf, nan
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import DatabaseError, connection, transaction
from django.db.models import DecimalField

from runs_app.bounds import ADAPTIVE, BOUNDS
from runs_app.experiment_files.spec_reader import SpecError, read_yaml
from runs_app.forms.adaptive import AdaptiveForm
from runs_app.models import Dimension, Endpoint, Experiment, LanguageModel, Run, Sampler
from tests import factories
from tests.shared_rows import shared_rows

TABLES: dict[str, Any] = {
    "experiment": Experiment,
    "run": Run,
    "sampler": Sampler,
    "dimension": Dimension,
    "endpoint": Endpoint,
    "languagemodel": LanguageModel,
}
COLUMNS = [(table, column) for table, bounds in BOUNDS.items() for column in bounds]
BUDGET = ("max_usd", "confirm_above_usd", "dev_items", "dev_samples")
DESIGN = {"experiment": "pilot", "dataset": "questions", "models": ["small"], "prompts": ["plain"]}
ADAPTIVE_DESIGN = {"by": "category", "scorer": "exact", "targetci": 0.1}


def list_values_outside(bound):
    """Return numbers beyond both ends of the range, NaN and infinities."""
    return [bound.low - 1, bound.high + 1, nan, inf, -inf]


def read_problem(**changes):
    with pytest.raises(SpecError) as caught:
        read_yaml(yaml.safe_dump(DESIGN | changes))
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize("name", sorted(set(BOUNDS["experiment"]) - set(BUDGET)))
def test_a_setting_out_of_range_in_a_file_is_refused_with_key_and_range(name):
    bound = BOUNDS["experiment"][name]
    for number in list_values_outside(bound):
        assert read_problem(**{name: number}) == f"{name}: must be {bound}"


@pytest.mark.parametrize("name", BUDGET)
def test_a_budget_out_of_range_is_refused_with_key_and_range(name):
    bound = BOUNDS["experiment"][name]
    for number in list_values_outside(bound):
        assert read_problem(budget={name: number}) == f"budget.{name}: must be {bound}"


@pytest.mark.parametrize("name", BOUNDS["sampler"])
def test_a_sampler_setting_out_of_range_is_refused_with_key_and_range(name):
    bound = BOUNDS["sampler"][name]
    for number in list_values_outside(bound):
        assert read_problem(samplers=[{"name": "s", name: number}]) == f"samplers[0].{name}: must be {bound}"


@pytest.mark.parametrize("name", ADAPTIVE)
def test_an_adaptive_setting_out_of_range_is_refused_with_key_and_range(name):
    bound = ADAPTIVE[name]
    for number in list_values_outside(bound):
        assert f"adaptive.{name}: must be {bound}" in read_problem(adaptive=ADAPTIVE_DESIGN | {name: number})


@pytest.mark.parametrize("name", ADAPTIVE)
def test_the_form_has_the_same_ranges_for_adaptive_settings(name):
    bound = ADAPTIVE[name]
    for number in (bound.low - 1, bound.high + 1):
        form_data = {f"adaptive-{key}": str(value) for key, value in (ADAPTIVE_DESIGN | {name: number}).items()}
        form = AdaptiveForm(form_data, stored={}, scorers=[("exact", "Exact match")])
        assert f"Must be {bound}." in form.errors[name]


def test_a_number_with_thousands_of_digits_is_refused_like_any_other():
    assert read_problem(samples=10**400) == "samples: must be between 1 and 10,000"


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_the_error_of_a_model_field_names_the_range(table, column):
    bound, field = BOUNDS[table][column], TABLES[table]._meta.get_field(column)
    as_stored = Decimal if isinstance(field, DecimalField) else lambda number: number
    for number in map(as_stored, list_values_outside(bound)):
        with pytest.raises(ValidationError) as caught:
            field.run_validators(number)
        assert f"Must be {bound}." in caught.value.messages
    field.run_validators(as_stored(bound.low))
    field.run_validators(as_stored(bound.high))


@pytest.mark.parametrize("table", ["sampler", "dimension"])
def test_the_documented_ranges_match_the_code(table):
    text = (settings.BASE_DIR / "docs" / "experiment-file.md").read_text(encoding="utf-8")
    for column, bound in BOUNDS[table].items():
        values = str(bound).removeprefix("between ").replace(" and ", " to ")
        assert f"| `{column}` | {values}" in text


@shared_rows
def rows():
    """One row of each table with bounds."""
    experiment = factories.make_experiment(dimensions=[factories.make_dimension()])
    factories.make_runs(experiment, status="planned")
    return {table: kind.objects.first() for table, kind in TABLES.items()}


def try_to_write(table, pk, assignment, value):
    """Return "written", or the constraint or SQLSTATE with which the database refuses this value."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL session_replication_role = replica")  # Skip triggers that freeze rows.
            cursor.execute(f"UPDATE runs_app_{table} SET {assignment} WHERE id = %s", [value, pk])
    except DatabaseError as error:
        return str(error.__cause__.diag.constraint_name or error.__cause__.sqlstate)
    return "written"


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_the_database_refuses_values_out_of_range(rows, table, column):
    bound, constraint = BOUNDS[table][column], f"{table}_{column}_in_range"
    cast = TABLES[table]._meta.get_field(column).db_type(connection).split()[0].split("(")[0]
    cast = "double precision" if cast == "double" else cast
    refusals = {
        constraint,
        "dimension_scale_has_two_points",
        "22003",
        f"runs_app_{table}_{column}_check",
    }  # 22003: out of range of the column type.
    for number in (
        list_values_outside(bound) if cast in ("double precision", "numeric") else (bound.low - 1, bound.high + 1)
    ):
        assert try_to_write(table, rows[table].pk, f"{column} = %s::{cast}", str(number)) in refusals, number
    if column not in ("scale_min", "scale_max"):
        assert try_to_write(table, rows[table].pk, f"{column} = %s::{cast}", str(bound.low)) == "written"
        assert try_to_write(table, rows[table].pk, f"{column} = %s::{cast}", str(bound.high)) == "written"


@pytest.mark.parametrize("name", ADAPTIVE)
def test_the_database_refuses_adaptive_settings_out_of_range(rows, name):
    for number in (ADAPTIVE[name].low - 1, ADAPTIVE[name].high + 1, "many"):
        stored = json.dumps(ADAPTIVE_DESIGN | {name: number})
        assert try_to_write("experiment", rows["experiment"].pk, "adaptive = %s::jsonb", stored) == (
            "experiment_adaptive_in_range"
        )
    assert try_to_write("experiment", rows["experiment"].pk, "adaptive = %s::jsonb", json.dumps(ADAPTIVE_DESIGN)) == (
        "written"
    )
