"""CHECK constraints: each number and each time of a table has a range, and each column with choices has one of them.

A number that comes from a file, a provider or SQL counts in sums that pages and budgets read. One NaN makes such a sum
useless, and one negative cost frees a budget. So each column has a range in the database. PostgreSQL orders NaN above
every number, so an upper limit excludes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.db import models

M = TypeVar("M", bound=models.Model)
Range = tuple[Any, Any]  # The lowest and the highest value. None: the limit of the column's type.

LARGEST_FLOAT = 1e12  # Scores, scales and seconds. The squares of a million such numbers still have a finite sum.
FIRST_YEAR, LAST_YEAR = 1970, 9998  # In any time zone, Python can represent the times of these years.
SIGNED: Range = (None, None)
NUMBERS = (models.IntegerField, models.FloatField, models.DecimalField, models.DateField)


class AllInRange(models.Func):
    """The condition that each of these columns is empty or within its range.

    It compares the least and the greatest of all columns of one type with a limit that they share. PostgreSQL parses
    the CHECK constraints of a table in each statement that writes rows, so they are short. LEAST and GREATEST leave out
    empty columns.
    """

    output_field = models.BooleanField()

    def __init__(self, **ranges: Range) -> None:
        super().__init__(*ranges)
        self.ranges = ranges

    def as_sql(self, compiler: Any, connection: Any, *_: Any, **__: Any) -> tuple[str, tuple[Any, ...]]:
        """Return the SQL. Limits are literals of no type, because a cast is longer than the limit itself."""
        groups: dict[tuple[str, str, str, str], list[str]] = {}
        for column, (low, high) in zip(self.get_source_expressions(), self.ranges.values(), strict=True):
            sql, _params = compiler.compile(column)
            kind = column.output_field.db_type(connection).partition("(")[0]
            for function, sign, limit in (("LEAST", ">=", low), ("GREATEST", "<=", high)):
                if limit is not None:
                    groups.setdefault((function, sign, kind, str(limit)), []).append(sql)
        parts = [
            f"{function}({', '.join(columns)}) {sign} %s" if len(columns) > 1 else f"{columns[0]} {sign} %s"
            for (function, sign, *_), columns in groups.items()
        ]
        return f"({' AND '.join(parts)})", tuple(limit for *_, limit in groups)


class NumbersConstraint(models.CheckConstraint):
    """A CHECK over the ranges of a model's columns. Migrations contain it as a plain CheckConstraint."""

    ranges: Mapping[str, Range]

    @classmethod
    def of(cls, ranges: Mapping[str, Range], name: str) -> NumbersConstraint:
        constraint = cls(condition=AllInRange(**dict(sorted(ranges.items()))), name=name)  # In the order of migrations.
        constraint.ranges = ranges
        return constraint

    def deconstruct(self) -> Any:
        _, args, kwargs = super().deconstruct()
        return "django.db.models.CheckConstraint", args, kwargs

    def validate(self, model: Any, instance: Any, exclude: Any = None, using: Any = None) -> None:
        """Raise ValidationError for each value outside its range, without a query."""
        problems = {}
        for column, (low, high) in self.ranges.items():
            value = getattr(instance, column)
            if column in (exclude or ()) or value is None or not isinstance(value, int | float | Decimal | date):
                continue
            if not ((low is None or value >= low) and (high is None or value <= high)):
                problems[column] = f"Must be {describe_range((low, high))}."
        if problems:
            raise ValidationError(problems, code="out_of_range")


def describe_range(limits: Range) -> str:
    """Return a text such as `between 0 and 10`, or `at least 0`."""
    low, high = (f"{limit:%Y-%m-%d}" if isinstance(limit, date) else f"{limit:,}" for limit in map(_or_zero, limits))
    if limits[1] is None:
        return f"at least {low}"
    return f"at most {high}" if limits[0] is None else f"between {low} and {high}"


def _or_zero(limit: Any) -> Any:
    return 0 if limit is None else limit


def constrain_numbers(**ranges: Range) -> Callable[[type[M]], type[M]]:
    """Add one CHECK for the columns of the model that its type or another constraint does not limit.

    The defaults: counts and money are not negative, other numbers are at most LARGEST_FLOAT, and times are in the years
    that every page can show. `ranges` replaces the default of a column. It is one CHECK for each table, because the
    engine's statements parse every CHECK again.
    """

    def decorate(model: type[M]) -> type[M]:
        meta = model._meta
        found = {column.attname: ranges.get(column.attname, find_default_range(column)) for column in list_open(model)}
        if unknown := set(ranges) - set(found):
            raise TypeError(f"{model.__name__}: no column without a range: {', '.join(sorted(unknown))}")
        found = {name: limits for name, limits in found.items() if limits != SIGNED}
        if found:
            meta.constraints = [
                *meta.constraints,
                NumbersConstraint.of(found, f"{meta.db_table}_numbers_in_range"),
            ]
            # The migration autodetector reads `constraints` only if the model's Meta declared some.
            meta.original_attrs["constraints"] = meta.constraints
        return model

    return decorate


