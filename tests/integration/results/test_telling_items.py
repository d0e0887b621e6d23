"""The results list the items on which conditions differ most, each with a link to its answers."""

import pytest
from django.core.cache import cache
from django.urls import reverse

from grading_app.grading.scoring import grade
from tests import factories

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def make_quiz(right, items=16, unreadable=()):
    """Return a quiz of models by name; `right[name]` are the positions with a right answer, `unreadable[name]` those
    with an answer without a number.
    """
    experiment = factories.make_experiment(
        "quiz",
        dataset=factories.make_dataset("things", items),
        models=[factories.make_model(name) for name in right],
        scorers=["numeric"],
    )
    for run in factories.make_runs(experiment, status="done"):
        name = run.condition.model.name
        texts = dict.fromkeys(range(items), "-1") | dict.fromkeys(dict(unreadable).get(name, ()), "Nobody knows.")
        factories.plan_trials(
            run,
            answer=lambda item, *_, name=name, texts=texts: (
                item.target if item.position in right[name] else texts[item.position]
            ),
        )
    grade(experiment, by="test")
    return experiment


def open_items(client, experiment):
    client.force_login(experiment.owner)
    page = client.get(reverse("experiment_results", args=["quiz"]))
    return page, [(item.position, [text for _, text in cells]) for item, cells in page.context["items"]]


def test_at_most_ten_items_with_different_scores_are_listed_with_links(client):
    page, rows = open_items(client, make_quiz({"a": range(14), "b": range(2)}))
    assert [position for position, _ in rows] == list(range(2, 12))
    assert all(cells == ["right", "wrong"] for _, cells in rows)
    assert "The conditions differ on 12 of 16 items by Number within tolerance." in page.content.decode()
    text = page.content.decode()
    assert all(reverse("item_transcript", args=["quiz", item.pk]) in text for item, _ in page.context["items"])


def test_items_with_a_score_of_one_condition_only_do_not_count_as_equal(client):
    page, rows = open_items(client, make_quiz({"a": range(14), "b": range(2)}, unreadable={"b": range(10, 16)}))
    assert [position for position, _ in rows] == list(range(2, 10))
    text = page.content.decode()
    assert "The conditions differ on 8 of 10 items by Number within tolerance." in text
    assert "6 more items have a score of one condition only, or none." in text


def test_a_single_condition_lists_the_items_that_it_has_wrong(client):
    page, rows = open_items(client, make_quiz({"a": range(13)}))
    assert [position for position, _ in rows] == [13, 14, 15]
    assert "Items with the lowest scores" in page.content.decode()


def test_conditions_that_never_differ_have_no_list(client):
    page, rows = open_items(client, make_quiz({"a": range(4), "b": range(4)}))
    assert rows == []
    assert "differ most" not in page.content.decode()


def test_many_conditions_show_the_highest_and_the_lowest_score(client):
    right = {f"m{at}": range(8) if at else range(4) for at in range(8)}
    _, rows = open_items(client, make_quiz(right))
    assert rows[0] == (4, ["m1: right", "m0: wrong"])
