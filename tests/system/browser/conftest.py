"""A Chromium browser against the site in this process.

Screenshots of failures are in var/screenshots/; with `--screenshot on`, so are those of all checked pages.
"""

from pathlib import Path

import pytest
from django.core.signals import request_finished, request_started
from django.test import Client
from playwright.sync_api import expect

from evalsite.lib import permissions
from tests import factories
from tests.system.browser import page_checks
from tests.system.browser.page_checks import LAPTOP
from tests.system.processes.workers import wait_until

PATIENCE_MS = 30_000  # Enough for a machine under load.
expect.set_options(timeout=PATIENCE_MS)


def pytest_collection_modifyitems(items):
    paths = {path for path in {item.path for item in items} if Path(__file__).parent in path.parents}
    for item in items:
        if item.path in paths:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.django_db(transaction=True))


@pytest.fixture
def requests_under_way():
    """Requests that the server has started and not finished. A polling page sends requests until its browser closes."""
    under_way = []

    def begin(**_):
        under_way.append(1)

    def end(**_):
        under_way.pop()

    request_started.connect(begin)
    request_finished.connect(end)
    yield under_way
    request_started.disconnect(begin)
    request_finished.disconnect(end)


@pytest.fixture
def visitor(chromium, live_server, requests_under_way):
    """Return `visitor(user, viewport)`, which opens a page signed in as the user. Console errors fail the test."""
    complaints, contexts = [], []

    def open_page(user=None, viewport=LAPTOP, **options):
        options = {"reduced_motion": "reduce", **options}
        context = chromium.new_context(viewport=viewport, base_url=live_server.url, **options)
        contexts.append(context)
        if user is not None:
            context.add_cookies([{"name": "sessionid", "value": create_session(user), "url": live_server.url}])
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page_checks.collect_complaints(page, complaints)
        return page

    yield open_page
    for context in contexts:
        context.close()
    wait_until(lambda: not requests_under_way)  # A running query would block the deletion of all rows.
    assert complaints == []


def create_session(user):
    client = Client()
    client.force_login(user)
    return client.cookies["sessionid"].value


@pytest.fixture
def checked(request):
    """Return `checked(page, name)`, which asserts that the page is accessible and no wider than its window."""
    keep = request.config.getoption("--screenshot")
    return lambda page, name: page_checks.check(page, name, keep)


@pytest.fixture
def checked_in_all_views(request):
    """Return `checked_in_all_views(page, name)`: the same check on laptop and phone, in the light and dark theme."""
    keep = request.config.getoption("--screenshot")
    return lambda page, name: page_checks.check_views(page, name, keep)


@pytest.fixture
def picture(request):
    """Return `picture(page, name)`, which saves a picture of the document if the pictures are made again."""
    makes_pictures = request.config.getoption("--pictures")

    def save(page, name):
        if makes_pictures:
            page_checks.save_picture(page, name)

    return save


@pytest.fixture
def owner(transactional_db):
    return factories.make_user("owner", permissions.RESEARCHER)


@pytest.fixture
def operator(transactional_db):
    return factories.make_user("operator", permissions.OPERATOR)
