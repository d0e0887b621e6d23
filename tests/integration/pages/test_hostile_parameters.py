"""Values that cannot be stored or parsed get an error message, never a server error."""

import json

import pytest
from django.contrib import admin
from django.db import DataError, transaction
from django.forms import JSONField
from django.test import RequestFactory
from django.urls import reverse

from evalsite.lib.bounded_json import LARGEST_INTEGER, MAX_CHARACTERS, MAX_LEVELS, BoundedJSONField, read_json
from evalsite.middleware import StorableRequestMiddleware
from runs_app.models import Endpoint, Sampler
from tests import factories


@pytest.mark.slow
@pytest.mark.parametrize("per_page", ["-1", "0", "99999999", "nan", "٣", "1" * 5000])
def test_a_list_has_a_maximum_number_of_rows(lab, as_, per_page):
    for number in range(30):
        factories.make_dataset(f"more-{number}", items=1)
    page = as_("owner").get(reverse("dataset_list"), {"per_page": per_page})
    assert page.status_code == 200
    assert page.content.count(b"<tr ") <= 30


@pytest.mark.slow
@pytest.mark.parametrize(("page", "shown"), [("-1", 1), ("0", 1), ("2", 2), ("999999", 2), ("9" * 5000, 1), ("x", 1)])
def test_a_missing_page_is_replaced_by_the_nearest_page(lab, as_, page, shown):
    for number in range(30):
        factories.make_dataset(f"more-{number}", items=1)
    answer = as_("owner").get(reverse("dataset_list"), {"page": page})
    assert f"Page {shown} of 2" in answer.content.decode()


@pytest.mark.slow
def test_the_requested_number_of_rows_is_shown(lab, as_):
    for number in range(30):
        factories.make_dataset(f"more-{number}", items=1)
    assert "Page 1 of" in as_("owner").get(reverse("dataset_list"), {"per_page": "7"}).content.decode()


@pytest.mark.parametrize("name", ["trial_list", "experiment_list", "dataset_list", "batch_list"])
def test_a_nul_in_an_address_is_refused_with_the_name_of_its_parameter(lab, as_, name):
    answer = as_("owner").get(reverse(name), {"item": "a\x00b"})
    assert answer.status_code == 400
    assert "The parameter item of the address contains a NUL character" in answer.content.decode()
    assert "Content-Security-Policy" in answer.headers


def test_a_nul_in_a_path_or_a_cookie_is_refused(lab, as_):
    client = as_("owner")
    assert client.get("/experiments/a%00b/").status_code == 400
    cookie = client.get(reverse("home"), HTTP_COOKIE='sessionid="abcdefgh\\000ijk"')
    assert cookie.status_code == 400
    assert "The cookie sessionid" in cookie.content.decode()


def test_an_export_with_a_nul_is_refused_before_it_runs(lab, as_):
    address = reverse("experiment_export", args=[lab.experiment.slug, "trials", "csv"])
    answer = as_("owner").get(address, {"contains": "\x00"})
    assert answer.status_code == 400
    assert not answer.streaming


def test_a_nul_in_a_form_is_an_error_of_its_field(lab, as_):
    address = reverse("dataset_edit", args=[lab.draft.slug, lab.draft.version])
    answer = as_("owner").post(address, {"title": "a\x00b", "licence": "kept"})
    assert answer.status_code == 200
    assert "Null characters are not allowed." in answer.content.decode()
    assert 'value="kept"' in answer.content.decode()


def test_a_nul_outside_a_form_is_refused_with_the_name_of_its_field(db):
    """A view may look up a value without a form; the database then refuses it."""
    middleware = StorableRequestMiddleware(lambda request: None)
    with pytest.raises(DataError) as broken, transaction.atomic():
        Sampler.objects.filter(name="a\x00b").first()
    response = middleware.process_exception(RequestFactory().post("/", {"colour": "a\x00b"}), broken.value)
    assert response.status_code == 400
    assert "The field colour contains a NUL character" in response.content.decode()
    assert middleware.process_exception(RequestFactory().post("/", {"colour": "red"}), broken.value) is None


@pytest.mark.parametrize("year", [-(2**31) - 1, 2**31 - 1])
def test_a_year_out_of_range_is_refused(db, client, year):
    """Lists of the admin accept any date lookup."""
    client.force_login(factories.make_user("chief", superuser=True))
    answer = client.get(reverse("admin:runs_app_experiment_changelist"), {"created_at__year": year})
    assert answer.status_code == 400
    assert "A number in the address is too large or too small." in answer.content.decode()


@pytest.mark.parametrize("charset", ["utf-16", "latin-1", "utf-7"])
def test_another_charset_is_refused(lab, as_, charset):
    answer = as_("owner").get(
        reverse("trial_list"), {"item": "a"}, CONTENT_TYPE=f"application/x-www-form-urlencoded; charset={charset}"
    )
    assert answer.status_code == 400
    assert "UTF-8" in answer.content.decode()


