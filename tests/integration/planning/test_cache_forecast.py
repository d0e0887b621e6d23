"""The estimate forecasts cache hits and separates the remaining cost from the full cost."""

from datetime import timedelta

import pytest
from django.utils import timezone

from runs_app import cache_purge
from runs_app.models import Endpoint, LanguageModel, LedgerEntry, Prompt, Run, Sampler
from runs_app.planning import plan as plan_module
from runs_app.planning.cost_estimate import estimate
from tests.factories.drafts import make_draft_dimension, make_draft_experiment, make_questions
from tests.factories.tampering import without_triggers
from tests.page_text import page_text

pytestmark = pytest.mark.django_db


def same_design(slug, known, **fields):
    return make_draft_experiment(
        slug,
        dataset=fields.pop("dataset", known.dataset),
        models=LanguageModel.objects.all(),
        prompts=Prompt.objects.all(),
        samplers=Sampler.objects.all(),
        **fields,
    )


@pytest.fixture
def known():
    """An experiment with three done trials, whose answers are cached."""
    experiment = make_draft_experiment("known", samples=1)
    plan_module.plan(experiment)
    Run.objects.update(
        n_pending=0, n_done=3, input_tokens=300, output_tokens=30, started_at=timezone.now(), status="done"
    )
    return experiment


def test_an_equal_design_is_forecast_to_come_from_the_cache(known):
    found = estimate(same_design("again", known))
    assert (found.to_do, found.foreseen, found.expected_usd) == (3, 3, 0)
    assert found.full_usd > 0
    assert found.ceiling_usd > 0, "a ceiling counts on nothing"


def test_an_expected_cost_of_zero_names_the_cache_as_its_reason(known, client):
    owner = same_design("again", known).owner
    type(owner).objects.filter(pk=owner.pk).update(is_superuser=True)
    client.force_login(owner)
    for address in ("/experiments/again/", "/experiments/again/launch/"):
        text = page_text(client.get(address))
        assert "the cache probably has all answers" in text
        assert "no answers yet to estimate from" not in text


def test_cache_hits_of_more_samples_are_forecast_for_the_cached_samples(known):
    found = estimate(same_design("twice", known, samples=2))
    assert (found.to_do, found.foreseen) == (6, 3)
    assert 0 < found.expected_usd < found.full_usd


def test_cache_hits_of_a_run_with_more_samples_are_forecast_for_the_shared_samples(known):
    type(known).objects.update(samples=3)
    assert estimate(same_design("less", known, samples=1)).foreseen == 1


@pytest.mark.parametrize("fields", [{"cache": False}, {"cache_buster": True}])
def test_no_cache_hits_are_forecast_if_the_cache_is_not_read(known, fields):
    assert estimate(same_design("again", known, **fields)).foreseen == 0


def test_no_cache_hits_are_forecast_for_a_later_wave_other_items_or_other_dimensions(known):
    again = same_design("again", known)
    plan_module.plan(again)
    assert estimate(again).foreseen == 3
    assert estimate(again, wave_label="second").foreseen == 0
    assert estimate(same_design("others", known, dataset=make_questions(3))).foreseen == 0
    assert estimate(same_design("rated", known, dimensions=[make_draft_dimension()])).foreseen == 0


def test_no_cache_hits_are_forecast_after_a_cache_purge(known):
    cache_purge.purge(by="a curator")
    assert estimate(same_design("again", known)).foreseen == 0
    Run.objects.filter(experiment=known).update(started_at=timezone.now() + timedelta(seconds=1))
    assert estimate(same_design("later", known)).foreseen == 3


def test_the_estimate_separates_the_remaining_cost_from_the_full_cost(known):
    type(known).objects.update(samples=2)
    known.refresh_from_db()
    found = estimate(known)
    assert (found.trials, found.to_do) == (6, 3)
    assert found.full_usd == 2 * found.expected_usd


def reused(experiment, n):
    """Plan the experiment and mark `n` of its trials as answered from the cache; return its run."""
    plan_module.plan(experiment)
    run = Run.objects.get(experiment=experiment)
    with without_triggers():
        LedgerEntry.objects.create(run=run, at=timezone.now(), attempts=n, answered=n, reused=n)
    Run.objects.filter(pk=run.pk).update(n_pending=run.n_pending - n, n_done=n)
    return run


def test_reused_answers_are_not_forecast_again(known):
    again = same_design("again", known, samples=2)
    reused(again, 2)
    found = estimate(again)
    assert (found.to_do, found.foreseen) == (4, 1)


def test_cached_answers_do_not_change_the_expected_tokens(known):
    again = same_design("again", known, samples=2)
    reused(again, 3)
    found = estimate(again)
    assert found.basis == {"ceiling": 3}
    assert found.expected_usd == found.ceiling_usd > 0


def test_the_same_model_at_another_endpoint_has_its_own_trials(known):
    (model,) = LanguageModel.objects.all()
    elsewhere = Endpoint.objects.create(name="elsewhere", provider=model.endpoint.provider, base_url="http://other/v1")
    LanguageModel.objects.create(
        name="twin",
        endpoint=elsewhere,
        model=model.model,
    )
    both = same_design("both", known)
    plan_module.plan(both)
    assert estimate(both).to_do == 6
