"""Claim, call, record: every trial is answered once, and the counters match the rows."""

import asyncio
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db.models import F
from django.db.models.functions import Now

from grading_app.grading.consistency_check import find_differences
from runs_app.llm import prompts
from runs_app.llm.calls import CallFailure, ErrorClass
from runs_app.models import Attempt, Endpoint, Experiment, Run, Trial
from tests import factories
from tests.factories.engine import build_provider, build_reply, drain
from tests.factories.tampering import allow_deletions


def test_every_trial_is_answered_once_with_one_attempt(run):
    assert drain(build_provider("four", cost_usd=Decimal("0.00002"))) == 6

    assert set(run.trials.values_list("status", "answer", "attempts")) == {("done", "four", 1)}
    assert Attempt.objects.filter(run=run, outcome="ok").count() == 6
    run.refresh_from_db()
    assert (run.status, run.n_done, run.n_pending, run.n_running) == ("done", 6, 0, 0)
    assert run.spent_usd == Decimal("0.00012")
    assert find_differences() == []


def test_trials_start_in_order_of_repetition_and_item(run):
    requests = []

    async def call(request):
        requests.append(request.messages[-1]["content"])
        return build_reply()

    drain(call, concurrency=1)
    items = list(run.experiment.dataset.items.order_by("pk").values_list("input", flat=True))
    assert requests == items * 2


def test_concurrency_never_exceeds_the_limit_of_the_endpoint(run):
    Endpoint.objects.update(max_concurrency=2)
    n_in_flight = peak = 0

    async def call(request):
        nonlocal n_in_flight, peak
        n_in_flight += 1
        peak = max(peak, n_in_flight)
        await asyncio.sleep(0.01)
        n_in_flight -= 1
        return build_reply()

    drain(call)
    assert peak == 2
    assert Endpoint.objects.get().in_flight == 0


def test_concurrency_never_exceeds_the_limit_of_the_run(run):
    Run.objects.update(max_concurrency=1)
    n_in_flight = peak = 0

    async def call(request):
        nonlocal n_in_flight, peak
        n_in_flight += 1
        peak = max(peak, n_in_flight)
        await asyncio.sleep(0.005)
        n_in_flight -= 1
        return build_reply()

    drain(call)
    assert peak == 1


def test_a_transient_error_is_retried_until_attempts_run_out(run, monkeypatch):
    monkeypatch.setattr("runs_app.engine.outcomes.compute_backoff_s", lambda *_, **__: 0.0)

    async def call(request):
        raise CallFailure(ErrorClass.SOFT_FAILURE, "the provider is unwell", http_status=200)

    drain(call)
    assert set(run.trials.values_list("status", "attempts", "error_class")) == {("failed", 3, "soft_failure")}
    assert Attempt.objects.filter(outcome="transient").count() == 18
    run.refresh_from_db()
    assert run.errors == {"soft_failure": 18}
    assert find_differences() == []


def test_a_retry_waits_as_long_as_the_design_specifies(run):
    Experiment.objects.update(backoff_s=600, max_backoff_s=900)

    async def call(request):
        raise CallFailure(ErrorClass.SOFT_FAILURE, "the provider is unwell", http_status=200)

    drain(call, stop_at=6)
    waits = run.trials.filter(attempts=1).annotate(wait=F("not_before") - Now()).values_list("wait", flat=True)
    assert len(waits) == 6
    assert all(timedelta(seconds=280) < wait <= timedelta(seconds=600) for wait in waits)


def test_a_permanent_error_is_never_retried(run):
    async def call(request):
        raise CallFailure(ErrorClass.CONTENT_REFUSED, "against the rules", http_status=400)

    drain(call)
    assert set(run.trials.values_list("status", "attempts")) == {("failed", 1)}
    assert find_differences() == []


def test_an_overloaded_endpoint_releases_trials_without_counting_the_attempt(run):
    calls = 0

    async def call(request):
        nonlocal calls
        calls += 1
        if calls <= 3:
            raise CallFailure(ErrorClass.RATE_LIMITED, "slow down", http_status=429, retry_after_s=0.05)
        return build_reply()

    drain(call)
    assert set(run.trials.values_list("status", "attempts")) == {("done", 1)}
    assert Attempt.objects.filter(outcome="endpoint").count() == 3
    assert Endpoint.objects.get().pause_reason == "slow down"


async def refuse_schemas(request):
    if request.response_format:
        raise CallFailure(ErrorClass.RESPONSE_FORMAT_UNSUPPORTED, "no schemas here", http_status=400)
    return build_reply('{"rating": 6}')


