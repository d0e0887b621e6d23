"""Bounds of numbers as validators of fields and as CHECK constraints of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.utils.deconstruct import deconstructible

from evalsite.lib.bound import Bound
from runs_app.bounds import ADAPTIVE, BOUNDS
from runs_app.experiment_options import get_option


@deconstructible
class InRange:
    """A validator that accepts a finite number within the bound of this table's column."""

    def __init__(self, table: str, column: str) -> None:
        self.table, self.column = table, column

    @property
    def bound(self) -> Bound:
        return BOUNDS[self.table][self.column]

    def __call__(self, value: Any) -> None:
        if not self.bound.contains(value):
            raise ValidationError(f"Must be {self.bound}.", code="out_of_range")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InRange) and (self.table, self.column) == (other.table, other.column)

    __hash__ = None  # type: ignore[assignment]


def describe_column(name: str) -> dict[str, Any]:
    """Return the arguments of the column of an experiment's option: its label, default, range, choices and help."""
    option = get_option(name)
    arguments: dict[str, Any] = {"verbose_name": option.aspect, "help_text": option.help}
    if option.may_be_unset:
        arguments["blank"] = True
    else:
        arguments |= {"default": option.default, "db_default": option.default}
    if option.bound:
        arguments["validators"] = [InRange("experiment", name)]
    if option.longest:
        arguments["max_length"] = option.longest
    if option.choices:
        arguments["choices"] = option.choices
    return arguments


class RangeConstraint(models.CheckConstraint):
    """A CHECK that duplicates a validator or the model's `clean`. Forms therefore need no query to check it."""

    def validate(self, *args: Any, **options: Any) -> None:
        """Do nothing, because a validator has already checked the value and its error names the field."""


class HasOnlyKeys(models.Func):
    """The condition that a JSON column contains an object with no other keys than these."""

    template = (
        "CASE WHEN jsonb_typeof(%(expressions)s) = 'object'"
        " THEN %(expressions)s - ARRAY[%(keys)s] = '{}'::jsonb ELSE false END"
    )
    output_field = models.BooleanField()

    def __init__(self, column: str, *, keys: Sequence[str]) -> None:
        super().__init__(column, keys=", ".join(f"'{key}'" for key in keys))


def build_range_constraints(table: str) -> list[models.BaseConstraint]:
    """Return one CHECK for each bounded column of this table. In PostgreSQL, NaN lies above every number."""
    return [
        RangeConstraint(condition=_build_range_condition(column, bound), name=f"{table}_{column}_in_range")
        for column, bound in BOUNDS[table].items()
    ]


class MembersInRange(models.Func):
    """The condition that each of these members of a JSON column is absent, or a number within its range.

    It is one JSON path, because PostgreSQL parses the CHECK constraints of a table in each statement that writes rows.
    As comparisons, the same condition is three times as long.
    """

    template = "(%(expressions)s @@ '%(path)s') IS TRUE"
    output_field = models.BooleanField()

    def __init__(self, column: str, *, members: Mapping[str, tuple[float, float]]) -> None:
        path = " && ".join(
            f'(!exists($.{name}) || $.{name}.type() == "number" && $.{name} >= {low} && $.{name} <= {high})'
            for name, (low, high) in members.items()
        )
        super().__init__(column, path=path)


def build_adaptive_constraint(table: str, column: str) -> models.CheckConstraint:
    """Return a CHECK for the numbers in an `adaptive` mapping. Missing keys pass."""
    return models.CheckConstraint(
        # In the order of migrations.
        condition=MembersInRange(column, members={k: (ADAPTIVE[k].low, ADAPTIVE[k].high) for k in sorted(ADAPTIVE)}),
        name=f"{table}_{column}_in_range",
        violation_error_message=f"{column} has a number outside its range.",
    )


def _build_range_condition(lookup: str, bound: Bound) -> models.Q:
    limits: Mapping[str, Any] = {f"{lookup}__gte": bound.low, f"{lookup}__lte": bound.high}
    return models.Q(**limits)
