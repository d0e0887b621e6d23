"""An estimate has a ceiling and an expected cost, and states the basis of both."""

from datetime import date
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from datasets_app.models import Asset
from runs_app.models import LanguageModel, Run, Sampler
from runs_app.planning import plan as plan_module
from runs_app.planning.cost_estimate import estimate
from runs_app.pricing import tokens
from tests.factories.drafts import (
    make_draft_dimension,
    make_draft_experiment,
    make_draft_sampler,
    make_question_prompt,
    make_questions,
    make_rehearsal_model,
)

pytestmark = pytest.mark.django_db
MILLION = 1_000_000


def compute_ceiling(texts, max_tokens, *, input_price="0.5", output_price="1.5", besides=0):
    """Return the ceiling of one request. `besides` is the number of tokens that are not text."""
    n = tokens.estimate_by_bytes(texts) + besides
    return (n * Decimal(input_price) + max_tokens * Decimal(output_price)) / MILLION


def test_the_ceiling_is_based_on_the_longest_item():
    experiment = make_draft_experiment(dataset=make_questions(["short", "a much longer question " * 20, "mid"]))
    forecast = estimate(experiment)
    each = compute_ceiling(["Answer the question.", "a much longer question " * 20 + "\n\n[0123456789]"], 100)
    assert (forecast.trials, forecast.to_do, forecast.ceiling_usd) == (3, 3, 3 * each)


def test_tokens_are_estimated_from_bytes_and_not_from_characters():
    latin = estimate(
        make_draft_experiment("a", dataset=make_questions(["aaaa" * 10]), prompts=[make_question_prompt("a")])
    )
    longer = estimate(
        make_draft_experiment(
            "b",
            dataset=make_questions(["猫猫猫猫" * 10]),
            models=LanguageModel.objects.all(),
            prompts=[make_question_prompt("b")],
            samplers=Sampler.objects.all(),
        )
    )
    assert longer.ceiling_usd > latin.ceiling_usd


def test_the_ceiling_includes_the_longest_dimension_its_hint_and_its_schema():
    turns = [{"role": "user", "content": "{{input}} {{dimension_instructions}}"}]
    experiment = make_draft_experiment(
        dataset=make_questions(["x"]),
        prompts=[make_question_prompt(messages=turns, answer_format="rating")],
        dimensions=[
            make_draft_dimension("a", instructions="short"),
            make_draft_dimension("b", instructions="long " * 50),
        ],
    )
    hint = 'Answer with JSON alone: {"rating": N}, where N is an integer from 1 to 7.'
    schema = (
        '{"json_schema":{"name":"rating","schema":{"additionalProperties":false,"properties":{"rating":'
        '{"enum":[1,2,3,4,5,6,7],"type":"integer"}},"required":["rating"],"type":"object"},"strict":true},'
        '"type":"json_schema"}'
    )
    texts = [f"x {'long ' * 50}\n\n{hint}\n\n[0123456789]", schema]
    each = compute_ceiling(texts, 100, besides=tokens.BYTES.schema_charge)
    assert estimate(experiment).ceiling_usd == 2 * each


def test_the_ceiling_includes_the_largest_image():
    large = Asset.objects.create(sha256="a" * 64, format="png", width=2000, height=1000, size=1)
    turns = [{"role": "user", "content": "{{image}}{{input}}"}]
    experiment = make_draft_experiment(
        dataset=make_questions(["x"], image=large), prompts=[make_question_prompt(messages=turns)]
    )
    each = compute_ceiling(["x\n\n[0123456789]"], 100, besides=tokens.UNKNOWN.count_tokens(2000, 1000))
    assert estimate(experiment).ceiling_usd == each


def test_the_reservation_of_a_run_is_the_ceiling_of_one_call():
    experiment = make_draft_experiment(dataset=make_questions(["x"]))
    plan_module.plan(experiment)
    each = estimate(experiment).ceiling_usd
    assert 0 <= Run.objects.get().reserve_usd - each < Decimal("0.00000001")


