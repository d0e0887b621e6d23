"""Budgets and prices that change during a run: every claim reserves at least the maximum cost of its call."""

from decimal import Decimal

import pytest
from django.db import IntegrityError

from grading_app.grading.consistency_check import find_differences
from runs_app import run_control
from runs_app.engine.design_cache import DesignCache
from runs_app.engine.recorder import record_results
from runs_app.engine.worker_registration import WorkerRegistration
from runs_app.forms.experiments import LaunchedExperimentForm
from runs_app.llm.parameters import EXTRA_NAMES
from runs_app.model_lists import Repricing, apply_repricings
from runs_app.models import Endpoint, Experiment, LanguageModel, Run, Sampler
from runs_app.models.runs import Unbounded
from runs_app.views.endpoints import EndpointForm, LanguageModelForm
from tests import factories
from tests.factories.call_outcomes import build_outcome_result
from tests.factories.engine import admit

PRICE = Decimal(10_000)  # Per million tokens: 100 tokens cost one dollar.


@pytest.fixture
def launched_experiment(transactional_db):
    """An experiment of sixty trials that cost at most ten dollars each, without a budget."""
    model = factories.make_model(max_output_tokens=1000, input_price=0, output_price=PRICE)
    experiment = factories.make_experiment("dear", models=[model], samples=20, max_usd=None)
    run_control.launch(experiment, by="test")
    return experiment


def build_budget_form(experiment, budget):
    data = {"sharing": "private", "samples": experiment.samples, "on_empty": "keep", "max_usd": budget}
    return LaunchedExperimentForm(data, instance=Experiment.objects.get(pk=experiment.pk), user="test")


def test_a_budget_set_during_a_run_applies_to_the_next_claim(launched_experiment):
    Run.objects.update(reserve_usd=0)
    form = build_budget_form(launched_experiment, "25")
    assert form.is_valid(), form.errors
    form.save()
    assert Run.objects.get().reserve_usd == 10
    assert len(admit(WorkerRegistration().worker_id, 60)) == 2
    assert find_differences() == []


@pytest.mark.parametrize(
    ("unknown", "message"),
    [({"output_price": None}, "unknown price: model small"), ({"max_output_tokens": None}, "no ceiling")],
)
def test_a_budget_is_refused_if_a_call_has_no_cost_ceiling(launched_experiment, unknown, message):
    LanguageModel.objects.filter(name="small").update(**unknown)
    form = build_budget_form(launched_experiment, "25")
    assert message in " ".join(form.errors["max_usd"])
    assert build_budget_form(launched_experiment, "").is_valid()


def test_the_reservation_uses_the_larger_of_two_output_limits(transactional_db):
    model = factories.make_model(input_price=0, output_price=PRICE)
    sampler = factories.make_sampler("sly", max_tokens=10, extra={"max_completion_tokens": 1000})
    experiment = factories.make_experiment("sly", models=[model], samplers=[sampler], samples=20, max_usd=25)
    run_control.launch(experiment, by="test")
    assert Run.objects.get().reserve_usd == 10
    assert len(admit(WorkerRegistration().worker_id, 60)) == 2


@pytest.mark.parametrize("extra", [{"n": 5}, {"models": ["dearer"]}, ["n"], "n", 5])
def test_the_database_refuses_a_sampler_with_unknown_parameters(db, extra):
    sampler = factories.make_sampler("sly", status="draft")
    with pytest.raises(IntegrityError, match="sampler_extra_is_allowed"):
        Sampler.objects.filter(pk=sampler.pk).update(extra=extra)


def test_the_database_accepts_every_allowed_sampler_parameter(db):
    extra = dict.fromkeys(EXTRA_NAMES, 1)
    factories.make_sampler("wide", extra=extra)
    assert Sampler.objects.get(name="wide").extra == extra


@pytest.mark.parametrize("name", ["DATABASE_URL", "EVALSITE_SECRET_KEY", "PATH", "lab_key", "DJANGO_KEY"])
def test_the_database_refuses_an_endpoint_whose_key_variable_is_not_an_api_key(db, name):
    with pytest.raises(IntegrityError, match="endpoint_key_env_is_a_key"):
        factories.make_endpoint("greedy", key_env=name)