@pytest.mark.parametrize("name", ["rating", "run", "graded_by"])
@pytest.mark.parametrize("value", [str(2**31), str(2**63), "9" * 400])
def test_a_number_beyond_its_column_finds_nothing(lab, as_, name, value):
    answer = as_("owner").get(reverse("trial_list"), {name: value})
    assert answer.status_code == 200
    assert "No trial matches this filter" in answer.content.decode()


def test_a_rating_beyond_its_column_is_an_error_or_empty_also_when_it_is_negative(lab, as_):
    answer = as_("owner").get(reverse("trial_list"), {"rating": str(-(2**31) - 1)})
    assert "No trial matches this filter" in answer.content.decode()
    fraction = as_("owner").get(reverse("trial_list"), {"rating": "3.5"})
    assert "Enter a whole number." in fraction.content.decode()


def test_a_rating_that_exists_is_still_found(lab, as_):
    page = as_("owner").get(reverse("trial_list"), {"rating": "3"}).content.decode()
    assert reverse("trial_detail", args=[lab.trial.pk]) in page


REFUSED = {
    "[" * 3000: "valid JSON",
    "[" * 3000 + "]" * 3000: f"at most {MAX_LEVELS} brackets",
    "[" * 200_000 + "]" * 200_000: f"at most {MAX_LEVELS} brackets",
    '{"a":' * 60 + "1" + "}" * 60: f"at most {MAX_LEVELS} brackets",
    '{"a": ' + "9" * 5000 + "}": "at most 64 bits",
    f"[{LARGEST_INTEGER + 1}]": "at most 64 bits",
    '"' + "x" * MAX_CHARACTERS + '"': "too long",
    '{"a": "\\ud800"}': "is not Unicode text",
    '{"\\u0000": 1}': "contains a NUL character",
    "[NaN]": "not a JSON number",
    '{"a": 1,}': "Line 1, column 9",
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:20])
def test_json_is_read_under_limits(text):
    with pytest.raises(ValueError) as response:
        read_json(text)
    assert REFUSED[text] in str(response.value) or "brackets" in str(response.value)


@pytest.mark.parametrize("text", ["[]", "{}", "null", '{"a": [1, -2.5, true, {"b": "ü"}]}', f"[{LARGEST_INTEGER}]"])
def test_json_within_the_limits_is_unchanged(text):
    assert read_json(text) == json.loads(text)


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:20])
def test_the_admin_shows_refused_json_again_with_an_error_at_its_field(db, client, text):
    client.force_login(factories.make_user("chief", superuser=True))
    answer = client.post(reverse("admin:runs_app_sampler_add"), {"name": "hot", "extra": text})
    assert answer.status_code == 200
    assert answer.context["adminform"].form.errors["extra"]
    assert not Sampler.objects.filter(name="hot").exists()
    shown = answer.context["adminform"].form["extra"].value()
    assert str(shown) == text


ENDPOINT = {"name": "new", "provider": "openrouter", "max_concurrency": 4, "is_active": "on"}


def send_endpoint(client, routes):
    """Submit the admin's form of a new endpoint with its initial values and these provider routes."""
    client.force_login(factories.make_user("chief", superuser=True))
    address = reverse("admin:runs_app_endpoint_add")
    form = client.get(address).context["adminform"].form
    initial = {name: value for name in form.fields if (value := form[name].value()) not in (None, False)}
    return client.post(address, {**initial, **ENDPOINT, "provider_routes": routes})


@pytest.mark.parametrize(("routes", "stored"), [("", []), ('["azure"]', ["azure"])])
def test_empty_json_becomes_the_default_of_its_column(db, client, routes, stored):
    answer = send_endpoint(client, routes)
    assert answer.status_code == 302, answer.context["adminform"].form.errors
    assert Endpoint.objects.get(name="new").provider_routes == stored


@pytest.mark.parametrize("routes", ['{"a": 1}', '"text"', "3", "[1]", "[[]]"])
def test_routes_that_are_not_a_list_of_names_are_an_error(db, client, routes):
    answer = send_endpoint(client, routes)
    assert "Enter a list of names" in answer.content.decode()
    assert not Endpoint.objects.filter(name="new").exists()


def test_every_json_field_of_the_admin_is_bounded(db, rf):
    request = rf.get("/")
    request.user = factories.make_user("chief", superuser=True)
    fields = [
        (model.__name__, name, field)
        for model, site in admin.site._registry.items()
        if site.has_add_permission(request)
        for name, field in site.get_form(request).base_fields.items()
        if isinstance(field, JSONField)
    ]
    assert len(fields) >= 3
    assert [page[:2] for page in fields if not isinstance(page[2], BoundedJSONField)] == []
