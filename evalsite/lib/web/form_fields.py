"""Helpers for forms: fields with choices, and the error of a form that has no page of its own.

The view fetches choices that come from rows, because a template must not query.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, cast

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import QuerySet
from django.db.models.fields import BLANK_CHOICE_DASH
from django.forms import BaseForm, ChoiceField, DecimalField, Field, FloatField, ModelChoiceField, TextInput
from django.utils.html import format_html

from evalsite.lib.text.names import UnknownNameError, list_choices

DASHES = BLANK_CHOICE_DASH[0][1]
UNAMBIGUOUS_COMMA = re.compile(r"\s*(?![+-]?[1-9]\d{0,2},\d{3}\s*\Z)[+-]?\d*,\d+\s*\Z", re.ASCII)
"""A number with a decimal comma. In 1,250 the comma may be a thousands separator."""


class DecimalCommaField(Field):
    """A number with a decimal point or a decimal comma.

    Its input is a text, because browsers drop a comma in a number input without a word: 2,50 became a budget of 250.
    """

    widget = TextInput

    def widget_attrs(self, widget: Any) -> dict[str, Any]:
        return {**super().widget_attrs(widget), "inputmode": "decimal", "autocomplete": "off"}

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str) and "," in value:
            if not UNAMBIGUOUS_COMMA.match(value):
                raise ValidationError("Write the number without thousands separators, such as 1250.50.")
            value = value.replace(",", ".")
        return super().to_python(value)


class AmountField(DecimalCommaField, DecimalField):
    """An amount of money."""


class NumberField(DecimalCommaField, FloatField):
    """A number that need not be whole."""


NUMBER_FIELDS = {models.DecimalField: AmountField, models.FloatField: NumberField}


def choose_number_fields(model: type[models.Model], names: Iterable[str]) -> dict[str, type[Field]]:
    """Return the classes of form fields for those columns that hold numbers with decimals, for `Meta.field_classes`."""
    columns = {name: type(model._meta.get_field(name)) for name in names}
    return {name: NUMBER_FIELDS[column] for name, column in columns.items() if column in NUMBER_FIELDS}


class NamedChoiceField(ChoiceField):
    """A choice that an address may give by its key, or by a name that `find_key` maps to the key.

    `find_key` raises UnknownNameError for a name of none or of several. The form sets it with the choices.
    """

    find_key: Callable[[str], str] = staticmethod(str)

    def to_python(self, value: Any) -> str:
        name: str = super().to_python(value)
        try:
            return self.find_key(name) if name else ""
        except UnknownNameError as error:
            raise ValidationError(f"Select a valid choice: {error}.") from error

    def prepare_value(self, value: Any) -> Any:
        """Return the key, so that the page shows the choice of a name as selected."""
        try:
            return self.find_key(str(value)) if value else value
        except UnknownNameError:
            return value


def list_choices_in_errors(form: BaseForm) -> None:
    """Let the error of an unknown choice list the choices. Call it when the fields have their choices."""
    for field in form.fields.values():
        if isinstance(field, ChoiceField):
            options: list[Any] = [option for option in cast("Any", field.choices) if option[0] != ""]
            listed = [value if str(value) == label else f'{value} "{label}"' for value, label in options]
            choices = list_choices(listed).replace("%", "%%")
            field.error_messages["invalid_choice"] = f"%(value)s is not one of the choices. There are {choices}."


def get_choice_field(form: BaseForm, name: str) -> ChoiceField:
    """Return the form's choice field of this name. Raise TypeError if the field has no choices."""
    field = form.fields[name]
    if not isinstance(field, ChoiceField):
        raise TypeError(f"{name} offers no choices")
    return field


def get_row_field(form: BaseForm, name: str) -> ModelChoiceField[Any]:
    """Return the form's field of this name whose choices are rows. Raise TypeError if the field has another type."""
    field = form.fields[name]
    if not isinstance(field, ModelChoiceField):
        raise TypeError(f"{name} offers no rows")
    return field


def offer_rows(form: BaseForm, name: str, rows: QuerySet[Any], label: Callable[[Any], str] | None = None) -> None:
    """Set the rows that the form's field offers. `label` returns the label of a row.

    Raise TypeError if the choices of the field are not rows.
    """
    field = get_row_field(form, name)
    field.queryset = rows
    if label is not None:
        field.label_from_instance = label  # type: ignore[method-assign, assignment] # Django documents this override.


def get_offered_rows(form: BaseForm, name: str) -> QuerySet[Any]:
    """Return the rows that the form's field offers. Raise TypeError if the field offers no rows."""
    rows = get_row_field(form, name).queryset
    if rows is None:
        raise TypeError(f"{name} offers no rows yet")
    return rows


def fetch_choices(form: BaseForm) -> None:
    """Fetch the rows of every choice field now, once. Name the empty choice, which Django shows as dashes."""
    for field in form.fields.values():
        empty_label = "Choose one" if field.required else "None"
        if isinstance(field, ModelChoiceField):
            if field.empty_label == DASHES:
                field.empty_label = empty_label
            choices: Iterable[Any] = field.choices  # type: ignore[assignment]
            field.widget.choices = list(iter(choices))  # Its length would cost a query that counts the rows.
        elif isinstance(field, ChoiceField):
            options: list[Any] = list(field.choices)  # type: ignore[arg-type]
            if ("", DASHES) in options:
                field.choices = [(value, text if value else empty_label) for value, text in options]


def add_create_link(form: BaseForm, name: str, user: Any, permission: str, address: str, label: str) -> None:
    """Add a link to the field's help text that leads to the page for a new row. Skip users without the permission."""
    if name in form.fields and user.has_perm(permission):
        field = form.fields[name]
        field.help_text = format_html('{} <a href="{}">{}</a>', field.help_text, address, label)


def get_first_error(form: BaseForm) -> str:
    """Return the first error of the form, with the label of its field if it has one.

    Raise ValueError if the form has no errors.
    """
    first = next(iter(form.errors.items()), None)
    if first is None:
        raise ValueError("the form has no errors")
    name, errors = first
    return f"{form[name].label}: {errors[0]}" if name in form.fields else str(errors[0])
