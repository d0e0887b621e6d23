"""An equal request and epoch get the cached answer at no cost; another wave always makes new calls."""

from decimal import Decimal

import pytest

from datasets_app.models import Dataset
from grading_app.grading.consistency_check import find_differences
from runs_app import run_control
from runs_app.models import Attempt, CachedAnswer, Prompt, Run, Sampler, Trial
from runs_app.models.cache import purge_cache
from tests import factories
from tests.factories.engine import build_reply


def record_requests(text="four", **fields):
    """Return a provider and the list of requests it received."""
    requests = []

    async def call(request):
        requests.append(request)
        return build_reply(text, cost_usd=Decimal("0.01"), **fields)

    return call, requests


def drain_with(call):
    from tests.factories.engine import drain

    return drain(call)


def make_cached_experiment(slug, **fields):
    parts = {"dataset": Dataset.objects.filter(slug="shared").first() or factories.make_dataset("shared")}
    prompt = Prompt.objects.filter(name="same").first() or factories.make_prompt("same")
    sampler = Sampler.objects.filter(name="same").first() or factories.make_sampler("same")
    return factories.make_experiment(
        slug, prompts=[prompt], samplers=[sampler], samples=2, max_usd=None, **{**parts, **fields}
    )


def test_an_equal_request_is_answered_from_the_cache_at_no_cost(transactional_db):
    call, requests = record_requests()
    run_control.launch(make_cached_experiment("first"), by="test")
    drain_with(call)
    second_experiment = make_cached_experiment("second")
    run_control.launch(second_experiment, by="test")
    drain_with(call)

    assert len(requests) == 6
    run = Run.objects.get(experiment=second_experiment)
    assert (run.n_done, run.spent_usd) == (6, 0)
    trials = Trial.objects.filter(run=run)
    assert set(trials.values_list("answer", "from_cache", "cost_usd")) == {("four", True, Decimal(0))}
    assert set(Attempt.objects.filter(run=run).values_list("outcome", flat=True)) == {"cached"}
    assert find_differences() == []


def test_repetitions_are_independent_samples(transactional_db):
    call, requests = record_requests()
    run_control.launch(make_cached_experiment("first"), by="test")
    drain_with(call)
    assert len(requests) == 6
    assert CachedAnswer.objects.count() == 6


def test_a_wave_after_the_first_never_reads_the_cache(transactional_db):
    call, requests = record_requests()
    experiment = make_cached_experiment("first")
    run_control.launch(experiment, by="test")
    drain_with(call)
    run_control.launch(experiment, by="test", wave="again")
    drain_with(call)
    assert len(requests) == 12
    assert not Trial.objects.filter(from_cache=True).exists()


@pytest.mark.slow
def test_an_experiment_can_disable_the_cache(transactional_db):
    call, requests = record_requests()
    for slug in ("first", "second"):
        run_control.launch(make_cached_experiment(slug, cache=False), by="test")
        drain_with(call)
    assert len(requests) == 12
    assert not CachedAnswer.objects.exists()


def test_salted_requests_never_match(transactional_db):
    call, requests = record_requests()
    for slug in ("first", "second"):
        run_control.launch(make_cached_experiment(slug, cache_buster=True), by="test")
        drain_with(call)
    assert len(requests) == 12


def test_a_cache_purge_deletes_all_cached_answers_and_no_trials(transactional_db):
    call, requests = record_requests()
    run_control.launch(make_cached_experiment("first"), by="test")
    drain_with(call)
    assert purge_cache(by="a curator") == 6
    run_control.launch(make_cached_experiment("second"), by="test")
    drain_with(call)
    assert len(requests) == 12
    assert Trial.objects.filter(status="done").count() == 12
