"""Datasets for tests of pages, and a user in each role."""

import pytest
from django.urls import reverse
from django.utils.module_loading import import_string

from datasets_app.importing import read_items
from datasets_app.importing.dataset_writer import create_dataset
from evalsite.lib import permissions
from tests import factories
from tests.factories.files import BLUE, RED, archive, picture, upload

TABLE = "id,question,answer,topic,joy_mean\n" + "".join(
    f"k{n},Question {n}?,{n},{'abc'[n % 3]},{4 + n / 10}\n" for n in range(9)
)


@pytest.fixture
def people(db):
    return {
        "rater": factories.make_user("rater", permissions.RATER),
        "viewer": factories.make_user("viewer", permissions.VIEWER),
        "researcher": factories.make_user("researcher", permissions.RESEARCHER),
        "curator": factories.make_user("curator", permissions.CURATOR),
        "operator": factories.make_user("operator", permissions.OPERATOR),
    }


@pytest.fixture
def draft(db):
    """Nine questions in three categories, with norms."""
    return create_dataset(read_items(upload(TABLE)), slug="set", by="a test", source="A paper", licence="CC0")


@pytest.fixture
def pictures(db):
    """Two images, one a folder; approved."""
    packed = archive({"warm/red.jpg": picture(RED), "cold/blue.png": picture(BLUE, form="PNG")})
    dataset = create_dataset(read_items(packed), slug="pictures", by="a test")
    factories.approve(dataset)
    return dataset


def do_now(function, *args, cluster=None, save=True, timeout=None):
    """Do the work of a worker immediately."""
    import_string(function)(*args)


@pytest.fixture(autouse=True)
def worker(monkeypatch):
    """A worker that does each task as soon as it is queued."""
    monkeypatch.setattr("django_q.tasks.async_task", do_now)


def of(dataset, name="dataset_detail", *more):
    """The address of one of a dataset's pages."""
    return reverse(name, args=[dataset.slug, dataset.version, *more])


def act(dataset, verb):
    return of(dataset, "dataset_act", verb)


def item_act(item, verb):
    return reverse("item_act", args=[item.dataset.slug, item.dataset.version, item.pk, verb])
