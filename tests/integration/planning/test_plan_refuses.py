"""Invalid designs are refused before any row is created, with a message that names the setting to correct."""

import pytest
from django.db import IntegrityError, transaction

from datasets_app.models import Item
from runs_app.models import Condition, Dimension, Experiment, Run, Sampler, Trial
from runs_app.planning import plan as plan_module
from runs_app.planning import token_bounds
from runs_app.planning.work import PlanError
from runs_app.prompt_preview import preview_draft
from tests.factories import NOON, make_endpoint
from tests.factories.drafts import (
    QUESTION,
    make_draft_dimension,
    make_draft_experiment,
    make_draft_sampler,
    make_question_prompt,
    make_questions,
    make_rehearsal_model,
)

pytestmark = pytest.mark.django_db
PICTURE = [{"role": "user", "content": "{{image}} {{input}}"}]


def plan_refused(experiment):
    with pytest.raises(PlanError) as caught:
        plan_module.plan(experiment)
    assert not any(kind.objects.exists() for kind in (Condition, Run, Trial))
    return caught.value.problems


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (lambda: {"status": "archived"}, "experiment pilot is archived"),
        (lambda: {"dataset": make_questions(slug="raw", approve=False)}, "dataset raw@1 is draft; it must be approved"),
        (lambda: {"dataset": make_questions(1, slug="none", excluded={0})}, "dataset none@1 has no active items"),
        (lambda: {"models": []}, "the experiment has no model"),
        (lambda: {"models": [make_rehearsal_model(is_active=False)]}, "model sim-large is not active"),
        (
            lambda: {"models": [make_rehearsal_model(endpoint=make_endpoint("lab", is_active=False))]},
            "endpoint lab of model sim-large is not active",
        ),
        (
            lambda: {"prompts": [make_question_prompt(status="draft")]},
            "prompt plain@1 is draft; a curator must approve it before it is used",
        ),
        (lambda: {"samplers": [make_draft_sampler(status="archived")]}, "sampler greedy@1 is archived"),
        (lambda: {"dimensions": [make_draft_dimension(status="archived")]}, "dimension valence@1 is archived"),
        (
            lambda: {"prompts": [make_question_prompt(answer_format="rating")]},
            "prompt plain@1 asks for a rating, and the experiment has no dimension",
        ),
        (
            lambda: {"prompts": [make_question_prompt(messages=[{"role": "user", "content": "{{meta.year}}"}])]},
            "prompt plain@1: {{meta.year}} has no value for any item",
        ),
        (
            lambda: {"prompts": [make_question_prompt(messages=PICTURE)]},
            "prompt plain@1: {{image}} has no value for any item",
        ),
        (
            lambda: {"models": [make_rehearsal_model(input_price=None)], "max_usd": 5},
            "unknown price: model sim-large has no price, and the experiment has a budget",
        ),
        (
            lambda: {"samplers": [make_draft_sampler(max_tokens=None)], "max_usd": 5},
            "no ceiling: sampler greedy@1 sets no max_tokens, model sim-large has no max_output_tokens, "
            "and the experiment has a budget",
        ),
    ],
)
def test_an_invalid_design_names_the_settings_to_correct(given, problem):
    assert plan_refused(make_draft_experiment(**given())) == [problem]


def test_a_prompt_with_an_image_is_refused_for_a_model_without_vision():
    experiment = make_draft_experiment(
        models=[make_rehearsal_model(sees_images=False)], prompts=[make_question_prompt(messages=PICTURE)]
    )
    assert "prompt plain@1 shows an image, and model sim-large does not see images" in plan_refused(experiment)


def test_a_refused_plan_approves_no_drafts():
    sampler = make_draft_sampler()
    plan_refused(make_draft_experiment(prompts=[make_question_prompt(status="draft")], samplers=[sampler]))
    sampler.refresh_from_db()
    assert sampler.status == "draft"


