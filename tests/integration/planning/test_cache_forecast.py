"""The estimate forecasts cache hits and separates the remaining cost from the full cost."""

from datetime import timedelta

import pytest
from django.utils import timezone

from runs_app.models import Endpoint, LanguageModel, LedgerEntry, Prompt, Run, Sampler, cache
from runs_app.planning import plan as plan_module
from runs_app.planning.cost_estimate import estimate
from tests.factories.drafts import make_draft_dimension, make_draft_experiment, make_questions
from tests.factories.tampering import disable_triggers
from tests.page_text import page_text
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db


def make_equal_design(slug, cached, **fields):
    return make_draft_experiment(
        slug,
        dataset=fields.pop("dataset", cached.dataset),
        models=LanguageModel.objects.all(),
        prompts=Prompt.objects.all(),
        samplers=Sampler.objects.all(),
        **fields,
    )


@shared_rows
def cached():
    """An experiment with three done trials, whose answers are cached."""
    experiment = make_draft_experiment("known", samples=1)
    plan_module.plan(experiment)
    Run.objects.update(
        n_pending=0, n_done=3, input_tokens=300, output_tokens=30, started_at=timezone.now(), status="done"
    )
    return experiment


def test_an_equal_design_is_forecast_to_come_from_the_cache(cached):
    forecast = estimate(make_equal_design("again", cached))
    assert (forecast.to_do, forecast.foreseen, forecast.expected_usd) == (3, 3, 0)
    assert forecast.full_usd > 0
    assert forecast.ceiling_usd > 0, "a ceiling counts on nothing"


def test_an_expected_cost_of_zero_names_the_cache_as_its_reason(cached, client):
    owner = make_equal_design("again", cached).owner
    type(owner).objects.filter(pk=owner.pk).update(is_superuser=True)
    client.force_login(owner)
    for address in ("/experiments/again/", "/experiments/again/launch/"):
        text = page_text(client.get(address))
        assert "the cache probably has all answers" in text
        assert "no answers yet to estimate from" not in text


def test_cache_hits_of_more_samples_are_forecast_for_the_cached_samples(cached):
    forecast = estimate(make_equal_design("twice", cached, samples=2))
    assert (forecast.to_do, forecast.foreseen) == (6, 3)
    assert 0 < forecast.expected_usd < forecast.full_usd


def test_cache_hits_of_a_run_with_more_samples_are_forecast_for_the_shared_samples(cached):
    type(cached).objects.update(samples=3)
    assert estimate(make_equal_design("less", cached, samples=1)).foreseen == 1


@pytest.mark.parametrize("fields", [{"cache": False}, {"cache_buster": True}])
def test_no_cache_hits_are_forecast_if_the_cache_is_not_read(cached, fields):
    assert estimate(make_equal_design("again", cached, **fields)).foreseen == 0


def test_no_cache_hits_are_forecast_for_a_later_wave_other_items_or_other_dimensions(cached):
    repeated = make_equal_design("again", cached)
    plan_module.plan(repeated)
    assert estimate(repeated).foreseen == 3
    assert estimate(repeated, wave_label="second").foreseen == 0
    assert estimate(make_equal_design("others", cached, dataset=make_questions(3))).foreseen == 0
    assert estimate(make_equal_design("rated", cached, dimensions=[make_draft_dimension()])).foreseen == 0


def test_no_cache_hits_are_forecast_after_a_cache_purge(cached):
    cache.purge_cache(by="a curator")
    assert estimate(make_equal_design("again", cached)).foreseen == 0
    Run.objects.filter(experiment=cached).update(started_at=timezone.now() + timedelta(seconds=1))
    assert estimate(make_equal_design("later", cached)).foreseen == 3


def test_the_estimate_separates_the_remaining_cost_from_the_full_cost(cached):
    type(cached).objects.update(samples=2)
    cached.refresh_from_db()
    forecast = estimate(cached)
    assert (forecast.trials, forecast.to_do) == (6, 3)
    assert forecast.full_usd == 2 * forecast.expected_usd


def mark_reused(experiment, n):
    """Plan the experiment and mark `n` of its trials as answered from the cache; return its run."""
    plan_module.plan(experiment)
    run = Run.objects.get(experiment=experiment)
    with disable_triggers():
        LedgerEntry.objects.create(run=run, at=timezone.now(), attempts=n, answered=n, reused=n)
    Run.objects.filter(pk=run.pk).update(n_pending=run.n_pending - n, n_done=n)
    return run


def test_reused_answers_are_not_forecast_again(cached):
    repeated = make_equal_design("again", cached, samples=2)
    mark_reused(repeated, 2)
    forecast = estimate(repeated)
    assert (forecast.to_do, forecast.foreseen) == (4, 1)


def test_cached_answers_do_not_change_the_expected_tokens(cached):
    repeated = make_equal_design("again", cached, samples=2)
    mark_reused(repeated, 3)
    forecast = estimate(repeated)
    assert forecast.basis == {"ceiling": 3}
    assert forecast.expected_usd == forecast.ceiling_usd > 0


def test_the_same_model_at_another_endpoint_has_its_own_trials(cached):
    (model,) = LanguageModel.objects.all()
    elsewhere = Endpoint.objects.create(name="elsewhere", provider=model.endpoint.provider, base_url="http://other/v1")
    LanguageModel.objects.create(
        name="twin",
        endpoint=elsewhere,
        model=model.model,
    )
    repeated = make_equal_design("both", cached)
    plan_module.plan(repeated)
    assert estimate(repeated).to_do == 6
