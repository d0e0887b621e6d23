"""The page frame, tables, forms and error pages, as the server sends them."""

import re

import django_tables2 as tables
import pytest
from django import forms
from django.contrib.auth import get_user_model
from django.template import engines

from evalsite.lib import permissions
from tests import factories

pytestmark = [pytest.mark.urls("tests.integration.styleguide.urls"), pytest.mark.django_db]


@pytest.fixture
def guide(client):
    return client.get("/guide/").content.decode()


def render(template, **context):
    return engines["django"].from_string(template).render(context)


def test_no_page_has_inline_script_or_style(guide):
    assert "<script>" not in guide
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", guide))
    assert not re.search(r"\sstyle=", guide)
    assert not re.search(r"\son[a-z]+=", guide)
    assert "<style" not in guide


def test_every_file_of_the_page_is_the_sites_own(guide):
    assert not re.search(r'(?:src|href)="(?:https?:)?//', guide)


def test_htmx_injects_no_style_and_evaluates_nothing(guide):
    assert '"includeIndicatorStyles": false' in guide
    assert '"allowEval": false' in guide


def test_the_page_has_its_landmarks_and_a_way_past_them(guide):
    assert guide.count("<main") == 1
    assert guide.count("<h1") == 1
    assert 'class="skip-link" href="#main"' in guide
    assert '<html lang="en">' in guide


def test_an_anonymous_visitor_sees_only_a_link_to_sign_in(guide):
    assert 'class="mainnav"' not in guide
    assert "Sign in" in guide


def test_only_roles_that_open_the_admin_are_led_to_it(client):
    user = factories.make_user("viewer", permissions.VIEWER)
    client.force_login(user)
    assert ">Admin</a>" not in client.get("/guide/").content.decode()
    client.force_login(factories.make_user("researcher", permissions.RESEARCHER))
    page = client.get("/guide/").content.decode()
    assert ">Admin</a>" in page
    assert 'action="/accounts/logout/"' in page


def test_the_page_that_is_open_is_marked_in_the_tabs(guide):
    assert '<a href="/guide/" aria-current="page">Progress</a>' in guide


def test_sorting_is_announced_to_screen_readers_and_keeps_the_filter(client):
    page = client.get("/guide/?sort=-trials&status=done").content.decode()
    head = re.search(r"<th [^>]*aria-sort=\"descending\"[^>]*>.*?</th>", page, re.S).group()
    assert "Trials" in head
    assert 'href="?sort=trials&amp;status=done"' in head
    assert page.count("aria-sort=") == 1


def test_pages_of_a_table_are_reached_by_links_that_keep_the_filter(client):
    page = client.get("/guide/?status=done").content.decode()
    assert 'rel="next" href="?status=done&amp;page=2"' in page
    last = client.get("/guide/?status=done&page=2").content.decode()
    assert 'rel="prev" href="?status=done&amp;page=1"' in last


def test_a_cell_is_escaped_and_carries_the_name_of_its_column(rf):
    class Table(tables.Table):
        name = tables.Column(verbose_name='Na"me')

    table = Table([{"name": "<script>alert(1)</script>"}])
    html = render("{% load django_tables2 %}{% render_table table %}", table=table, request=rf.get("/"))
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert 'data-label="Na&quot;me"' in html
    assert "<script" not in html


class Budget(forms.Form):
    amount = forms.DecimalField(min_value=1, help_text="US <dollars>.")
    notes = forms.CharField(required=False)
    sure = forms.BooleanField()


def test_an_error_is_at_its_field_and_in_the_summary():
    html = render("{{ form }}", form=Budget({"amount": "0", "sure": "on"}))
    assert 'class="error-summary" role="alert"' in html
    assert '<a href="#id_amount">Amount</a>' in html
    control = re.search(r"<input[^>]*name=\"amount\"[^>]*>", html).group()
    assert 'aria-invalid="true"' in control
    for described in re.search(r'aria-describedby="([^"]+)"', control).group(1).split():
        assert f'id="{described}"' in html


def test_a_form_without_errors_has_no_summary_and_says_what_is_optional():
    html = render("{{ form }}", form=Budget())
    assert "error-summary" not in html
    assert html.count("(optional)") == 1
    assert "US &lt;dollars&gt;." in html


def test_filters_that_are_set_can_be_cleared(client):
    assert "Clear filter</a>" not in client.get("/guide/").content.decode()
    page = client.get("/guide/?status=done").content.decode()
    assert '<a class="btn btn-quiet" href="/guide/">Clear filter</a>' in page
    assert "1 active" in page


def test_a_missing_page_has_a_helpful_message(client, settings):
    settings.DEBUG = False
    client.force_login(get_user_model().objects.create_user("researcher"))
    answer = client.get("/no/such/page/")
    assert answer.status_code == 404
    assert "Page not found" in answer.content.decode()


def test_a_forbidden_page_says_so(client):
    answer = client.get("/forbidden/")
    assert answer.status_code == 403
    assert "You do not have permission" in answer.content.decode()


def test_an_internal_error_reveals_nothing_about_the_server(client):
    client.raise_request_exception = False
    answer = client.get("/broken/")
    assert answer.status_code == 500
    assert "Something went wrong on the server" in answer.content.decode()
    assert "secret" not in answer.content.decode()


def test_a_bad_request_has_a_page_of_its_own(client):
    answer = client.get("/guide/", headers={"host": "evil.example"})
    assert answer.status_code == 400


def test_a_form_from_before_signing_in_is_explained(settings):
    from django.test import Client

    answer = Client(enforce_csrf_checks=True).post("/guide/")
    assert answer.status_code == 403
    assert "This form is out of date" in answer.content.decode()


def test_signing_in_works_and_refuses_a_wrong_password(client):
    get_user_model().objects.create_user("researcher", password="a long enough one")
    page = client.post("/accounts/login/", {"username": "researcher", "password": "wrong"}).content.decode()
    assert "error-summary" in page
    assert (
        client.post("/accounts/login/", {"username": "researcher", "password": "a long enough one"}).status_code == 302
    )


def test_the_admin_uses_the_sites_style_and_links_back(client):
    client.force_login(get_user_model().objects.create_superuser("operator"))
    page = client.get("/admin/").content.decode()
    assert page.index("evalsite/tokens.css") < page.index("evalsite/admin.css")
    assert page.index("admin/css/base.css") < page.index("evalsite/tokens.css")
    assert 'aria-label="Site"' in page
    assert not re.search(r"\sstyle=|<script>", page)
