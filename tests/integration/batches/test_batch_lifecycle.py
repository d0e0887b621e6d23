"""The life of a batch from trials to answers, for both kinds of batch APIs."""

import pytest

from grading_app.grading.consistency_check import find_differences
from runs_app.models import Attempt, ProviderBatch, Trial
from tests.factories.batches import drive_batches, get_batch_endpoint, make_batched_run
from tests.factories.engine import build_provider, drain

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_every_trial_is_answered_once_at_half_the_price(provider, kind):
    run = make_batched_run(provider.url, kind)
    drive_batches()
    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_failed) == ("done", 6, 0)
    batch = ProviderBatch.objects.get()
    assert (batch.status, batch.n_requests, batch.n_answered, batch.n_failed) == ("collected", 6, 6, 0)
    assert batch.provider_id
    counters = provider.counters()
    assert (counters["batches"], counters["batch_calls"], counters["answered_again"]) == (1, 6, 0)
    for trial in Trial.objects.all():
        at_list_price = (trial.input_tokens * 100 + trial.output_tokens * 200) / 1_000_000
        assert float(trial.cost_usd) == pytest.approx(at_list_price / 2, abs=1e-8)
        assert trial.answer
    assert batch.spent_usd == batch.saved_usd == run.spent_usd > 0
    assert set(Attempt.objects.values_list("token", flat=True)) == {batch.key}
    assert get_batch_endpoint().in_batches == get_batch_endpoint().in_flight == 0
    assert find_differences() == []


def test_a_drain_counts_the_answers_of_batches_among_its_results(provider):
    run = make_batched_run(provider.url)
    assert drain(build_provider()) == 6
    run.refresh_from_db()
    assert (run.status, run.n_done) == ("done", 6)
