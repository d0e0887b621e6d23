"""Fields and helper functions that several forms share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django import forms

from evalsite.lib.bound import Bound
from evalsite.lib.web.form_fields import NumberField
from runs_app.experiment_options import OPTIONS
from runs_app.models import Experiment
from runs_app.models.bounded import InRange
from runs_app.scorers.scoring_rules import (
    format_stored_scorer,
    list_scorer_choices,
    list_scorers_with_parameter,
    read_rule,
)


def bounded_integer(bound: Bound, **options: Any) -> forms.IntegerField:
    """Return a field for whole numbers of this range."""
    field = forms.IntegerField(**options)
    _apply_bound(field, bound)
    return field


def bounded_number(bound: Bound, **options: Any) -> NumberField:
    """Return a field for finite numbers of this range."""
    field = NumberField(**options)
    _apply_bound(field, bound)
    return field


def _apply_bound(field: forms.Field, bound: Bound) -> None:
    places = getattr(field, "decimal_places", None)

    def check(value: Any) -> None:
        if not bound.contains(value):
            raise forms.ValidationError(f"Must be {bound}.", code="out_of_range")
        if places is not None and -value.as_tuple().exponent > places:
            raise forms.ValidationError(f"Must have at most {places} decimal places.", code="decimal_places")

    field.validators.append(check)
    if isinstance(field.widget, forms.NumberInput):
        field.widget.attrs |= {"min": bound.low, "max": bound.high}


def state_bounds(form: Any) -> None:
    """Let the numbers of a ModelForm state their range and decimal places, instead of the limits of the column's type.

    Django's limits of a column, such as 12 digits or 2147483647, say nothing that a user could follow.
    """
    for column in form._meta.model._meta.concrete_fields:
        field = form.fields.get(column.name)
        for validator in column.validators:
            if isinstance(validator, InRange) and isinstance(field, forms.IntegerField):  # Also numbers with decimals.
                field.validators = []
                _apply_bound(field, validator.bound)


def allow_empty_options(form: Any) -> None:
    """Let a user leave an option empty if it cannot be unset. `fill_empty_options` then gives it a value.

    Such a field has a value from the start, so its label does not call it optional. Other empty fields say what
    applies without a value.
    """
    for option in OPTIONS:
        if option.name in form.fields:
            form.fields[option.name].required = False
            form.fields[option.name].has_default = not option.may_be_unset
            if option.may_be_unset:
                form.fields[option.name].widget.attrs["placeholder"] = option.unset


def fill_empty_options(form: Any, cleaned: dict[str, Any], experiment: Experiment) -> None:
    """Give the options that were left empty, and cannot be unset, the values of this experiment."""
    for option in OPTIONS:
        name = option.name
        is_empty = name in form.fields and cleaned.get(name) in (None, "")
        if is_empty and not option.may_be_unset and name not in form.errors:
            cleaned[name] = getattr(experiment, name)


class RulesField(forms.CharField):
    """Scorers with a parameter, one per line: `regex:PATTERN`. The cleaned value has the stored form of a design."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("label", "Rules with a parameter")
        widget = forms.Textarea(attrs={"rows": 2, "class": "mono", "spellcheck": "false"})
        super().__init__(strip=False, max_length=4000, widget=widget, **options)

    @staticmethod
    def usage() -> str:
        return f"One per line: {', '.join(usage for usage, _ in list_scorers_with_parameter())}"

    @staticmethod
    def format_stored(stored: Iterable[str | Mapping[str, Any]]) -> str:
        return "\n".join(format_stored_scorer(scorer) for scorer in stored)

    def clean(self, value: Any) -> Any:
        text, scorers, problems = super().clean(value), [], []
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            try:
                scorer = read_rule(line.lstrip()).stored
            except ValueError as problem:
                problems.append(f"Line {number}: {problem}")
            else:
                if scorer not in scorers:
                    scorers.append(scorer)
        if problems:
            raise forms.ValidationError(problems)
        return scorers


def list_scorer_names() -> list[tuple[str, str]]:
    """Return names and labels of all scorers. The rules of the design supply a scorer's parameter."""
    with_parameter = [(usage.partition(":")[0], label) for usage, label in list_scorers_with_parameter()]
    without = list_scorer_choices()
    return without + [choice for choice in with_parameter if choice[0] not in dict(without)]


def split_names(text: str) -> list[str]:
    """Return the names of a comma-separated text."""
    return [name.strip() for name in text.split(",") if name.strip()]


def lock_field(field: forms.Field, help_text: str) -> None:
    """Show the field's value, but ignore submitted input."""
    field.disabled, field.help_text = True, help_text