@pytest.mark.parametrize("new", [5 * PRICE, PRICE / 5])
def test_a_call_keeps_the_price_of_its_reservation(launched_experiment, new):
    """Otherwise a claim made after a price cut would reserve less than its call costs at the old price."""
    worker, questions = WorkerRegistration().worker_id, DesignCache()
    prices = []
    for _ in range(2):
        (claim,) = questions.fetch(admit(worker, 1))
        prices.append((claim.reserved_usd, questions.get(claim)[0].target.prices.output))
        model = LanguageModel.objects.get()
        model.output_price = new
        model.save()
    assert prices == [(10, PRICE), (new / 1_000, new)]


def test_claims_after_a_price_increase_reserve_the_new_price(launched_experiment):
    Experiment.objects.update(max_usd=200)
    worker = WorkerRegistration().worker_id
    before = admit(worker, 4)
    model = LanguageModel.objects.get()
    model.output_price = 5 * PRICE
    model.save()
    assert Run.objects.get().reserve_usd == 50
    after = admit(worker, 60)
    assert ([claim.reserved_usd for claim in before], [claim.reserved_usd for claim in after]) == ([10] * 4, [50] * 3)
    record_results([build_outcome_result(claim, ("answer", claim.reserved_usd)) for claim in (*before, *after)], worker)
    assert Experiment.objects.get().spent_usd == 190
    assert find_differences() == []


def test_an_endpoint_that_is_no_longer_free_reserves_the_prices_of_its_models(launched_experiment):
    Endpoint.objects.update(is_free=True)
    Run.objects.all().update_reservations()
    assert Run.objects.get().reserve_usd == 0
    endpoint = Endpoint.objects.get()
    endpoint.is_free = False
    endpoint.save()
    assert Run.objects.get().reserve_usd == 10


def test_a_price_cannot_be_removed_from_a_model_with_a_budget(launched_experiment):
    Experiment.objects.update(max_usd=200)
    model = LanguageModel.objects.get()
    data = {"name": "small", "endpoint": model.endpoint_id, "model": model.model, "batch_discount": "0.5"}
    form = LanguageModelForm(data, instance=model)
    assert "unknown price: model small has no price, and experiment dear has a budget" in form.errors["input_price"]
    with pytest.raises(Unbounded, match="experiment dear"):
        form.instance.save()
    assert LanguageModel.objects.get().output_price == PRICE


def test_an_endpoint_cannot_stop_being_free_if_a_budgeted_model_has_no_price(launched_experiment):
    Endpoint.objects.update(is_free=True)
    LanguageModel.objects.update(output_price=None)
    Experiment.objects.update(max_usd=200)
    form = EndpointForm({"name": "lab", "provider": "openai", "max_concurrency": 1}, instance=Endpoint.objects.get())
    assert "unknown price: model small" in " ".join(form.errors["is_free"])


def test_applying_a_listed_price_updates_reservations_immediately(launched_experiment):
    model = LanguageModel.objects.get()
    before = {"output_price": model.output_price}
    assert apply_repricings([Repricing(model, before, {"output_price": 5 * PRICE})], by="a test") == 1
    assert Run.objects.get().reserve_usd == 50


def test_a_price_can_be_removed_after_the_runs_end(launched_experiment):
    run_control.cancel(Run.objects.all(), by="test", reason="wrong prompt")
    Experiment.objects.update(max_usd=200)
    model = LanguageModel.objects.get()
    model.output_price = None
    model.full_clean()
    model.save()
    assert Run.objects.get().reserve_usd == 10


def test_a_batched_run_reserves_its_largest_request_and_longest_answer_at_batch_prices(launched_experiment):
    Run.objects.update(request_tokens=7, is_batched=True)
    model = LanguageModel.objects.get()
    model.input_price, model.batch_discount = PRICE, Decimal("0.25")
    model.save()
    assert Run.objects.get().reserve_usd == Decimal("0.0075") * (7 + 1000)