@pytest.mark.parametrize("items", [3, 30])
def test_a_call_with_a_refused_schema_is_repeated_without_the_schema_and_both_are_recorded(transactional_db, items):
    prompt = factories.make_prompt("rate", user="{{input}} {{scale_labels}}", answer_format="rating")
    questions, dimensions = factories.make_dataset("questions", items), [factories.make_dimension()]
    experiment = factories.make_experiment("rating", dataset=questions, prompts=[prompt], dimensions=dimensions)
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run)

    drain(refuse_schemas)
    run.refresh_from_db()
    refused = Attempt.objects.filter(call=0, outcome="transient").count()
    assert refused >= 1
    assert (run.status, run.n_done, run.n_attempts, run.n_permanent) == ("done", items, items + refused, 0)
    assert set(run.trials.values_list("status", "rating", "attempts")) == {("done", 6, 1)}
    assert Attempt.objects.filter(call=1, outcome="ok").count() == refused
    assert find_differences() == []


def test_a_run_whose_calls_fail_permanently_stops_with_a_reason(transactional_db):
    experiment = factories.make_experiment("bad", dataset=factories.make_dataset("many", 60))
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run)

    async def call(request):
        raise CallFailure(ErrorClass.UNAUTHORIZED, "no such key", http_status=401)

    drain(call, concurrency=10)
    run.refresh_from_db()
    assert run.status == "stopped"
    assert "20" in run.stop_reason
    assert run.n_pending > 0
    assert run.history.first().to_value == "stopped"


def test_an_answer_with_nul_and_a_lone_surrogate_is_stored_as_readable_text(run):
    drain(build_provider("a\x00b \ud83d c \\u0000"))
    assert {trial.raw_text for trial in run.trials.all()} == {"a\ufffdb ? c \\u0000"}


def test_a_prompt_that_cannot_be_rendered_fails_its_trial_and_names_the_variable(transactional_db):
    prompt = factories.make_prompt("broken", user="{{meta.missing}} {{input}}")
    experiment = factories.make_experiment("unrenderable", prompts=[prompt])
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run)
    drain(build_provider())
    assert set(run.trials.values_list("status", "error_class")) == {("failed", "unrenderable")}
    assert "meta.missing" in run.trials.first().error


def test_a_request_that_is_too_long_fails_its_trial_and_names_prompt_item_and_limit(transactional_db, monkeypatch):
    monkeypatch.setattr(prompts, "MAX_CHARS", 100)
    monkeypatch.setattr(prompts.render, "__kwdefaults__", {"hint": "", "salt": "", "max_chars": 100})
    prompt = factories.make_prompt("echo", user="{{input}}" * 50)
    (run,) = factories.make_runs(factories.make_experiment("long", prompts=[prompt]))
    factories.plan_trials(run)
    drain(build_provider())
    assert set(run.trials.values_list("status", "error_class")) == {("failed", "unrenderable")}
    trial = run.trials.select_related("item").first()
    assert trial.error.startswith(f"prompt echo, item {trial.item.key}: the request would have")
    assert trial.error.endswith("at most 100 are sent")


def test_done_trials_cannot_be_changed_even_by_sql(run):
    from django.db import IntegrityError

    drain(build_provider())
    with pytest.raises(IntegrityError, match="never changes"):
        Trial.objects.update(answer="something else")


@pytest.mark.parametrize("column", ["run_id", "item_id", "dimension_id", "sample_idx", "subject_id", "rival_id"])
def test_a_trial_keeps_its_place_in_the_design_even_by_sql(run, column):
    from django.db import IntegrityError, transaction

    before = list(Trial.objects.order_by("pk").values())
    with pytest.raises(IntegrityError, match="keeps its run, item, dimension and repetition"), transaction.atomic():
        Trial.objects.update(**{column: 1_000_000 + F("pk")})
    assert list(Trial.objects.order_by("pk").values()) == before


def test_a_trial_with_attempts_cannot_be_deleted_even_by_sql(run):
    from django.db import IntegrityError

    drain(build_provider())
    with pytest.raises(IntegrityError, match="still has attempts"):
        Trial.objects.filter(run=run)._raw_delete("default")
    assert run.trials.count() == run.attempt_rows.count() == 6
    with allow_deletions():
        run.trials.all().delete()
    assert not run.attempt_rows.exists()


def test_an_internal_error_fails_only_its_own_trial(run, monkeypatch):
    monkeypatch.setattr("runs_app.engine.outcomes.compute_backoff_s", lambda *_, **__: 0.0)

    async def call(request):
        if "0 plus" in request.messages[-1]["content"]:
            raise KeyError("a bug")
        return build_reply()

    drain(call)
    run.refresh_from_db()
    assert (run.n_done, run.n_failed) == (4, 2)
    assert set(run.trials.filter(status="failed").values_list("error_class", "attempts")) == {("internal_error", 3)}
