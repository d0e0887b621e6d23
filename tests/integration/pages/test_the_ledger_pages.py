"""The ledger on pages: sums by the chosen grouping, in the reader's time zone, equal to the export."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from django.core.management import call_command
from django.utils import timezone

from runs_app.models import Attempt, LedgerEntry
from runs_app.monitoring import ledger_report
from tests import factories
from tests.shared_rows import shared_rows

LATE_EVENING = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)


@shared_rows
def experiment(lab_of_file):
    """Return two models: one with calls before and after midnight UTC and a cached answer, one of unknown cost."""
    dear = factories.make_model("dear")
    experiment = factories.make_experiment(
        "dearly", owner=lab_of_file.people["owner"], models=[factories.make_model(), dear]
    )
    second, first = factories.make_runs(experiment)  # in the order of their models
    trials = factories.plan_trials(first, answer=lambda *_: "ready")
    for trial, hour in zip(trials, (LATE_EVENING, LATE_EVENING.replace(day=2, hour=1)), strict=False):
        factories.make_attempt(
            trial,
            cost_usd=Decimal("0.25"),
            list_usd=Decimal("1.00"),
            cache_read_tokens=80,
            cache_write_tokens=9,
            reasoning_tokens=3,
            finished_at=hour,
        )
    factories.make_attempt(trials[2], outcome="cached", cost_usd=0, list_usd=Decimal("0.5"), finished_at=LATE_EVENING)
    (lost_trial, *_) = factories.plan_trials(second, answer=lambda *_: "ready")
    factories.make_attempt(lost_trial, outcome="lost", cost_usd=None, kept_usd=Decimal("0.7"), finished_at=LATE_EVENING)
    return experiment


def sum_lines(experiment, by):
    return {
        line.label: line.sums
        for line in ledger_report.sum_by_group(LedgerEntry.objects.filter(run__experiment=experiment), by)
    }


def test_sums_by_model_show_each_saving_and_count_unknown_costs_separately(experiment):
    by_model = sum_lines(experiment, "model")
    small, dear = by_model["small"], by_model["dear"]
    assert (small.list_usd, small.paid_usd) == (Decimal("2.5"), Decimal("0.5"))
    assert (small.cache_saved_usd, small.reuse_saved_usd) == (Decimal("1.5"), Decimal("0.5"))
    assert small.saved_usd == small.cache_saved_usd + small.reuse_saved_usd
    assert (small.calls, small.reused, small.unpriced) == (2, 1, 0)
    assert (dear.paid_usd, dear.unpriced, dear.kept_usd) == (0, 1, Decimal("0.7"))


@pytest.mark.parametrize(
    ("zone", "days"),
    [
        ("UTC", {"2026-03-01": 3, "2026-03-02": 1}),
        ("Asia/Kathmandu", {"2026-03-02": 4}),  # 5 h 45 min ahead
        ("America/Los_Angeles", {"2026-03-01": 4}),
    ],
)
def test_days_use_the_readers_time_zone(experiment, zone, days):
    with timezone.override(zone):
        assert {day: sums.attempts for day, sums in sum_lines(experiment, "day").items()} == days


def test_the_day_filter_uses_the_readers_time_zone(experiment, as_):
    owner = as_("owner")
    owner.cookies["tz"] = "Asia/Kathmandu"
    page = owner.get(f"/experiments/{experiment.slug}/ledger/?since=2026-03-02&until=2026-03-02")
    assert page.context["sums"].attempts == 4
    page = owner.get(f"/experiments/{experiment.slug}/ledger/?until=2026-03-01")
    assert page.context["sums"].attempts == 0
    assert "No calls in this period" in page.content.decode()


@pytest.mark.parametrize("by", ["day", "model", "stage", "run"])
def test_every_grouping_adds_up_to_the_attempts(experiment, as_, by):
    page = as_("owner").get(f"/experiments/{experiment.slug}/ledger/?by={by}")
    assert page.status_code == 200
    attempts = Attempt.objects.filter(run__experiment=experiment)
    assert page.context["sums"].attempts == attempts.count()
    assert page.context["sums"].paid_usd == sum(one.cost_usd or 0 for one in attempts)


def test_the_page_and_the_export_have_the_same_sums(experiment, as_, tmp_path):
    out = tmp_path / "ledger.jsonl"
    call_command("export", experiment.slug, table="ledger", format="jsonl", out=str(out))
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    sums = as_("owner").get(f"/experiments/{experiment.slug}/ledger/").context["sums"]
    for exported, shown in {"cost_usd": "paid_usd"}.items():
        assert sum(Decimal(str(row[exported])) for row in rows) == getattr(sums, shown)
    for name in ("list_usd", "cache_saved_usd", "reuse_saved_usd", "kept_usd"):
        assert sum(Decimal(str(row[name])) for row in rows) == getattr(sums, name), name
    for name in ("attempts", "answered", "reused", "input_tokens", "cache_read_tokens", "unpriced"):
        assert sum(row[name] for row in rows) == getattr(sums, name), name


def test_an_operator_sees_the_whole_lab_by_experiment_and_model(experiment, as_):
    operator = as_("operator")
    page = operator.get("/ledger/?by=experiment&model=small&experiment=dearly")
    text = page.content.decode()
    assert f"/experiments/{experiment.slug}/ledger/" in text
    assert page.context["sums"].unpriced == 0
    assert operator.get("/ledger/?by=run&experiment=dearly").context["sums"].attempts == 4


@pytest.mark.parametrize("address", ["?by=color", "?since=yesterday", "?since=0001-01-01", "?until=9999-12-31"])
def test_invalid_parameters_are_not_server_errors(experiment, as_, address):
    assert as_("owner").get(f"/experiments/{experiment.slug}/ledger/{address}").status_code == 200


def test_the_number_of_queries_does_not_grow_with_the_lines(experiment, as_, django_assert_max_num_queries):
    owner = as_("owner")
    for trial in experiment.runs.first().trials.all():
        for day in range(3, 20):
            factories.make_attempt(trial, finished_at=LATE_EVENING.replace(day=day))
    with django_assert_max_num_queries(12):
        assert owner.get(f"/experiments/{experiment.slug}/ledger/").status_code == 200
