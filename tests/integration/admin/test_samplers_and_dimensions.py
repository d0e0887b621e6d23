import pytest
from django.urls import reverse

from runs_app.models import Dimension, Sampler
from tests.factories.drafts import make_draft_dimension, make_draft_sampler


def add_row(web, kind, **fields):
    return web.post(reverse(f"admin:runs_app_{kind}_add"), fields)


def test_a_temperature_with_a_decimal_comma_is_read_as_written(as_user, researcher):
    """A number input of a browser makes 1 of 0,1."""
    page = as_user(researcher).get(reverse("admin:runs_app_sampler_add")).content.decode()
    assert '<input type="text" name="temperature"' in page
    add_row(as_user(researcher), "sampler", name="cool", temperature="0,1", top_p="0,95", extra="")
    assert Sampler.objects.get().content == {"temperature": 0.1, "top_p": 0.95}


def test_a_sampler_whose_extra_is_left_empty_has_none(as_user, researcher):
    add_row(as_user(researcher), "sampler", name="greedy", temperature="0", extra="")
    assert Sampler.objects.get().content == {"temperature": 0}


@pytest.mark.parametrize(
    ("kind", "fields", "problem"),
    [
        ("sampler", {"name": "s", "temperature": "3"}, "Must be between 0 and 2."),
        ("sampler", {"name": "s", "extra": '{"api_key": "x"}'}, "Cannot be set: api_key. Allowed are"),
        ("sampler", {"name": "Not A Slug"}, "Use small letters"),
        ("sampler", {"name": "s", "extra": '{"stop": NaN}'}, "contains nan, which is not a JSON number"),
        ("sampler", {"name": "s", "extra": '{"stop": "\\ud800"}'}, "is not Unicode text at character 1"),
        (
            "dimension",
            {"name": "d", "instructions": "x", "scale_min": "5", "scale_max": "1"},
            "must be above its start",
        ),
        (
            "dimension",
            {"name": "d", "instructions": "x", "scale_min": "1", "scale_max": "5", "labels": "6 = far"},
            "These points are not on the scale: 6.",
        ),
        (
            "dimension",
            {"name": "d", "instructions": "x", "scale_min": "1", "scale_max": "5", "labels": "[1]"},
            "Line 1: write a point, = and its label",
        ),
        ("dimension", {"name": "d", "instructions": "x", "scale_min": "", "scale_max": "5"}, "This field is required."),
    ],
)
def test_invalid_input_is_reported_and_not_saved(as_user, researcher, kind, fields, problem):
    response = add_row(as_user(researcher), kind, **fields)
    assert any(problem in sentence for errors in response.context["errors"] for sentence in errors)
    assert not Sampler.objects.exists()
    assert not Dimension.objects.exists()


@pytest.mark.parametrize(("kind", "make"), [("sampler", make_draft_sampler), ("dimension", make_draft_dimension)])
def test_a_used_row_gets_a_new_version_instead_of_an_edit(as_user, researcher, kind, make):
    row, web = make(status="approved"), as_user(researcher)
    page = web.get(reverse(f"admin:runs_app_{kind}_change", args=[row.pk])).content.decode()
    assert "<textarea" not in page
    assert 'name="_save"' not in page
    web.post(
        reverse(f"admin:runs_app_{kind}_changelist"),
        {"action": "new_version", "_selected_action": [row.pk], "confirmed": "yes"},
    )
    assert list(type(row).objects.order_by("version").values_list("version", "status")) == [
        (1, "approved"),
        (2, "draft"),
    ]
