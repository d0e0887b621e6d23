"""A private experiment whose texts contain a word that only its owner and operators may read."""

import random

import pytest
from django.contrib import admin
from django.db import connection
from django.urls import NoReverseMatch, reverse

from evalsite.lib import permissions
from runs_app.models import Run
from tests import factories
from tests.factories.files import run_in_this_process
from tests.integration.dataset_pages.conftest import run_task_now
from tests.integration.pages.conftest import (  # type: ignore[attr-defined]
    build_url_values,
    lab,  # noqa: F401
    lab_of_file,  # noqa: F401
    people,  # noqa: F401
    people_of_file,  # noqa: F401
)
from tests.integration.pages.test_access_matrix import MATRIX, list_served_names
from tests.system.fuzz.attack import Attack

PRIVATE = "zqprivate"
OUTSIDERS = ("researcher", "viewer", "rater", None)


@pytest.fixture(autouse=True)
def immediate_worker(monkeypatch):
    """Run each task immediately when it is queued. Its queries do not count as those of the request."""

    def work(*task, **options):
        before = len(connection.queries_log)
        run_task_now(*task, **options)
        while len(connection.queries_log) > before:
            connection.queries_log.pop()

    monkeypatch.setattr("django_q.tasks.async_task", work)


@pytest.fixture(autouse=True)
def in_process_bundles(monkeypatch):
    """Another process would not see the rows of the test."""
    monkeypatch.setattr("grading_app.views.files.stream_command", run_in_this_process)


@pytest.fixture
def requests_wanted(request):
    """The number of hostile requests of each test, without the requests that find its targets."""
    return request.config.getoption("fuzz_requests")


@pytest.fixture
def seed(request):
    return request.config.getoption("fuzz_seed")


@pytest.fixture
def chance(seed):
    return random.Random(seed)


@pytest.fixture
def world(lab):  # noqa: F811
    """The lab of the page tests, with a curator, a superuser and private texts."""
    experiment = lab.experiment
    type(experiment).objects.filter(pk=experiment.pk).update(
        slug=f"{PRIVATE}-study", title=f"{PRIVATE} title", description=f"{PRIVATE} description"
    )
    experiment.refresh_from_db()
    Run.objects.filter(pk=lab.run.pk).update(stop_reason=f"{PRIVATE} reason")
    lab.people["curator"] = factories.make_user("curator", permissions.CURATOR)
    lab.people["superuser"] = factories.make_user("chief", superuser=True)
    for name in ("curator", "operator", "owner"):
        type(lab.people[name]).objects.filter(pk=lab.people[name].pk).update(is_staff=True)
    return lab


@pytest.fixture
def attack(world):
    return Attack(world.people, PRIVATE, frozenset({"owner", "operator", "superuser"}))


@pytest.fixture
def addresses(world):
    """Every page of the site, as (role that may open it, address)."""
    values, names = build_url_values(world), list_served_names()
    site_addresses = [
        (
            "operator" if row.expected[4] == 404 else "owner",
            reverse(name, args=[values.get(word, word) for word in row.args.split()]),
        )
        for name, row in MATRIX.items()
        if row.method == "get" and name in names
    ]
    return [*site_addresses, *(("superuser", address) for address in list_admin_addresses())]


def list_admin_addresses():
    """Yield the addresses of the list, the empty form and one row of each model of the admin."""
    for model in admin.site._registry:
        stem = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        row = model._default_manager.order_by("pk").first()
        for name, args in (("changelist", []), ("add", []), ("change", [row.pk] if row else None)):
            if args is not None:
                try:
                    yield reverse(f"{stem}_{name}", args=args)
                except NoReverseMatch:
                    continue
