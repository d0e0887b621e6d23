"""A real chromium against the site in this process. Screenshots go to var/screenshots/: of what fails, and with
`--screenshot on` of everything that is checked."""

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

PATIENCE_MS = 30_000  # What a machine under load may take; nothing waits longer than it must.
expect.set_options(timeout=PATIENCE_MS)


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in Path(item.fspath).parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.django_db(transaction=True))


@pytest.fixture
def requests_under_way():
    """What the server has begun and not ended: a page that polls asks until its browser is closed."""
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
    """`visitor(user, viewport)` is a page signed in as that user; what the console complains about fails the test."""
    complaints, contexts = [], []

    def open_page(user=None, viewport=LAPTOP, **options):
        options = {"reduced_motion": "reduce", **options}
        context = chromium.new_context(viewport=viewport, base_url=live_server.url, **options)
        contexts.append(context)
        if user is not None:
            context.add_cookies([{"name": "sessionid", "value": session_of(user), "url": live_server.url}])
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda said: complaints.append(said) if is_complaint(said) else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        return page

    yield open_page
    for context in contexts:
        context.close()
    wait_until(lambda: not requests_under_way)  # Else its queries would stand in the way of the tables' emptying.
    assert [str(complaint) for complaint in complaints] == []


def is_complaint(said):
    """A question that a newer one replaces is called off; htmx calls that an error. Others have words of their own."""
    called_off = said.text.startswith(("htmx:sendAbort", "htmx:afterRequest"))
    return said.type in {"error", "warning"} and not called_off


def session_of(user):
    client = Client()
    client.force_login(user)
    return client.cookies["sessionid"].value


@pytest.fixture
def checked(request):
    """`checked(page, name)`: what is shown now is accessible and no wider than its window."""
    keep = request.config.getoption("--screenshot")
    return lambda page, name: page_checks.check(page, name, keep)


@pytest.fixture
def checked_in_all_views(request):
    """`checked_in_all_views(page, name)`: so it is on a laptop and a phone, in the light and the dark."""
    keep = request.config.getoption("--screenshot")
    return lambda page, name: page_checks.check_views(page, name, keep)


@pytest.fixture
def owner(transactional_db):
    return factories.make_user("owner", permissions.RESEARCHER)


@pytest.fixture
def operator(transactional_db):
    return factories.make_user("operator", permissions.OPERATOR)
