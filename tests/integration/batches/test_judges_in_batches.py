"""Judges of a batched experiment run in batches too, at batch prices."""

from decimal import Decimal

import pytest

from grading_app.grading.consistency_check import find_differences
from grading_app.grading.judging.judge_plan import request_verdicts
from grading_app.grading.judging.verdict_reader import read_verdicts
from grading_app.models import Grading
from runs_app.models import LanguageModel, ProviderBatch, Run, Trial
from tests.factories.batches import PRICES, drive_batches, make_batched_run
from tests.factories.judges import make_grader

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_judges_run_in_batches_at_half_the_price(provider, kind):
    answers = make_batched_run(provider.url, kind, max_usd=5)
    drive_batches()
    experiment, before = answers.experiment, provider.counters()["batch_calls"]
    grader = make_grader(model=LanguageModel.objects.get())
    (report,) = request_verdicts(experiment, [grader], list(experiment.waves.all()), by="test")
    assert (report.added, report.run.is_batched) == (6, True)
    drive_batches()
    read_verdicts(experiment)

    run = Run.objects.get(pk=report.run.pk)
    assert (run.status, run.n_done) == ("done", 6)
    assert ProviderBatch.objects.get(run=run).n_answered == 6
    assert provider.counters()["batch_calls"] - before == 6
    assert Grading.objects.filter(judged_by__run=run).count() == 6
    for trial in Trial.objects.filter(run=run):
        at_list_price = trial.input_tokens * PRICES["input_price"] + trial.output_tokens * PRICES["output_price"]
        assert float(trial.cost_usd) == pytest.approx(float(at_list_price) / 2_000_000, abs=1e-8)
        assert trial.cost_usd <= run.reserve_usd < Decimal("0.2")
    assert find_differences() == []


def test_judges_make_single_calls_if_their_endpoint_accepts_no_batches(provider):
    answers = make_batched_run(provider.url)
    drive_batches()
    (report,) = request_verdicts(answers.experiment, [make_grader()], list(answers.experiment.waves.all()), by="test")
    assert not report.run.is_batched
    assert report.run.batches.count() == 0
