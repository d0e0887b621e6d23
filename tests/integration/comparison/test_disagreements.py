"""Disagreements, largest first: the order over pages, and the detail page with the verdict of each rater."""

import pytest
from django.http import QueryDict
from django.urls import reverse

from grading_app.models.gradings import allow_superseding
from grading_app.results.raters import disagreements
from grading_app.results.raters.rating_selection import RatingSelectionForm
from tests import factories
from tests.factories.gradings import list_generated_trials, make_answered_experiment, make_gradings, make_scale_rubric
from tests.factories.queues import make_queue, make_rater, rate_all
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db


@shared_rows
def experiment():
    """Return eleven answers: judges differ by 0, 1, 2 and 3 in turn on ten of them, and by 1.5 on the last."""
    created = make_answered_experiment(items=11)
    rubric = make_scale_rubric()
    make_gradings(created, "judge-a", lambda trial: 2.0, rubric=rubric, reasoning="It is short.")
    make_gradings(created, "judge-b", compute_distant_score, rubric=rubric, reasoning="It is long.")
    return created


def compute_distant_score(trial):
    return 3.5 if trial.item.position == 10 else 2.0 + trial.item.position % 4


def read_selection(experiment, query=""):
    return RatingSelectionForm(QueryDict(query), experiment).get_selection()


def open_page(client, experiment, query=""):
    client.force_login(experiment.owner)
    return client.get(f"{reverse('experiment_disagreements', args=[experiment.slug])}?{query}")


def test_the_largest_disagreements_are_first_and_agreements_are_not_listed(experiment):
    sizes = [one.size for one in disagreements.list_disagreements(read_selection(experiment)).disagreements]
    assert sizes == [3, 3, 2, 2, 1.5, 1, 1, 1]


def test_disagreements_can_be_sorted_by_variance(experiment):
    disagreements_by_variance = disagreements.list_disagreements(
        read_selection(experiment), by="variance"
    ).disagreements
    assert [one.size for one in disagreements_by_variance][:5] == [2.25, 2.25, 1, 1, 0.5625]


@pytest.mark.parametrize("by", ["range", "variance"])
def test_pages_have_no_gap_or_overlap_in_either_direction(experiment, monkeypatch, by):
    monkeypatch.setattr(disagreements, "PAGE_SIZE", 3)
    selection = read_selection(experiment)
    pages, after = [], ""
    while True:
        page = disagreements.list_disagreements(selection, by=by, after=after)
        pages.append([one.unit for one in page.disagreements])
        if not page.after:
            break
        after = page.after
    assert [len(page) for page in pages] == [3, 3, 2]
    assert len({unit for page in pages for unit in page}) == 8
    back = disagreements.list_disagreements(selection, by=by, before=page.before)
    assert [one.unit for one in back.disagreements] == pages[1]
    first = disagreements.list_disagreements(selection, by=by, before=back.before)
    assert [one.unit for one in first.disagreements] == pages[0]
    assert first.before == ""


def test_neighbours_follow_the_order_of_the_list(experiment):
    selection = read_selection(experiment)
    units = [one.unit for one in disagreements.list_disagreements(selection).disagreements]
    positions = [disagreements.find_position(selection, unit) for unit in units]
    assert [one.rank for one in positions] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [one.next for one in positions] == [*units[1:], None]
    assert [one.previous for one in positions] == [None, *units[:-1]]
    agreed = next(trial for trial in list_generated_trials(experiment) if trial.pk not in units)
    assert disagreements.find_position(selection, agreed.pk).rank is None


@pytest.mark.parametrize("cursor", ["", "x", "1_", "_1", "1e400_x", "nan_3", "9" * 80])
def test_an_invalid_cursor_shows_the_first_page_or_no_row(client, experiment, cursor):
    assert open_page(client, experiment, f"after={cursor}").status_code == 200


def test_the_list_shows_the_verdict_of_each_rater(client, experiment):
    text = open_page(client, experiment).content.decode()
    assert "About item-3, said for the 1. time." in text
    assert "judge-a" in text
    address = reverse(
        "disagreement",
        args=["pilot", disagreements.list_disagreements(read_selection(experiment)).disagreements[0].unit],
    )
    assert address in text


def test_a_filter_restricts_the_list_and_remains_in_the_links(client, experiment):
    page = open_page(client, experiment, "category=odd&by=variance")
    assert {row["item"].category for row in page.context["rows"]} == {"odd"}
    assert "?category=odd&amp;by=variance" in page.content.decode()


def test_an_answer_shows_scores_and_reasons_side_by_side(client, experiment):
    make_gradings(experiment, "judge-unread", lambda trial: None)
    unit = disagreements.list_disagreements(read_selection(experiment)).disagreements[1].unit
    client.force_login(experiment.owner)
    page = client.get(reverse("disagreement", args=["pilot", unit]))
    text = page.content.decode()
    for message in ("It is short.", "It is long.", "no_score_in_json", "Disagreement 2 of 8", "3 apart", "What is"):
        assert message in text
    assert 'rel="next"' in text
    assert 'rel="prev"' in text


def test_the_chosen_label_is_named_if_labels_share_a_score(client, experiment):
    labels = [{"name": "refused", "score": 0}, {"name": "wrong", "score": 0}, {"name": "right", "score": 1}]
    rubric = make_scale_rubric("labels", kind="label", labels=labels, low=0)
    keys = []
    for name, label in (("one", "refused"), ("another", "right"), ("third", None)):
        condition = make_gradings(experiment, name, lambda trial, label=label: float(label == "right"), rubric=rubric)
        with allow_superseding():
            condition.gradings.update(detail={"label": label} if label else None)
        keys.append(f"rater=g{condition.pk}")
    client.force_login(experiment.owner)
    unit = list_generated_trials(experiment)[0].pk
    page = client.get(reverse("disagreement", args=["pilot", unit]) + "?" + "&".join(keys))
    assert [side.name for side in page.context["verdicts"]] == ["refused", "right", "refused or wrong"]


def test_ratings_of_items_on_a_dimension_have_disagreements(client):
    valence = factories.make_dimension("valence")
    dataset = factories.make_dataset("photos", 5)
    created = factories.make_experiment("affect", dataset=dataset, dimensions=[valence])
    queue = make_queue("feelings", dataset=dataset, dimensions=[valence])
    rate_all(make_rater(queue, started=True), 2)
    rate_all(make_rater(queue, started=True), lambda due: 2 + due.item.position)
    page = open_page(client, created, "units=items:valence")
    assert [row["item"].key for row in page.context["rows"]] == ["item-4", "item-3", "item-2", "item-1"]
    assert [side.value for side in page.context["rows"][0]["verdicts"]] == [2, 6]


def test_an_answer_of_another_experiment_is_not_found(client, experiment):
    other = make_answered_experiment("other")
    client.force_login(experiment.owner)
    assert client.get(reverse("disagreement", args=["pilot", list_generated_trials(other)[0].pk])).status_code == 404


def test_the_number_of_queries_is_bounded(client, experiment, django_assert_max_num_queries):
    client.force_login(experiment.owner)
    with django_assert_max_num_queries(20):
        listed = client.get(reverse("experiment_disagreements", args=["pilot"]))
    unit = disagreements.list_disagreements(read_selection(experiment)).disagreements[0].unit
    with django_assert_max_num_queries(26):
        response = client.get(reverse("disagreement", args=["pilot", unit]))
    assert listed.context["rows"]
    assert response.context["position"].disagreement.unit == unit
