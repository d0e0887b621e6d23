"""Debian's Chromium, one process per file of browser tests."""

import os
from pathlib import Path

import pytest
from django.db import connections
from playwright.sync_api import sync_playwright

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="module")
def chromium():
    """One browser a file. Playwright's loop runs in this thread: while it does, Django would refuse the database, and
    nothing else can run a loop, so it ends with the file, before tests of something else come. Beside a running loop,
    this thread has database connections of its own, which nobody else could close later."""
    if not CHROMIUM.exists():
        reason = f"no chromium at {CHROMIUM}: install it to run the browser tests"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        connections.close_all()
        browser.close()
