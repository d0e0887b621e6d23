"""The page of an item: every answer to it over the experiments that the reader may see."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from evalsite.lib import permissions
from grading_app.grading.scoring import grade
from grading_app.results import item_answers
from tests import factories
from tests.page_text import page_text

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner():
    return factories.make_user("owner", permissions.RESEARCHER)


@pytest.fixture
def dataset():
    return factories.make_dataset("sums", 3)


def make_answered(slug, owner, dataset, models=1, *, samples=2, answer, **fields):
    experiment = factories.make_experiment(
        slug, owner=owner, dataset=dataset, samples=samples,
        models=[factories.make_model(f"m{number}") for number in range(models)], **fields,
    )  # fmt: skip
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(run, answer=answer)
    return experiment


def open_rows(client, user, item, **query):
    client.force_login(user)
    response = client.get(reverse("item_page", args=[item.pk]), query)
    return response, list(response.context["table"].data)


def test_the_item_page_lists_each_condition_of_visible_experiments_with_scores(client, owner, dataset):
    item = dataset.items.get(key="item-1")
    first = make_answered("first", owner, dataset, 2, answer=lambda *_: "2", scorers=["numeric"])
    make_answered("second", owner, dataset, answer=lambda item, _, index: "2" if index else "3", scorers=["numeric"])
    stranger = factories.make_user("stranger", permissions.RESEARCHER)
    make_answered("hidden", stranger, dataset, answer=lambda *_: "a secret answer")
    for experiment in (first, *type(first).objects.filter(slug="second")):
        grade(experiment, by="test")
    response, rows = open_rows(client, owner, item)
    summaries = [(row.experiment.slug, row.done, [(one.mean, one.n) for one in row.scores]) for row in rows]
    assert summaries == [("first", 2, [(1.0, 2)]), ("first", 2, [(1.0, 2)]), ("second", 2, [(0.5, 2)])]
    text = page_text(response)
    assert "a secret answer" not in text
    assert "SD 0.71, n 2" in text
    condition_row = rows[2]
    assert f"?experiment=second&amp;condition={condition_row.condition.pk}&amp;item=item-1" in text
    assert text.count('">sample 0</a>') == 3


def test_ratings_have_a_spread_and_a_distance_from_the_norm(client, owner):
    items = [{"key": "face", "norms": {"valence": 4.5}}, {"key": "hand"}]
    dataset = factories.make_dataset("photos", items)
    make_answered(
        "rated", owner, dataset, samples=3, dimensions=[factories.make_dimension("valence")],
        answer=lambda _item, _dimension, index: {"answer": str(index + 2), "rating": index + 2},
    )  # fmt: skip
    response, (row,) = open_rows(client, owner, dataset.items.get(key="face"))
    assert (row.mean, row.sd, row.rated) == (3.0, 1.0, 3)
    assert "SD 1.00, norm −1.50" in page_text(response)


def test_viewers_see_items_of_shared_experiments_only(client, owner, dataset):
    viewer = factories.make_user("viewer", permissions.VIEWER)
    made = make_answered("shown", owner, dataset, answer=lambda *_: "2")
    make_answered("private", owner, dataset, answer=lambda *_: "3")
    client.force_login(viewer)
    item = dataset.items.first()
    assert client.get(reverse("item_page", args=[item.pk])).status_code == 404
    type(made).objects.filter(pk=made.pk).update(sharing="group")
    _, rows = open_rows(client, viewer, item)
    assert [row.experiment.slug for row in rows] == ["shown"]


@pytest.mark.slow
def test_the_item_page_is_paginated_with_a_constant_number_of_queries(client, owner, dataset, monkeypatch):
    monkeypatch.setattr(item_answers, "PER_PAGE", 2)
    item = dataset.items.first()
    made = make_answered("one", owner, dataset, 2, answer=lambda *_: "2", scorers=["numeric"])
    grade(made, by="test")
    client.force_login(owner)
    address = reverse("item_page", args=[item.pk])
    with CaptureQueriesContext(connection) as few:
        client.get(address)
    for number in range(3):
        grade(make_answered(f"more-{number}", owner, dataset, 3, answer=lambda *_: "2", scorers=["numeric"]), by="test")
    with CaptureQueriesContext(connection) as many:
        response = client.get(address)
    assert len(many) == len(few)
    listed, pages = [], 0
    while response is not None:
        listed += [(row.experiment.slug, row.condition.pk) for row in response.context["table"].data]
        following, pages = response.context["next_url"], pages + 1
        response = client.get(address + following) if following else None
    assert pages == 6
    assert len(listed) == len(set(listed)) == 11


def test_a_dataset_item_links_to_its_answers(client, owner, dataset):
    client.force_login(owner)
    item = dataset.items.first()
    page = client.get(reverse("item_detail", args=[dataset.slug, dataset.version, item.pk])).content.decode()
    assert f'href="{reverse("item_page", args=[item.pk])}"' in page