@pytest.mark.parametrize(
    "fields",
    [
        {"models": lambda: [make_rehearsal_model(endpoint=make_endpoint("free", is_free=True), input_price=None)]},
        {
            "samplers": lambda: [make_draft_sampler(max_tokens=None)],
            "models": lambda: [make_rehearsal_model(max_output_tokens=50)],
        },
        {"samplers": lambda: [make_draft_sampler(max_tokens=None, extra={"max_completion_tokens": 50})]},
    ],
)
def test_a_budget_accepts_a_free_endpoint_or_any_kind_of_output_limit(fields):
    plan_module.plan(make_draft_experiment(max_usd=5, **{name: make() for name, make in fields.items()}))
    assert Run.objects.count() == 1


def test_without_a_budget_an_unknown_price_reserves_nothing():
    plan_module.plan(make_draft_experiment(models=[make_rehearsal_model(input_price=None)]))
    assert Run.objects.get().reserve_usd == 0


def test_items_that_a_prompt_cannot_render_cause_a_warning():
    dataset = make_questions(3, approve=False)
    Item.objects.filter(dataset=dataset, key="q000000").update(metadata={"year": 2020})
    dataset.refresh_counts()
    type(dataset).objects.transition_one(
        dataset, sources=["draft"], target="approved", by="test", content_hash="0" * 64, approved_at=NOON
    )
    prompt = make_question_prompt(messages=[{"role": "user", "content": "{{input}} in {{meta.year}}"}])
    report = plan_module.plan(make_draft_experiment(dataset=dataset, prompts=[prompt]))
    assert report.warnings == ["prompt plain@1: {{meta.year}} has no value for 2 of 3 items; those trials fail"]


def test_rows_that_trials_refer_to_cannot_be_deleted():
    """Foreign keys of trials are not checked per row, so the rows they refer to must not be deleted."""
    experiment = make_draft_experiment(dimensions=[make_draft_dimension()])
    plan_module.plan(experiment)
    referenced = (Run.objects.all(), Item.objects.all(), Dimension.objects.all(), Sampler.objects.all())
    for rows in referenced:
        with pytest.raises(IntegrityError), transaction.atomic():
            rows._raw_delete(rows.db)
    assert Trial.objects.count() == 3


def test_deleting_an_experiment_deletes_its_conditions_runs_and_trials():
    experiment = make_draft_experiment()
    plan_module.plan(experiment)
    Experiment.objects.get(pk=experiment.pk).delete()
    assert not any(kind.objects.exists() for kind in (Condition, Run, Trial))


def test_a_prompt_whose_request_is_too_long_is_refused_with_its_name_the_item_and_the_limit():
    dataset = make_questions(["short", "x" * 200_000])
    prompt = make_question_prompt("echo", messages=[{"role": "user", "content": "{{input}}" * 400}])
    (problem,) = plan_refused(make_draft_experiment(dataset=dataset, prompts=[prompt]))
    assert problem == (
        "prompt echo@1: the request about item q000001 would have 80,000,000 characters; at most 2,000,000 are sent"
    )


def test_items_are_not_measured_for_a_prompt_that_cannot_be_too_long(monkeypatch):
    monkeypatch.setattr("runs_app.planning.token_bounds.requests_module.build_question", None)
    dataset, prompt = make_questions(["x" * 200_000]), make_question_prompt("echo", messages=QUESTION)
    assert token_bounds.find_longest_request(prompt, dataset, []) == ("", 0)


def test_the_preview_of_a_request_that_is_too_long_names_prompt_and_item():
    dataset = make_questions(["x" * 200_000])
    prompt = make_question_prompt("echo", messages=[{"role": "user", "content": "{{input}}" * 400}])
    turns = preview_draft(Experiment(), prompt, dataset.items.get(), None)
    assert turns.turns == []
    assert turns.problem.startswith("prompt echo@1, item q000000: the request would have 80,000,000 characters")
