"""Previews in the library show the first part of a long turn, and link to the whole turn."""

import re
from html import unescape

import pytest
from django.urls import reverse

from grading_app.grading.judging.rubric_preview import RubricPreview
from runs_app.llm.rubric_checks import STARTERS
from runs_app.models import Trial
from tests import factories
from tests.factories.judges import make_starter_rubric

LONG = "Begin. " + "é<b>" * 20_000 + " The end."
RUBRICS, PROMPTS = (reverse("library_preview", args=[kind]) for kind in ("rubrics", "prompts"))
BUTTON = re.compile(r'formnovalidate formaction="([^"]*)">Show the whole text</button>')


@pytest.fixture
def answered_experiment(researcher):
    """Return an experiment whose only item has a long input and a long answer."""
    dataset = factories.make_dataset("long-items", [{"key": "long", "input": LONG}])
    experiment = factories.make_experiment("lengthy", owner=researcher, dataset=dataset)
    (run,) = factories.make_runs(experiment, status="done")
    factories.plan_trials(run, answer=lambda *_: LONG)
    return experiment


def build_prompt_data(**fields):
    return {"answer_format": "text", "system": "", "user": "{{input}}", "messages": "", **fields}


def test_the_preview_of_a_prompt_leads_to_its_whole_turn(as_user, researcher, answered_experiment):
    web, data = as_user(researcher), build_prompt_data(dataset=answered_experiment.dataset_id, item="long")
    text = web.post(PROMPTS, data).content.decode()
    assert "The end." not in text
    (address,) = BUTTON.findall(text)
    response = web.post(unescape(address), data)
    assert response["Content-Disposition"].startswith("attachment")
    assert LONG in response.content.decode()
    for number in ("0", "99", "x", "²"):
        assert web.post(f"{PROMPTS}?whole={number}", data).status_code == 404
    assert web.post(f"{PROMPTS}?whole=1", build_prompt_data()).status_code == 404


@pytest.mark.parametrize("headers", [{}, {"HX-Request": "true"}])
def test_the_preview_of_an_unsaved_rubric_sends_its_form_for_the_whole_turn(
    as_user, researcher, answered_experiment, headers
):
    web, starter = as_user(researcher), STARTERS["score"]
    form = {"name": "new", "messages": "", "scale_min": 0, "scale_max": 1, "criteria": "", "labels": ""}
    form |= {"kind": "score", "system": starter.system, "user": starter.user, "experiment": answered_experiment.pk}
    text = web.post(RUBRICS, form, headers=headers).content.decode()
    assert "The end." not in text
    (address,) = BUTTON.findall(text)
    if not headers:
        form = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', text))
        form = {name: unescape(value) for name, value in form.items()}
    assert web.post(unescape(address), form).content.decode().count(LONG) == 2
    assert web.post(f"{RUBRICS}?whole=99", form).status_code == 404
    assert web.get(unescape(address)).status_code == 405


def test_a_short_preview_has_no_link(as_user, researcher):
    dataset = factories.make_dataset("short-items", 1)
    assert not BUTTON.findall(as_user(researcher).post(PROMPTS, build_prompt_data(dataset=dataset.pk)).content.decode())


def test_the_verdicts_of_a_try_lead_to_whole_answers(as_user, researcher, answered_experiment):
    rubric, sampler = make_starter_rubric("score"), factories.make_sampler("judging", temperature=0.0, max_tokens=200)
    RubricPreview(rubric, answered_experiment, factories.make_model("judge"), sampler).request(by=researcher)
    subject = Trial.objects.get(run__condition__stage="generate")
    text = as_user(researcher).get(reverse("rubric_test", args=[rubric.name, rubric.version])).content.decode()
    assert "The end." not in text
    assert f'<a href="{subject.get_absolute_url()}">Show the whole answer</a>' in text
