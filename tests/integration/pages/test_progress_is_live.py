"""Progress is computed from counters and ticks, and polled only while work continues."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.html import strip_tags

from grading_app.views import results
from runs_app.models import Run, Tick
from runs_app.monitoring import blockers, progress, sparklines
from tests import factories
from tests.page_text import page_text

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
POLL = 'hx-trigger="every 2s"'


def open_progress(client, lab, **headers):
    return client.get(f"/experiments/{lab.experiment.slug}/progress/", headers=headers).content.decode()


@pytest.mark.parametrize(
    ("status", "polls"),
    [("running", True), ("queued", True), ("paused", False), ("stopped", False), ("done", False), ("cancelled", False)],
)
def test_polling_ends_with_the_work(lab, as_, status, polls):
    Run.objects.update(status=status)
    assert (POLL in open_progress(as_("owner"), lab)) is polls
    run = as_("owner").get(f"/runs/{lab.run.pk}/").content.decode()
    assert (POLL in run) is polls
    assert ('http-equiv="refresh"' in run) is polls


def poll_progress(client, lab, shown):
    address = f"/experiments/{lab.experiment.slug}/progress/?shown={shown}"
    return client.get(address, headers={"HX-Request": "true"}).content.decode()


def test_the_poll_after_the_end_updates_the_buttons(lab, as_):
    client = as_("owner")
    running = open_progress(client, lab)
    shown = "pause,retry,cancel,priority"
    assert f"?shown={shown.replace(',', '%2C')}" in running
    assert "hx-swap-oob" not in running
    Run.objects.update(status="done", n_pending=0, n_running=0)
    part = poll_progress(client, lab, shown)
    oob = part[part.index('id="live-actions"') :]
    assert 'hx-swap-oob="true"' in oob
    assert "/control/retry/" in oob
    for address in ("/control/pause/", "/control/cancel/", "/control/priority/"):
        assert address not in oob
    run = client.get(f"/runs/{lab.run.pk}/?shown=pause", headers={"HX-Request": "true"}).content.decode()
    assert 'hx-swap-oob="true"' in run


def test_a_finished_experiment_is_not_promised_a_curve(lab, as_):
    Tick.objects.all().delete()
    Run.objects.update(n_pending=3)
    assert "The curve appears after 20 s of answers." in open_progress(as_("owner"), lab)
    Run.objects.update(status="done", n_pending=0, n_running=0)
    finished = open_progress(as_("owner"), lab)
    assert "A curve needs more than 20 s of answers." in finished
    assert "The curve appears" not in finished


def test_a_poll_does_not_replace_unchanged_buttons(lab, as_):
    """A reason that is being typed is not lost."""
    assert 'id="live-actions"' not in poll_progress(as_("owner"), lab, "pause,retry,cancel,priority")


def test_a_poll_gives_readers_no_buttons(lab, as_):
    lab.experiment.__class__.objects.update(sharing="group")
    assert "/control/" not in poll_progress(as_("viewer"), lab, "pause")


def test_the_poll_after_a_pilot_offers_the_remaining_trials(lab, as_):
    Run.objects.update(status="done", n_pending=0, n_running=0, n_failed=0, n_done=1)
    assert "Launch the rest" in poll_progress(as_("owner"), lab, "")


def test_a_poll_gets_only_the_live_part(lab, as_):
    part = open_progress(as_("owner"), lab, **{"HX-Request": "true"})
    assert part.lstrip().startswith('<div id="live"')
    assert "<html" not in part


def test_numbers_come_from_the_counters(lab, as_):
    Run.objects.update(n_done=90, n_failed=4, n_running=2, n_pending=4)
    context = as_("owner").get(f"/experiments/{lab.experiment.slug}/progress/").context
    assert (context["totals"].trials, context["done_share"]) == (100, "90.0")


def test_progress_reads_only_failed_trials(lab, as_):
    with CaptureQueriesContext(connection) as queries:
        open_progress(as_("owner"), lab)
    (failed,) = [query["sql"] for query in queries if '"runs_app_trial"' in query["sql"]]
    assert """"status" = 'failed'""" in failed
    Run.objects.update(n_failed=0)
    with CaptureQueriesContext(connection) as queries:
        open_progress(as_("owner"), lab)
    assert not [query["sql"] for query in queries if '"runs_app_trial"' in query["sql"]]


def test_the_number_of_queries_does_not_grow_with_the_runs(lab, as_):
    client = as_("owner")
    with CaptureQueriesContext(connection) as few:
        open_progress(client, lab)
    lab.experiment.language_models.add(*[factories.make_model(f"m{number}") for number in range(5)])
    factories.make_runs(lab.experiment, wave=1)
    with CaptureQueriesContext(connection) as many:
        open_progress(client, lab)
    assert len(many) == len(few) <= 14


def test_the_list_of_experiments_takes_a_constant_number_of_queries(lab, as_):
    client = as_("owner")
    cache.clear()  # Headline scores are cached: compare two pages that both compute them.
    with CaptureQueriesContext(connection) as few:
        client.get("/experiments/")
    for number in range(5):
        other = factories.make_experiment(f"e{number}", owner=lab.people["owner"], dataset=lab.experiment.dataset)
        factories.make_runs(other)
    cache.clear()
    with CaptureQueriesContext(connection) as many:
        client.get("/experiments/")
    assert len(many) == len(few)
    assert not [query["sql"] for query in many if '"runs_app_trial"' in query["sql"]]


def test_errors_link_to_their_trials(lab, as_):
    assert "/trials/?experiment=pilot&amp;error=bad_request" in open_progress(as_("owner"), lab)


def test_an_automatically_stopped_run_shows_its_reason(lab, as_):
    Run.objects.update(status="stopped", stop_reason="6 of 60 attempts failed permanently")
    assert "6 of 60 attempts failed permanently" in open_progress(as_("owner"), lab)


def test_a_missing_worker_is_reported_while_trials_wait(lab, as_):
    from runs_app.models import Worker

    Worker.objects.update(seen_at=START)
    Run.objects.update(created_at=START)
    assert "No worker is alive" in open_progress(as_("owner"), lab)


def test_no_missing_worker_is_reported_between_two_drains(lab, as_):
    from runs_app.models import Worker

    Run.objects.update(created_at=START)
    Worker.objects.update(seen_at=timezone.now(), stopped_at=timezone.now())
    text = open_progress(as_("owner"), lab)
    assert "No worker is alive" not in text
    assert "The next worker starts automatically" in text
    Worker.objects.update(seen_at=timezone.now() - blockers.WORKER_GAP * 2)
    assert "No worker is alive" in open_progress(as_("owner"), lab)


def test_no_missing_worker_is_reported_for_a_new_run(lab, as_):
    from runs_app.models import Worker

    Worker.objects.all().delete()
    Run.objects.update(created_at=timezone.now())
    assert "No worker is alive" not in open_progress(as_("owner"), lab)


def test_a_retry_is_offered_only_for_classes_with_failed_trials(lab, as_):
    Run.objects.update(errors={"bad_request": 3, "worker_lost": 5})
    text = open_progress(as_("owner"), lab)
    assert "Retry 1 failed trial of class bad_request" in text
    assert "of class worker_lost" not in text
    assert ">worker_lost</a>" in text


@pytest.mark.parametrize("error_class", ["worker_lost", "timeout", "content_refused", "internal_error"])
def test_trials_of_every_class_are_retried_after_their_run_is_done(lab, as_, error_class):
    from runs_app.models import Trial

    Trial.objects.filter(pk=lab.failed.pk).update(error_class=error_class)
    Run.objects.filter(pk=lab.run.pk).update(status="done", errors={error_class: 1})
    assert f"Retry 1 failed trial of class {error_class}" in open_progress(as_("owner"), lab)
    as_("owner").post(f"/experiments/{lab.experiment.slug}/control/retry/", {"only": error_class})
    lab.run.refresh_from_db()
    assert (lab.run.status, Trial.objects.get(pk=lab.failed.pk).status) == ("running", "pending")


def test_no_retry_is_offered_for_a_cancelled_run(lab, as_):
    Run.objects.update(status="cancelled")
    text = open_progress(as_("owner"), lab)
    assert "/control/retry/" not in text


# --- pace and curve


@pytest.fixture
def run(lab):
    Tick.objects.all().delete()
    return lab.run


def advance(run, seconds, done=0, failed=0):
    Tick.objects.create(run=run, at=START + timedelta(seconds=seconds), done=done, failed=failed)


def test_the_pace_is_measured_over_the_last_full_minute(run):
    advance(run, -100, done=1000)
    for seconds in range(0, 60, 10):
        advance(run, seconds, done=9, failed=1)
    advance(run, 60, done=3)
    pace = progress.measure_pace([run], remaining=120, now=START + timedelta(seconds=65))
    assert pace.per_minute == 60
    assert pace.seconds_left == 120
    assert pace.points[-1][0] == START + timedelta(seconds=50)


def test_the_pace_of_a_new_run_ignores_the_time_before_its_start(run):
    advance(run, 40, done=10)
    advance(run, 50, done=10)
    assert progress.measure_pace([run], 20, now=START + timedelta(seconds=61)).per_minute == 60


def test_a_run_without_ticks_has_no_pace_and_no_time_left(run):
    pace = progress.measure_pace([run], 20, now=START)
    assert (pace.per_minute, pace.seconds_left, pace.points) == (0, None, [])


def test_the_projected_cost_is_the_spent_cost_plus_remaining_trials_at_each_runs_mean(lab, run):
    Run.objects.update(n_done=8, n_failed=2, n_pending=25, n_running=5, spent_usd="0.5")
    cheap = Run(status="running", n_done=100, n_pending=100, spent_usd=Decimal("0.1"))
    projection = progress.project_cost([Run.objects.get(), cheap], budget=Decimal("2"))
    assert projection.total_usd == Decimal("0.6") + 30 * Decimal("0.05") + 100 * Decimal("0.001")
    assert (projection.remaining, projection.is_over_budget) == (130, True)


def test_a_run_without_an_answer_is_projected_at_the_mean_of_all(run):
    Run.objects.update(n_done=10, n_failed=0, n_pending=0, n_running=0, spent_usd="0.5")
    fresh = Run(status="queued", n_pending=10, spent_usd=Decimal(0))
    assert progress.project_cost([Run.objects.get(), fresh]).total_usd == 1


def test_nothing_is_projected_before_an_answer_or_after_the_end(run):
    assert progress.project_cost([Run(status="running", n_pending=3)]) is None
    assert progress.project_cost([Run(status="done", n_done=3, spent_usd=Decimal(1))]) is None
    assert progress.project_cost([Run(status="cancelled", n_done=3, n_running=1, spent_usd=Decimal(1))]) is None


def test_the_page_says_how_the_projection_is_computed(lab, as_):
    Run.objects.update(n_done=8, n_failed=2, n_pending=25, n_running=5, spent_usd="0.5")
    text = " ".join(strip_tags(open_progress(as_("owner"), lab)).split())
    assert "Projected cost $2.00spent so far, plus 30 trials at $0.05 each, the mean of their runs so far" in text


def test_ticks_of_several_runs_add_up_and_only_the_last_hour_counts(lab, run):
    lab.experiment.language_models.add(factories.make_model("second"))
    other = next(made for made in factories.make_runs(lab.experiment, wave=1))
    advance(run, 0, done=1)
    advance(other, 0, done=2)
    advance(run, -3600, done=50)
    pace = progress.measure_pace([run, other], 0, now=START + timedelta(seconds=10))
    assert pace.points == [(START, 3)]


def test_a_curve_fills_gaps_with_zero_and_ends_on_a_round_top():
    curve = sparklines.build_throughput_curve([(START, 10), (START + timedelta(seconds=30), 20)])
    assert curve.line == "0.0,98.0 240.0,140.0 480.0,140.0 720.0,56.0"
    assert (curve.top, curve.peak) == (200, 120)


def test_a_limit_curve_keeps_its_last_value_between_samples():
    curve = sparklines.build_limit_curve([(START, 16.0), (START + timedelta(seconds=30), 8.0)])
    assert curve.line == "0.0,28.0 240.0,28.0 480.0,28.0 720.0,84.0"
    assert (curve.top, curve.peak) == (20, 16.0)


def test_one_tick_is_no_curve():
    assert sparklines.build_throughput_curve([(START, 10)]) is None
    assert sparklines.build_throughput_curve([]) is None
    assert sparklines.build_limit_curve([(START, 16.0)]) is None


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (1, 1), (3, 5), (6, 10), (10, 10), (11, 20), (450, 500), (501, 1000)]
)
def test_axes_end_in_round_numbers(value, top):
    assert sparklines.round_up(value) == top


def test_a_hundred_per_cent_is_shown_only_when_all_trials_are_done(lab, as_):
    Run.objects.update(n_done=99_999, n_failed=0, n_running=0, n_pending=1)
    assert as_("owner").get(f"/runs/{lab.run.pk}/").context["done_share"] == "99.9"


def test_waves_are_shown_separately_if_there_are_two(lab, as_):
    assert 'id="waves"' not in open_progress(as_("owner"), lab)
    factories.make_runs(lab.experiment, wave=1)
    Run.objects.filter(wave__number=1).update(n_pending=7, n_done=3, spent_usd="0.5", status="paused")
    text = open_progress(as_("owner"), lab)
    waves = text[text.index('id="waves"') : text.index('id="runs"')]
    for shown in ("first wave", "wave-1", "Paused", '3 <span class="muted">of 10</span>', "$0.50"):
        assert shown in waves
    assert 'id="waves"' in open_progress(as_("owner"), lab, **{"HX-Request": "true"})


def test_several_served_models_of_a_run_are_shown(lab, as_):
    address = f"/runs/{lab.run.pk}/"
    assert "served this run as several models" not in as_("owner").get(address).content.decode()
    for trial, served in ((lab.trial, "vendor/small-1"), (lab.failed, "vendor/small-2<b>")):
        factories.make_attempt(trial, served_model=served)
    for headers in ({}, {"HX-Request": "true"}):
        text = as_("owner").get(address, headers=headers).content.decode()
        assert "served this run as several models" in text
        assert "vendor/small-2&lt;b&gt;" in text


def test_several_providers_of_a_run_are_shown_and_each_attempt_names_its_own(lab, as_):
    address = f"/runs/{lab.run.pk}/"
    assert "Several providers" not in as_("owner").get(address).content.decode()
    for trial, provider in ((lab.trial, "north"), (lab.failed, "south<b>")):
        factories.make_attempt(trial, served_model="vendor/small-1", served_provider=provider)
    text = as_("owner").get(address).content.decode()
    assert "Several providers answered for this run" in text
    assert text.count("south&lt;b&gt;") == 2  # In the warning and among the attempts.
    of_trial = as_("owner").get(f"/trials/{lab.trial.pk}/").content.decode()
    assert "vendor/small-1 by north" in of_trial


def test_many_runs_are_shown_in_pages_with_failures_first(lab, as_, monkeypatch):
    monkeypatch.setattr(results, "RUNS_PER_PAGE", 2)
    lab.experiment.language_models.add(*[factories.make_model(f"m{number}") for number in range(3)])
    runs = factories.make_runs(lab.experiment, wave=1)
    Run.objects.update(n_failed=0)
    Run.objects.filter(pk=runs[-1].pk).update(n_failed=1)
    page = as_("owner").get(f"/experiments/{lab.experiment.slug}/progress/?page=2")
    assert f"page=2&amp;shown={page.context['action_names'].replace(',', '%2C')}" in page.content.decode()
    first = as_("owner").get(f"/experiments/{lab.experiment.slug}/progress/")
    assert [row.record.pk for row in first.context["table"].paginated_rows] == [runs[-1].pk, lab.run.pk]
    assert "those with failures first" in page_text(first)
