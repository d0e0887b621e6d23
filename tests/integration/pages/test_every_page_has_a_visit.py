"""The pages that browser tests open are all pages of the site, and no cache may store them."""

import pytest
from django.test import Client

from tests.integration.pages.page_visits import NO_PAGES, SHARED, list_addresses_with_get, make_visits

pytestmark = pytest.mark.django_db


def test_a_new_address_needs_a_visit_or_the_reason_why_it_is_no_page(lab, monkeypatch):
    monkeypatch.setattr("django_q.tasks.async_task", lambda *_, **__: None)
    visits = make_visits(lab)
    visited, no_pages = {visit.name for visit in visits}, [name for names in NO_PAGES.values() for name in names]
    assert sorted(no_pages) == sorted(set(no_pages))
    assert visited.isdisjoint(no_pages)
    assert visited | set(SHARED) | set(no_pages) == list_addresses_with_get()
    for visit in visits:
        client = Client()
        if visit.person:
            client.force_login(lab.people[visit.person])
        response = client.get(visit.address)
        assert response.status_code == 200, visit
        assert response.content.lstrip()[:15].lower() == b"<!doctype html>", visit
        if visit.person:
            assert "private" in response["Cache-Control"], visit
            assert "no-store" in response["Cache-Control"], visit
