"""CHECK constraints that limit each column with choices to the values of its choices."""

from __future__ import annotations

from typing import Any, TypeVar

from django.db import models

M = TypeVar("M", bound=models.Model)


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
