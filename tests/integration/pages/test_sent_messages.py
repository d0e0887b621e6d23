"""A trial's page shows the messages exactly as sent, with the image at its place."""

from decimal import Decimal

import pytest

from datasets_app.models import Asset
from grading_app.models import GradeCondition, Grading
from runs_app.engine import requests
from runs_app.prompt_preview import rebuild_turns
from tests import factories


@pytest.fixture
def picture(db):
    return Asset.objects.create(sha256="cd" * 32, format="png", width=2, height=2, size=9)


def make_trial(user, picture=None, **fields):
    dataset = factories.make_dataset("seen", [{"key": "one", "input": "  a\n\tb {{input}} ", "image": picture}])
    experiment = factories.make_experiment(
        "seen", dataset=dataset, prompts=[factories.make_prompt("look", user=user, system="Look.")], **fields
    )
    (run,) = factories.make_runs(experiment)
    (trial,) = factories.plan_trials(run)
    return trial


def list_parts(trial):
    return [(turn.role, turn.text, bool(turn.image_url)) for turn in rebuild_turns(trial).turns]


def test_text_keeps_its_white_space_and_its_braces(db):
    assert list_parts(make_trial("Say: {{input}}!")) == [
        ("system", "Look.", False),
        ("user", "Say:   a\n\tb {{input}} !", False),
    ]


def test_an_image_and_the_text_after_it_are_one_turn(picture):
    assert list_parts(make_trial("{{image}}What?", picture))[1:] == [("user", "What?", True)]


def test_an_image_between_texts_keeps_its_position(picture):
    assert list_parts(make_trial("Before {{image}} after", picture))[1:] == [
        ("user", "Before ", False),
        ("user", " after", True),
    ]


def test_an_image_at_the_end_is_a_separate_part(picture):
    assert list_parts(make_trial("Before {{image}}", picture))[1:] == [("user", "Before ", False), ("user", "", True)]


def test_the_page_shows_the_salt_of_the_trial(people, as_):
    trial = make_trial("Say: {{input}}", owner=people["owner"], cache_buster=True)
    content = requests.rebuild_messages(trial, None)[-1]["content"]
    assert content.splitlines()[-1] in as_("owner").get(f"/trials/{trial.pk}/").content.decode()


def test_a_request_that_cannot_be_rendered_is_reported(db):
    turns = rebuild_turns(make_trial("{{meta.missing}}"))
    assert turns.turns == []
    assert "meta.missing" in turns.problem


def test_the_page_shows_the_answer_its_cost_every_attempt_and_every_grade(lab, as_):
    factories.make_attempt(lab.trial, outcome="transient", error_class="timeout", error="No answer in 60 s")
    condition = GradeCondition.objects.create(
        experiment=lab.experiment, grade_condition_id="rating--aaaaaaaaaaaa", scorer="rating"
    )
    Grading.objects.create(trial=lab.trial, condition=condition, score=3.5, score_raw="3.5", parse_ok=True)
    page = as_("owner").get(f"/trials/{lab.trial.pk}/").content.decode()
    for text in ("timeout: No answer in 60 s", "Failed, can be retried", "Answered", "</span> Rating", "3.5"):
        assert text in page
    assert f'title="${Decimal("0.00012000")}"' in page


def test_an_unreadable_grade_shows_its_error_code(lab, as_):
    condition = GradeCondition.objects.create(
        experiment=lab.experiment, grade_condition_id="numeric--aaaaaaaaaaaa", scorer="numeric"
    )
    Grading.objects.create(trial=lab.trial, condition=condition, parse_ok=False, parse_error="no_number_found")
    assert "no_number_found" in as_("owner").get(f"/trials/{lab.trial.pk}/").content.decode()


def test_an_unknown_cost_is_unknown_and_not_zero(people, as_):
    experiment = factories.make_experiment("unpriced", owner=people["owner"])
    (run,) = factories.make_runs(experiment)
    trial = factories.plan_trials(run, answer=lambda *_: {"answer": "Yes", "cost_usd": None})[0]
    page = as_("owner").get(f"/trials/{trial.pk}/").content.decode()
    assert "<dt>Cost</dt>" in page
    assert "unknown" in page.split("<dt>Cost</dt>")[1].split("</dd>")[0]
