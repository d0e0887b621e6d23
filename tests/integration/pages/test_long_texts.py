"""A page shows the first part of a long text, and a file contains all of it."""

import pytest
from django.urls import reverse

from evalsite.lib.web.long_text import MAX_SHOWN
from grading_app.grading.rating import session
from tests import factories
from tests.factories.queues import make_queue
from tests.shared_rows import shared_rows

LONG = "Begin. " + "é<b>\u202e" * 300_000 + " The end."
MAX_OF_A_PAGE = 1_500_000
LINK = "Show the whole text"


def make_answered_trial(people, **fields):
    """Return a trial of a private experiment, with these texts."""
    experiment = factories.make_experiment("talkative", owner=people["owner"], dataset=factories.make_dataset(items=1))
    (run,) = factories.make_runs(experiment, status="done")
    (trial,) = factories.plan_trials(run, answer=lambda *_: fields)
    return trial


@shared_rows
def long_trial(people_of_file):
    return make_answered_trial(
        people_of_file,
        answer=LONG,
        reasoning=LONG,
        raw_response=LONG,
        error=LONG,
        error_class="server",
        finish_reason="stop",
    )


def test_long_texts_of_a_trial_are_truncated_and_downloadable(long_trial, as_):
    page = as_("owner").get(reverse("trial_detail", args=[long_trial.pk]))
    text = page.content.decode()
    assert len(text) < MAX_OF_A_PAGE
    assert "The end." not in text
    for name in ("answer", "reasoning", "response", "error"):
        address = reverse("trial_text", args=[long_trial.pk, name])
        assert f'<a href="{address}" download>{LINK}</a>' in text
        file = as_("owner").get(address)
        assert file.content.decode() == LONG, name
        assert file["Content-Type"] == "text/plain; charset=utf-8"
        assert file["Content-Disposition"] == f'attachment; filename="trial-{long_trial.pk}-{name}.txt"'
        assert file["X-Content-Type-Options"] == "nosniff"


def test_the_page_states_how_much_of_a_text_it_shows(long_trial, as_):
    text = as_("owner").get(reverse("trial_detail", args=[long_trial.pk])).content.decode()
    assert f"The first 20\u202f000 of {len(LONG):,}".replace(",", "\u202f") in text


def test_a_short_text_is_complete_and_has_no_link(people, as_):
    trial = make_answered_trial(people, answer="x" * MAX_SHOWN)
    text = as_("owner").get(reverse("trial_detail", args=[trial.pk])).content.decode()
    assert "x" * MAX_SHOWN in text
    assert LINK not in text


@shared_rows
def long_item(people_of_file):
    """Return a trial on an item with a long input, with long answers under two conditions."""
    item = {"key": "long", "input": LONG, "target": LONG, "grading_scheme": LONG, "metadata": {"note": LONG}}
    dataset = factories.make_dataset("long-items", [item])
    experiment = factories.make_experiment("lengthy", owner=people_of_file["owner"], dataset=dataset)
    (run,) = factories.make_runs(experiment, status="done")
    (trial,) = factories.plan_trials(run, answer=lambda *_: LONG)
    return trial


@pytest.mark.slow
def test_a_long_request_is_truncated_and_downloadable(long_item, as_):
    page = as_("owner").get(reverse("trial_detail", args=[long_item.pk])).content.decode()
    address = reverse("trial_message", args=[long_item.pk, 1])
    assert address in page
    assert "The end." not in page
    assert as_("owner").get(address).content.decode() == LONG
    assert as_("owner").get(reverse("trial_message", args=[long_item.pk, 2])).status_code == 404
    assert as_("owner").get(reverse("trial_message", args=[long_item.pk, 0])).status_code == 404


@pytest.mark.parametrize("name", ["input", "target", "grading_scheme"])
def test_long_texts_of_an_item_are_truncated_and_downloadable(long_item, as_, name):
    item = long_item.item
    item_path = [item.dataset.slug, item.dataset.version, item.pk]
    page = as_("owner").get(reverse("item_detail", args=item_path)).content.decode()
    address = reverse("item_text", args=[*item_path, name])
    assert address in page
    assert len(page) < MAX_OF_A_PAGE
    assert as_("owner").get(address).content.decode() == LONG
    assert as_("owner").get(reverse("item_text", args=[*item_path, "key"])).status_code == 404


def test_a_long_design_preview_is_truncated_and_downloadable(long_item, as_):
    slug = long_item.run.experiment.slug
    page = as_("owner").get(reverse("experiment_preview", args=[slug]), {"item": "long"}).content.decode()
    address = reverse("experiment_message", args=[slug, 1])
    assert f"{address}?item=long" in page
    assert "The end." not in page
    assert as_("owner").get(address, {"item": "long"}).content.decode() == LONG


def test_the_disagreement_page_truncates_a_long_answer(long_item, as_):
    page = as_("owner").get(reverse("disagreement", args=[long_item.run.experiment.slug, long_item.pk]))
    text = page.content.decode()
    assert reverse("trial_text", args=[long_item.pk, "answer"]) in text
    assert "The end." not in text


def test_a_rater_reads_the_first_part_and_gets_the_rest_as_a_file(people, as_):
    dataset = factories.make_dataset("read", [{"key": "secret-key", "input": LONG}])
    queue = make_queue("reading", owner=people["owner"], dataset=dataset, raters_wanted=1)
    assignment = queue.assign(people["rater"], by=people["owner"])
    session.start_session(assignment)
    page = as_("rater").get(reverse("rating_item", args=["reading"])).content.decode()
    address = reverse("rating_text", args=["reading", 1, "question"])
    assert "The end." not in page
    assert address in page
    file = as_("rater").get(address)
    assert file.content.decode() == LONG
    assert "secret-key" not in str(file.headers)
    assert as_("rater").get(reverse("rating_text", args=["reading", 2, "question"])).status_code == 404
    assert as_("owner").get(address).status_code == 404


@pytest.mark.parametrize("role", ["viewer", "researcher", "rater"])
def test_other_users_get_no_file(long_item, as_, role):
    client = as_(role)
    assert client.get(reverse("trial_text", args=[long_item.pk, "answer"])).status_code == 404
    assert client.get(reverse("trial_message", args=[long_item.pk, 1])).status_code == 404
    slug = long_item.run.experiment.slug
    assert client.get(reverse("experiment_message", args=[slug, 1])).status_code == 404
