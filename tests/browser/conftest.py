"""A real chromium against the site in this process; screenshots of what it saw go to var/screenshots/."""

import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from django.test import Client

from evalsite.lib import roles
from tests import factories

LAPTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
SCREENSHOTS = Path(settings.BASE_DIR) / "var" / "screenshots"


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in Path(item.fspath).parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.django_db(transaction=True))


@pytest.fixture
def visitor(chromium, live_server):
    """`visitor(user, viewport)` is a page signed in as that user; what the console complains about fails the test."""
    complaints, contexts = [], []

    def open_page(user=None, viewport=LAPTOP, **options):
        options = {"reduced_motion": "reduce", **options}
        context = chromium.new_context(viewport=viewport, base_url=live_server.url, **options)
        contexts.append(context)
        if user is not None:
            context.add_cookies([{"name": "sessionid", "value": session_of(user), "url": live_server.url}])
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on(
            "console",
            lambda said: (
                complaints.append(f"{said.text} {said.location.get('url', '')}")
                if said.type in {"error", "warning"}
                else None
            ),
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def session_of(user):
    client = Client()
    client.force_login(user)
    return client.cookies["sessionid"].value


@pytest.fixture
def checked():
    """`checked(page, name)` keeps a screenshot and refuses serious accessibility faults and sideways scrolling."""

    def check(page, name):
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"{re.sub(r'[^a-z0-9-]+', '-', name.lower())}.png", full_page=True)
        # Without its preloading of sheets, which a page with @import and this policy would complain about.
        found = Axe().run(page, options={"preload": False}).response["violations"]
        serious = [
            (fault["id"], fault["nodes"][0]["target"], fault["nodes"][0]["failureSummary"])
            for fault in found
            if fault["impact"] in {"serious", "critical"}
        ]
        assert serious == [], name
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), f"{name} scrolls sideways"

    return check


@pytest.fixture
def owner(transactional_db):
    return factories.make_user("owner", roles.RESEARCHER)


@pytest.fixture
def operator(transactional_db):
    return factories.make_user("operator", roles.OPERATOR)