def test_planning_again_updates_the_reservation_to_new_prices():
    experiment = make_draft_experiment(dataset=make_questions(["x"]))
    plan_module.plan(experiment)
    before = Run.objects.get().reserve_usd
    LanguageModel.objects.update(output_price=150)
    plan_module.plan(experiment)
    assert Run.objects.get().reserve_usd > 50 * before


def test_an_unknown_price_makes_the_cost_unknown_and_its_model_is_named():
    experiment = make_draft_experiment(models=[make_rehearsal_model("a"), make_rehearsal_model("b", output_price=None)])
    forecast = estimate(experiment)
    assert (forecast.ceiling_usd, forecast.expected_usd, forecast.unknown_prices) == (None, None, ["b"])
    strict = make_draft_experiment("c", models=[], prompts=[], samplers=[], confirm_above_usd=9)
    assert strict.needs_confirmation(forecast.ceiling_usd)


def test_prices_have_their_source_and_date():
    model = make_rehearsal_model(price_source="the provider's page", price_date=date(2026, 2, 1))
    (price,) = estimate(make_draft_experiment(models=[model])).prices
    assert (price.model, price.input, price.source, price.as_of) == (
        "sim-large",
        Decimal("0.5"),
        "the provider's page",
        date(2026, 2, 1),
    )


def test_done_trials_are_excluded_and_observed_tokens_give_the_expected_cost():
    experiment = make_draft_experiment(
        models=[make_rehearsal_model("a"), make_rehearsal_model("b")], dataset=make_questions(10)
    )
    plan_module.plan(experiment)
    run = Run.objects.get(condition__model__name="a")
    Run.objects.filter(pk=run.pk).update(n_pending=6, n_done=4, input_tokens=400, output_tokens=40)
    forecast = estimate(experiment)
    each = (100 * Decimal("0.5") + 10 * Decimal("1.5")) / MILLION
    assert (forecast.trials, forecast.to_do) == (20, 16)
    assert forecast.basis == {"own": 6, "pooled": 10}
    assert (forecast.coverage, forecast.expected_usd) == (1.0, 16 * each)
    assert forecast.ceiling_usd > forecast.expected_usd


def test_an_estimate_of_many_models_needs_no_more_queries_than_of_two():
    sampler = make_draft_sampler("greedy")

    def count_queries(slug, n_models):
        models = [make_rehearsal_model(f"{slug}-{number}") for number in range(n_models)]
        prompts = [make_question_prompt(slug)]
        experiment = make_draft_experiment(
            slug, dataset=make_questions(["x"], slug=slug), models=models, prompts=prompts, samplers=[sampler]
        )
        with CaptureQueriesContext(connection) as queries:
            assert estimate(experiment).trials == n_models
        return len(queries)

    assert count_queries("many", 12) == count_queries("two", 2)


def test_without_observations_the_expected_cost_equals_the_ceiling():
    forecast = estimate(make_draft_experiment())
    assert (forecast.expected_usd, forecast.basis, forecast.coverage) == (forecast.ceiling_usd, {"ceiling": 3}, 0.0)


def test_the_estimate_of_a_new_wave_counts_all_its_trials():
    experiment = make_draft_experiment()
    plan_module.plan(experiment)
    Run.objects.update(n_pending=0, n_done=3, status="done")
    assert estimate(experiment).to_do == 0
    assert estimate(experiment, wave_label="march").to_do == 3


def test_the_ceiling_is_compared_with_the_remaining_budget():
    experiment = make_draft_experiment(max_usd=1, spent_usd=Decimal("0.99999"))
    assert experiment.may_exceed_budget(estimate(experiment).ceiling_usd)
    experiment.spent_usd = Decimal(0)
    assert not experiment.may_exceed_budget(estimate(experiment).ceiling_usd)


def test_an_invalid_draft_still_has_an_estimate():
    forecast = estimate(
        make_draft_experiment(prompts=[make_question_prompt(status="draft")], dataset=make_questions(2, approve=False))
    )
    assert (forecast.trials, len(forecast.problems)) == (2, 2)
    assert forecast.ceiling_usd > 0