def find_default_range(column: models.Field[Any, Any]) -> Range:
    if isinstance(column, models.DateTimeField):
        return datetime(FIRST_YEAR, 1, 1, tzinfo=UTC), datetime(LAST_YEAR, 12, 31, tzinfo=UTC)
    if isinstance(column, models.DateField):
        return date(FIRST_YEAR, 1, 1), date(LAST_YEAR, 12, 31)
    if isinstance(column, models.DecimalField):
        digits = (column.max_digits or 0) - (column.decimal_places or 0)
        return 0, Decimal(10) ** digits - Decimal(10) ** -(column.decimal_places or 0)
    return (-LARGEST_FLOAT, LARGEST_FLOAT) if isinstance(column, models.FloatField) else (0, None)


def list_open(model: type[models.Model]) -> Iterator[models.Field[Any, Any]]:
    """Yield the columns with numbers and times that neither their type nor a constraint limits."""
    limited = {name for constraint in model._meta.constraints for name in _list_limited(constraint)}
    for column in model._meta.concrete_fields:
        is_number = isinstance(column, NUMBERS) and not column.primary_key and not column.is_relation
        has_own_check = isinstance(column, models.fields.PositiveIntegerRelDbTypeMixin)
        if is_number and not has_own_check and column.attname not in limited:
            yield column


def find_range(model: type[models.Model], column: models.Field[Any, Any]) -> Range:
    """Return the range that the database allows in a column: that of its constraints, or of its type."""
    low, high = (0, None) if isinstance(column, models.fields.PositiveIntegerRelDbTypeMixin) else SIGNED
    for constraint in model._meta.constraints:
        if isinstance(constraint, NumbersConstraint) and column.attname in constraint.ranges:
            return constraint.ranges[column.attname]
        condition = getattr(constraint, "condition", None)
        if isinstance(condition, models.Q) and condition.connector == models.Q.AND and not condition.negated:
            limits: dict[str, Any] = dict(child for child in condition.children if isinstance(child, tuple))
            low = limits.get(f"{column.attname}__gte", low)
            high = limits.get(f"{column.attname}__lte", high)
    return low, high


def _list_limited(constraint: models.BaseConstraint) -> Iterator[str]:
    """Yield the columns that every row of the table must have at most at a fixed value."""
    condition = getattr(constraint, "condition", None)
    if not isinstance(condition, models.Q) or condition.connector != models.Q.AND or condition.negated:
        return
    for child in condition.children:
        if isinstance(child, tuple) and child[0].endswith("__lte"):
            yield child[0].removesuffix("__lte")


class ChoiceConstraint(models.CheckConstraint):
    """A CHECK constraint on a column with choices. Migrations contain it as a plain CheckConstraint."""

    def deconstruct(self) -> Any:
        _, args, kwargs = super().deconstruct()
        return "django.db.models.CheckConstraint", args, kwargs

    def validate(self, *_: Any, **__: Any) -> None:
        """Do nothing: the field checks its choices without a query and names the field in its error."""


def build_constraint_name(model: type[models.Model], field: models.Field[Any, Any]) -> str:
    return f"{model._meta.db_table}_{field.column}_choices"


def list_choice_fields(model: type[models.Model]) -> list[models.Field[Any, Any]]:
    return [field for field in model._meta.concrete_fields if field.choices]


def build_constraint(model: type[models.Model], field: models.Field[Any, Any]) -> ChoiceConstraint:
    """Return the constraint that allows the field's choices, and the empty text if the field may be blank.

    `OTHER_VALUES` of a model says, by field, which rows may have any other value.
    """
    values = {str(value) for value, _ in field.flatchoices} | ({""} if field.blank else set())
    condition = models.Q(**{f"{field.name}__in": sorted(values)})
    other_values: dict[str, models.Q] = getattr(model, "OTHER_VALUES", {})
    if field.name in other_values:
        condition |= other_values[field.name]
    return ChoiceConstraint(condition=condition, name=build_constraint_name(model, field))


def constrain_choices(model: type[M]) -> type[M]:
    """Add one CHECK constraint for each column of the model that has choices.

    This is a decorator because a nested `Meta` cannot see the choices that its model declares.
    """
    meta = model._meta
    meta.constraints = [*meta.constraints, *(build_constraint(model, field) for field in list_choice_fields(model))]
    # The migration autodetector reads `constraints` only if the model's Meta declared some.
    meta.original_attrs["constraints"] = meta.constraints
    return model
