"""A number with a decimal comma is read as written: a browser's number input would make 25 of 2,5."""

from importlib import import_module

import pytest
from django.contrib import admin
from django.forms import BaseForm, DecimalField, FloatField
from hypothesis import given
from hypothesis import strategies as st

from evalsite.lib.web.form_fields import DecimalCommaField, NumberField
from grading_app.views.compare import CompareForm
from runs_app.forms.definitions import SamplerForm
from runs_app.forms.run_control import AssumptionsForm

OURS = ("evalsite", "datasets_app", "runs_app", "grading_app")


def list_form_classes(root=BaseForm):
    for form_class in root.__subclasses__():
        module = import_module(form_class.__module__)
        if module.__name__.startswith(OURS) and getattr(module, form_class.__name__, None) is form_class:
            yield form_class
        yield from list_form_classes(form_class)


def test_each_form_of_the_site_reads_numbers_with_decimals_by_such_a_field(rf, admin_user):
    import_module("evalsite.urls")
    request = rf.get("/")
    request.user = admin_user
    parts = [part for part in admin.site._registry.values() if part.model.__module__.startswith(OURS)]
    forms = {part.get_form(request) for part in parts if part.has_change_permission(request)}
    forms |= set(list_form_classes())
    fields = {
        (form_class, name): field
        for form_class in forms
        for name, field in form_class.base_fields.items()
        if isinstance(field, FloatField | DecimalField)
    }
    assert len(fields) > 30
    assert [name for name, field in fields.items() if not isinstance(field, DecimalCommaField)] == []
    assert {field.widget.input_type for field in fields.values() if hasattr(field.widget, "input_type")} == {"text"}


@given(st.decimals(-10_000, 10_000, places=4, allow_nan=False))
def test_a_comma_means_what_a_point_means(number):
    field = NumberField()
    assert field.clean(f"{number:f}".replace(".", ",")) == field.clean(f"{number:f}") == float(number)


@pytest.mark.parametrize(
    ("form_class", "arguments", "name"),
    [(SamplerForm, [], "temperature"), (CompareForm, [{}, []], "margin"), (AssumptionsForm, [], "alpha")],
)
def test_settings_margins_and_levels_have_decimal_commas(db, form_class, arguments, name):
    form = form_class({name: "0,05"}, *arguments)
    form.is_valid()
    assert form.cleaned_data[name] == 0.05
