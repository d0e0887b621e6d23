"""Datasets for tests of pages, and a user in each role."""

import pytest
from django.urls import reverse
from django.utils.module_loading import import_string

from datasets_app.importing import read_items
from datasets_app.importing.dataset_writer import create_dataset
from evalsite.lib import permissions
from tests import factories
from tests.factories.files import BLUE, RED, build_archive, build_picture, build_upload
from tests.shared_rows import shared_rows

TABLE = "id,question,answer,topic,joy_mean\n" + "".join(
    f"k{n},Question {n}?,{n},{'abc'[n % 3]},{4 + n / 10}\n" for n in range(9)
)


@shared_rows
def people():
    return {
        "rater": factories.make_user("rater", permissions.RATER),
        "viewer": factories.make_user("viewer", permissions.VIEWER),
        "researcher": factories.make_user("researcher", permissions.RESEARCHER),
        "curator": factories.make_user("curator", permissions.CURATOR),
        "operator": factories.make_user("operator", permissions.OPERATOR),
    }


@shared_rows
def draft():
    """Return a draft of nine questions in three categories, with norms."""
    return create_dataset(read_items(build_upload(TABLE)), slug="set", by="a test", source="A paper", licence="CC0")


@shared_rows
def pictures():
    """Return an approved dataset of two images, one in each category."""
    packed = build_archive({"warm/red.jpg": build_picture(RED), "cold/blue.png": build_picture(BLUE, form="PNG")})
    dataset = create_dataset(read_items(packed), slug="pictures", by="a test")
    factories.approve(dataset)
    return dataset


def run_task_now(function, *args, cluster=None, save=True, timeout=None):
    """Run a task immediately, in place of a worker."""
    import_string(function)(*args)


@pytest.fixture(autouse=True)
def worker(monkeypatch):
    """Run each task as soon as it is queued."""
    monkeypatch.setattr("django_q.tasks.async_task", run_task_now)


def build_address(dataset, name="dataset_detail", *more):
    """Return the address of a page of the dataset."""
    return reverse(name, args=[dataset.slug, dataset.version, *more])


def build_action_address(dataset, verb):
    return build_address(dataset, "dataset_act", verb)


def build_item_action_address(item, verb):
    return reverse("item_act", args=[item.dataset.slug, item.dataset.version, item.pk, verb])
