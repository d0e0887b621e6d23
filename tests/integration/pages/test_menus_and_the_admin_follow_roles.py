"""A menu contains only pages that the role may open; the admin opens by role, without the staff flag."""

import re

import pytest
from django.urls import reverse

pytestmark = pytest.mark.django_db
PEOPLE = ("rater", "viewer", "researcher", "owner", "operator")


def list_menu_links(page):
    return re.findall(r'<a href="([^"]+)"', re.search(r'<nav class="mainnav".*?</nav>', page, re.S).group())


@pytest.mark.slow
@pytest.mark.parametrize("person", PEOPLE)
def test_every_entry_of_the_menu_opens(person, lab, as_):
    client = as_(person)
    entries = list_menu_links(
        client.get("/", follow=True).content.decode() if person != "rater" else open_password_page(client)
    )
    assert entries
    assert {address: client.get(address, follow=True).status_code for address in entries} == dict.fromkeys(entries, 200)


def open_password_page(client):
    """Return the password page, because a rater's home page is the rating session, without a menu."""
    return client.get(reverse("password_change")).content.decode()


def test_a_viewers_menu_omits_the_groups_pages(lab, as_):
    entries = list_menu_links(as_("viewer").get("/").content.decode())
    assert reverse("endpoint_list") not in entries
    assert reverse("admin:index") not in entries
    assert reverse("experiment_list") in entries


@pytest.mark.parametrize("person", ["researcher", "operator"])
def test_a_role_opens_the_admin(person, lab, as_):
    client = as_(person)
    assert not lab.people[person].is_staff
    assert reverse("admin:index") in list_menu_links(client.get("/").content.decode())
    assert client.get(reverse("admin:index")).status_code == 200
    assert client.get(reverse("admin:runs_app_prompt_changelist")).status_code == 200


def test_a_researcher_writes_a_prompt_in_the_admin_and_manages_no_users(lab, as_):
    client = as_("researcher")
    assert client.get(reverse("admin:runs_app_prompt_add")).status_code == 200
    assert client.get(reverse("admin:runs_app_endpoint_add")).status_code == 403
    assert client.get(reverse("admin:auth_user_changelist")).status_code == 403


@pytest.mark.parametrize("person", ["rater", "viewer"])
def test_raters_and_viewers_find_no_admin(person, lab, as_):
    for address in (reverse("admin:index"), reverse("admin:runs_app_prompt_changelist"), "/admin/nothing/"):
        assert as_(person).get(address).status_code == 404
