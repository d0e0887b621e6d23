"""Previews in the admin show the first part of a long turn, and link to the whole turn."""

import re
from html import unescape

import pytest
from django.urls import reverse

from grading_app.judging.rubric_preview import RubricPreview, request_preview
from runs_app.llm.rubric_checks import STARTERS
from runs_app.models import Prompt, Trial
from tests import factories
from tests.factories.judges import make_starter_rubric

LONG = "Begin. " + "é<b>" * 20_000 + " The end."
UNSAVED = reverse("admin:grading_app_rubric_preview_unsaved")
LINK = re.compile(r'href="([^"]*)" download>Show the whole text</a>')
BUTTON = re.compile(r'formnovalidate formaction="([^"]*)">Show the whole text</button>')


@pytest.fixture
def answered_experiment(researcher):
    """Return an experiment whose only item has a long input and a long answer."""
    dataset = factories.make_dataset("long-items", [{"key": "long", "input": LONG}])
    experiment = factories.make_experiment("lengthy", owner=researcher, dataset=dataset)
    (run,) = factories.make_runs(experiment, status="done")
    factories.plan_trials(run, answer=lambda *_: LONG)
    return experiment


def follow_link(web, page, address):
    """Return the content of a linked page, as a browser does."""
    response = web.get(page + unescape(address) if address.startswith("?") else unescape(address))
    assert response["Content-Disposition"].startswith("attachment")
    return response.content.decode()


def test_the_preview_of_a_prompt_leads_to_its_whole_turn(as_user, researcher, answered_experiment):
    web, prompt = as_user(researcher), Prompt.objects.get()
    page = reverse("admin:runs_app_prompt_preview", args=[prompt.pk])
    text = web.get(page, {"dataset": answered_experiment.dataset_id, "item": "long"}).content.decode()
    assert "The end." not in text
    (address,) = LINK.findall(text)
    assert LONG in follow_link(web, page, address)
    for number in ("0", "99", "x", "²"):
        assert web.get(page, {"dataset": answered_experiment.dataset_id, "whole": number}).status_code == 404
    assert web.get(page, {"whole": "1"}).status_code == 404


def test_the_preview_of_a_rubric_leads_to_its_whole_turn(as_user, researcher, answered_experiment):
    web = as_user(researcher)
    page = reverse("admin:grading_app_rubric_preview", args=[make_starter_rubric("score").pk])
    text = web.get(page, {"experiment": answered_experiment.pk}).content.decode()
    assert "The end." not in text
    (address,) = LINK.findall(text)
    assert follow_link(web, page, address).count(LONG) == 2
    assert web.get(page, {"experiment": answered_experiment.pk, "whole": "99"}).status_code == 404
    assert web.get(page, {"whole": "1"}).status_code == 404


@pytest.mark.parametrize("headers", [{}, {"HX-Request": "true"}])
def test_the_preview_of_an_unsaved_rubric_sends_its_form_for_the_whole_turn(
    as_user, researcher, answered_experiment, headers
):
    web, starter = as_user(researcher), STARTERS["score"]
    form = {"name": "new", "messages": "", "scale_min": 0, "scale_max": 1, "criteria": "", "labels": ""}
    form |= {"kind": "score", "system": starter.system, "user": starter.user, "experiment": answered_experiment.pk}
    text = web.post(UNSAVED, form, headers=headers).content.decode()
    assert "The end." not in text
    (address,) = BUTTON.findall(text)
    if not headers:
        form = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', text))
        form = {name: unescape(value) for name, value in form.items()}
    assert web.post(unescape(address), form).content.decode().count(LONG) == 2
    assert web.post(f"{UNSAVED}?whole=99", form).status_code == 404
    assert web.get(unescape(address)).status_code == 404


def test_a_short_preview_has_no_link(as_user, researcher):
    dataset = factories.make_dataset("short-items", 1)
    factories.make_experiment("brief", owner=researcher, dataset=dataset)
    page = reverse("admin:runs_app_prompt_preview", args=[Prompt.objects.get().pk])
    assert not LINK.findall(as_user(researcher).get(page, {"dataset": dataset.pk}).content.decode())


def test_the_verdicts_of_a_try_lead_to_whole_answers(as_user, researcher, answered_experiment):
    rubric, sampler = make_starter_rubric("score"), factories.make_sampler("judging", temperature=0.0, max_tokens=200)
    request_preview(RubricPreview(rubric, answered_experiment, factories.make_model("judge"), sampler), by=researcher)
    subject = Trial.objects.get(run__condition__stage="generate")
    text = as_user(researcher).get(reverse("admin:grading_app_rubric_try", args=[rubric.pk])).content.decode()
    assert "The end." not in text
    assert f'<a href="{subject.get_absolute_url()}">Show the whole answer</a>' in text
