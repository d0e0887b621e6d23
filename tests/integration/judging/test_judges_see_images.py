"""Rubrics with {{image}}: the judge receives the item's image exactly once, at that position."""

import base64
import hashlib
import json

import pytest

from grading_app.grading.judging.judge_plan import request_verdicts
from grading_app.grading.judging.verdict_reader import read_verdicts
from grading_app.models import Grading
from runs_app.planning.work import PlanError
from tests import factories
from tests.factories.judges import make_grader, make_rubric
from tests.factories.queues import make_numbered_items
from tests.integration.gateway.fake_provider import make_completion, run_fake_provider
from tests.integration.judging.test_judging_over_http import drain_over_http

LONG = "Be strict, and mind each of these rules. " * 400
MARK = {"type": "ephemeral"}


@pytest.fixture
def provider(transactional_db):
    with run_fake_provider() as fake:
        fake.reply = make_completion('{"score": 1, "reasoning": "I see it."}')
        yield fake


def make_answered_experiment():
    """Return an experiment with three image items and one answer to each."""
    experiment = factories.make_experiment("pictures", dataset=make_numbered_items(items=3, images=True), max_usd=None)
    (run,) = factories.make_runs(experiment, status="done")
    factories.plan_trials(run, answer=lambda item, *_: f"the answer to {item.key}")
    return experiment


def judge_images(experiment, provider, user, **model):
    endpoint = factories.make_endpoint("router", provider="openrouter", base_url=provider.url, is_free=True)
    messages = [{"role": "system", "content": f"{LONG} {{{{verdict_form}}}}"}, {"role": "user", "content": user}]
    grader = make_grader(
        rubric=make_rubric(messages=messages),
        model=factories.make_model("judge", endpoint=endpoint, model="anthropic/claude-x", **model),
    )
    request_verdicts(experiment, [grader], [experiment.waves.get()], by="test")
    drain_over_http()
    read_verdicts(experiment)
    return [request.body["messages"] for request in provider.requests]


def get_parts(messages):
    return messages[-1]["content"]


def hash_picture(part):
    return hashlib.sha256(base64.b64decode(part["image_url"]["url"].partition("base64,")[2])).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("cache_marks", [False, True])
def test_the_items_image_is_sent_exactly_once_between_the_surrounding_texts(provider, cache_marks):
    experiment = make_answered_experiment()
    requests = judge_images(
        experiment, provider, "Look at this:\n{{image}}\nIts answer:\n{{answer}}", cache_marks=cache_marks
    )
    pictures = {item.key: item.image_id for item in experiment.dataset.items.all()}
    assert len(requests) == len(pictures) == 3
    for messages in requests:
        before, picture, after = get_parts(messages)
        assert [part["type"] for part in (before, picture, after)] == ["text", "image_url", "text"]
        assert (before["text"].strip(), before.get("cache_control")) == ("Look at this:", MARK if cache_marks else None)
        assert after["text"].strip().startswith("Its answer:")
        (key,) = (key for key in pictures if f"the answer to {key}\n" in after["text"])
        assert hash_picture(picture) == pictures.pop(key)
        assert json.dumps(messages).count("base64,") == 1
    assert Grading.objects.filter(score=1).count() == 3


@pytest.mark.slow
def test_a_leading_image_leaves_the_cache_mark_on_the_previous_turn(provider):
    requests = judge_images(make_answered_experiment(), provider, "{{image}}\n{{answer}}", cache_marks=True)
    for messages in requests:
        (system,) = messages[0]["content"]
        assert system["cache_control"] == MARK
        assert [part["type"] for part in get_parts(messages)] == ["image_url", "text"]
        assert not any("cache_control" in part for part in get_parts(messages))
        assert json.dumps(messages).count("base64,") == 1


@pytest.mark.slow
def test_a_judge_without_image_support_is_refused_by_name_before_any_call(provider):
    with pytest.raises(PlanError, match="rubric standard@1 shows an image, and model judge does not see images"):
        judge_images(make_answered_experiment(), provider, "{{image}}\n{{answer}}", sees_images=False)
    assert provider.requests == []
